//! The tree of a release: built by the recipe's command, or there already; and the lock of its extras.

use super::layer::{Base, Keeping, lock_of};
use super::{PackArguments, PackPlan};
use crate::bundle::recipe::Build;
use crate::cli::{Context, input, usage};
use crate::failure::{Class, Report};
use crate::os::dir::Dir;
use crate::os::environment::{Need, Passed};
use crate::os::lock::{self, Lock, LockFile};
use crate::os::process::{Directory, Program};
use crate::os::{environment, file};
use std::io;
use std::path::{Path, PathBuf};

/// Where a build's tree lies in the output directory while it is packed.
const BUILD_TREE: &str = ".tree";
/// Where a build writes a lock, before it is put beside the recipe.
const LOCK: &str = "lock";
/// Largest lock read: ten thousand packages.
const LOCK_BYTES_MAXIMUM: u64 = 2 << 20;

/// The temporary directory, and the lock on its name. The next pack of the same release replaces the leftover of a crash.
pub(super) struct Work<'a> {
    parent: &'a Dir,
    name: String,
    /// None: the file system cannot lock.
    lock: Option<Lock>,
    /// The directory itself.
    pub(super) directory: Dir,
}

impl<'a> Work<'a> {
    /// Makes the directory of the release `release` anew, unless another command works in it.
    pub(super) fn new(parent: &'a Dir, release: &str) -> Result<Self, Report> {
        let name = format!(".{release}.packing");
        let file = LockFile::new(parent, lock_name(&name));
        let lock = match file.try_exclusive() {
            Ok(Some(lock)) => Some(lock),
            Ok(None) => {
                let by = lock::by(file.holder().as_ref());
                let place = parent.path().display();
                return Err(Report::of(
                    Class::Locked,
                    format!("cannot pack {release}: another command does so in {place}{by}"),
                )
                .hint("wait for its end, or name another directory with --output"));
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => None,
            Err(error) => return Err(error.into()),
        };
        parent.remove_tree(&name)?;
        parent.make_dir(&name, 0o700)?;
        let directory = parent.child(&name)?;
        Ok(Self { parent, name, lock, directory })
    }
}

fn lock_name(work: &str) -> String {
    format!("{work}.lock")
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        // A build may leave directories that nobody may write to; what stays is named when the next pack can't remove it.
        let _ = self.parent.remove_tree(&self.name);
        // While it is held: who opened it meanwhile sees that it is gone, and makes another.
        if self.lock.is_some() {
            let _ = self.parent.remove_file(lock_name(&self.name));
        }
    }
}

/// The tree that exists already: the one that was named, or the recipe's.
pub(super) fn named_tree(arguments: &PackArguments, plan: &PackPlan) -> Result<Dir, Report> {
    match (&arguments.tree, &plan.recipe.build) {
        (None, Build::Tree(tree)) => Dir::open(&plan.home.join(tree))
            .map_err(|error| input::explained(error, "the tree that the recipe's [build] has")),
        (tree, _) => Dir::open(tree.as_deref().unwrap_or(Path::new("")))
            .map_err(|error| input::explained(error, "the directory that is the tree")),
    }
}

/// The tree to pack: the one that was named, the recipe's, or the one that its command fills.
pub(super) fn tree(
    context: &Context,
    arguments: &PackArguments,
    plan: &mut PackPlan,
    work: &Work<'_>,
) -> Result<Dir, Report> {
    if let Some(file) = &arguments.base {
        return on_base(context, arguments, plan, (file, work));
    }
    let command = match (&arguments.tree, &plan.recipe.build) {
        (Some(_), _) | (None, Build::Tree(_)) => return named_tree(arguments, plan),
        (None, Build::Command(command)) => command,
    };
    let tree = work.directory.child_or_create(BUILD_TREE, 0o755)?;
    let build = building(arguments, plan, command, tree.path())?;
    let build = layered(build, context, arguments, (plan, work))?;
    run(context, plan, command, &build)?;
    Ok(tree)
}

/// The tree of a release that was packed already, with what the recipe adds to it.
fn on_base(
    context: &Context,
    arguments: &PackArguments,
    plan: &mut PackPlan,
    (file, work): (&Path, &Work<'_>),
) -> Result<Dir, Report> {
    let base = Base::unpack(context, arguments, plan, (file, &work.directory))?;
    let tree = Dir::open(&base.tree)?;
    // Extras that the recipe does not name are taken off the base.
    let has_layer = !plan.recipe.extras.is_empty() || !base.manifest.extras.is_empty();
    if has_layer || !arguments.keep_modules.is_empty() {
        let Build::Command(command) = &plan.recipe.build else {
            let hint = "write `command = [\"./build-tree\"]` below [build]: the build's command adds them";
            return Err(usage("cannot add anything to the release: the recipe has no command that builds", hint));
        };
        let build = building(arguments, plan, command, tree.path())?.variable("SIDLE_STEP", "layer");
        let build = layered(with_floor(build, Some(&base)), context, arguments, (plan, work))?;
        run(context, plan, command, &build)?;
    }
    // What the base has stays in the frames that it is in, which know of the releases before it; all else is new, even if an older release had it.
    plan.previous = vec![base.manifest];
    Ok(tree)
}

/// The build, told of the C library that the base starts on: extras must, too.
fn with_floor(build: Program, base: Option<&Base>) -> Program {
    match base.and_then(|base| base.manifest.libc_floor) {
        Some(floor) => build.variable("SIDLE_GLIBC", floor.to_string()),
        None => build,
    }
}

/// The build, told of the recipe's extras and of the modules to keep.
fn layered(
    mut build: Program,
    context: &Context,
    arguments: &PackArguments,
    (plan, work): (&PackPlan, &Work<'_>),
) -> Result<Program, Report> {
    if !plan.recipe.extras.is_empty() {
        build = build.variable("SIDLE_EXTRAS", plan.recipe.extras.join(" ")).variable("SIDLE_LOCK", lock_of(plan));
    }
    if let Some(Keeping { names, tree, origin }) = Keeping::prepare(context, arguments, &work.directory)? {
        build = build.variable("SIDLE_KEEP", names).variable("SIDLE_KEEP_FROM", tree);
        build = build.variable("SIDLE_KEEP_ORIGIN", origin);
    }
    Ok(build)
}

/// Writes the lock of the recipe's extras beside the recipe: what pip takes beside a new tree, the named one, or that of the base.
pub(super) fn lock(
    context: &Context,
    arguments: &PackArguments,
    plan: &PackPlan,
    work: &Work<'_>,
) -> Result<PathBuf, Report> {
    let Build::Command(command) = &plan.recipe.build else {
        let hint = "write `command = [\"./build-tree\"]` below [build]: the build's command asks pip";
        return Err(usage("cannot write a lock: the recipe has no command that builds the tree", hint));
    };
    let base = arguments.base.as_ref().map(|file| Base::unpack(context, arguments, plan, (file, &work.directory)));
    let base = base.transpose()?;
    let tree = match (&base, &arguments.tree) {
        (Some(base), _) => Dir::open(&base.tree)?,
        (None, Some(_)) => named_tree(arguments, plan)?,
        (None, None) => work.directory.child_or_create(BUILD_TREE, 0o755)?,
    };
    let written = file::canonical(work.directory.path())?.join(LOCK);
    let build = building(arguments, plan, command, tree.path())?
        .variable("SIDLE_STEP", "lock")
        .variable("SIDLE_EXTRAS", plan.recipe.extras.join(" "))
        .variable("SIDLE_LOCK", &written);
    let build = with_floor(build, base.as_ref());
    run(context, plan, command, &build)?;
    let text = input::read(&written, LOCK_BYTES_MAXIMUM, "the lock that the build's command writes")?;
    let lock = lock_of(plan);
    let name = lock.file_name().unwrap_or_default().to_owned();
    Dir::open(&plan.home)?.write_atomic(&name, &text, 0o644)?;
    Ok(lock)
}

/// The recipe's command, with what every step of it gets.
fn building(arguments: &PackArguments, plan: &PackPlan, command: &[String], tree: &Path) -> Result<Program, Report> {
    let Some((program, words)) = command.split_first() else {
        return Err(usage(
            "cannot build: the recipe's command is empty",
            "write `command = [\"./build-tree\"]` below [build]",
        ));
    };
    // A path is the recipe's own file; a bare name is looked for in PATH.
    let path = if program.contains('/') { plan.home.join(program) } else { PathBuf::from(program) };
    let passed = Passed::default().with(Need::Network).with(Need::Build);
    let mut build = Program { arguments: words.iter().map(Into::into).collect(), ..Program::new(path) }
        .passing(passed)
        // The command names the recipe's own files from there.
        .working(Directory::At(plan.home.clone()))
        .variable("SIDLE_VERSION", arguments.version.as_str())
        .variable("SIDLE_TREE", file::canonical(tree)?);
    if let Some(source) = &arguments.source {
        build = build.variable("SIDLE_SOURCE", whole(source)?);
    }
    if environment::variable("SOURCE_DATE_EPOCH").is_some() {
        build = build.variable("SOURCE_DATE_EPOCH", plan.epoch.to_string());
    }
    Ok(build)
}

/// A source that is a path from where the person is, as a path from everywhere: the build runs in the recipe's directory. A bare word may be the recipe's own,
/// and is passed as it is unless a file has that name.
fn whole(source: &str) -> Result<PathBuf, Report> {
    let path = Path::new(source);
    let is_here = path.is_relative() && (file::is_input(path) || (source.contains('/') && file::stat(path)?.is_some()));
    Ok(if is_here { file::canonical(path)? } else { path.to_path_buf() })
}

fn run(context: &Context, plan: &PackPlan, command: &[String], build: &Program) -> Result<(), Report> {
    context.output.step(format!("building {}: {}", plan.name, command.join(" ")));
    if build.run()? {
        return Ok(());
    }
    Err(Report::of(Class::Failed, format!("cannot build {}: {} failed", plan.name, command.join(" ")))
        .hint("the command's messages, above, say why; nothing was packed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second one removed the tree of the first one, which packed what was left.
    #[test]
    fn two_packs_of_one_release_do_not_share_a_directory() {
        let place = tempfile::tempdir().unwrap();
        let parent = Dir::open(place.path()).unwrap();
        // What a crash left.
        parent.child_or_create(".a-1-1.packing", 0o700).unwrap().child_or_create("old", 0o755).unwrap();
        let work = Work::new(&parent, "a-1-1").unwrap();
        assert!(work.directory.names().unwrap().is_empty());
        work.directory.child_or_create(BUILD_TREE, 0o755).unwrap();
        let refused = Work::new(&parent, "a-1-1").err().unwrap();
        assert_eq!(refused.class, Class::Locked);
        assert!(refused.message.starts_with("cannot pack a-1-1: another command does so in /"), "{}", refused.message);
        assert_eq!(work.directory.names().unwrap(), [BUILD_TREE]);
        Work::new(&parent, "a-1-2").unwrap();
        drop(work);
        Work::new(&parent, "a-1-1").unwrap();
        assert!(parent.names().unwrap().is_empty(), "nothing is left, nor a lock");
    }
}
