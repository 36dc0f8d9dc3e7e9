//! Extras of a recipe and modules of an older release, with real Salt and real extensions: what the lock names is in the release, and in its
//! manifest; what does not fit the release is refused by name.

use crate::support::minions;
use crate::support::salt::{packaged_tree, tree};
use crate::support::stage::{Author, Host, Ran, SALT, sidle, text};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const OLD: &str = "3006.30";
const NEW: &str = "3008.5";
/// Real extensions, pure Python: a successor of modules that 3008 dropped, each.
const REAL: [&str; 2] = ["saltext-vault==1.8.0", "saltext-zabbix==1.0.0"];

/// An author's recipe beside its lock; the build's command copies a tree that is there, and lets the real builder lay the layer over it.
pub(super) struct Desk {
    directory: tempfile::TempDir,
}

impl Desk {
    pub(super) fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("desk").tempdir().unwrap();
        let made =
            Command::new("python3").arg("-B").arg(project("tests/it/support/wheels.py")).arg(directory.path()).status();
        assert!(made.unwrap().success());
        let (tree, builder) = (tree(NEW), project("bundles/salt-minion/build-tree"));
        let script = format!(
            "#!/bin/sh\nset -e\n[ -z \"$(ls \"$SIDLE_TREE\")\" ] || exec {1}\n[ \"$SIDLE_STEP\" != lock ] || SIDLE_TREE={0} exec {1}\ncp -a --reflink=auto {0}/. \"$SIDLE_TREE\"\nexec {1} --layer only\n",
            text(&tree),
            text(&builder)
        );
        let build = directory.path().join("build");
        fs::write(&build, script).unwrap();
        fs::set_permissions(build, fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn recipe(&self, extras: &[&str]) -> PathBuf {
        let recipe = fs::read_to_string(project("bundles/salt-minion/salt-minion.toml")).unwrap();
        let line = recipe.lines().find(|line| line.starts_with("command = [\"./build-tree\"")).unwrap();
        let path = self.path("site.toml");
        fs::write(&path, recipe.replace(line, &format!("command = [\"./build\"]\nextras = {extras:?}"))).unwrap();
        path
    }

    fn lock(&self) -> PathBuf {
        self.path(&format!("site-{NEW}.lock"))
    }

    /// `sidle pack` of this recipe: no index but the wheels that are here.
    pub(super) fn pack(&self, extras: &[&str], more: &[&str]) -> Ran {
        let (recipe, wheels, cache) = (self.recipe(extras), real_wheels(), cache());
        let links = format!("{} {}", text(self.directory.path()), text(&wheels));
        let kept = cache.join("build");
        let variables = [("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", &*links), ("SIDLE_CACHE", text(&kept))];
        let root = self.path("root");
        let arguments = ["--root", text(&root), "pack", text(&recipe), "--version", NEW, "--level", "1"];
        sidle(&[&arguments[..], more].concat(), &variables)
    }

    /// A pack that fails before anything is compressed; all that it says.
    fn refused(&self, extras: &[&str], more: &[&str]) -> String {
        let output = self.path("packed");
        let more = if more.contains(&"--lock") { more.to_vec() } else { [more, &["--output", text(&output)]].concat() };
        let ran = self.pack(extras, &more);
        assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
        assert!(!output.join("manifest.json.zst").exists());
        ran.stderr
    }
}

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Where the trees are kept, and what they are built from.
fn cache() -> PathBuf {
    tree(NEW).ancestors().nth(2).unwrap().to_owned()
}

/// The wheels of the real extensions, fetched once.
fn real_wheels() -> PathBuf {
    let directory = cache().join("wheels");
    let fetched = REAL.iter().all(|pin| {
        let name = pin.split("==").next().unwrap().replace('-', "_");
        let listed = fs::read_dir(&directory).map(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().replace('.', "_").starts_with(&name))
        });
        listed.unwrap_or(false)
    });
    if !fetched {
        // Tests beside this one see whole files, or none.
        let new = tempfile::Builder::new().prefix("wheels.").tempdir_in(cache()).unwrap();
        let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", text(new.path())];
        assert!(Command::new("python3").args(pip).args(REAL).status().unwrap().success(), "pip cannot fetch {REAL:?}");
        fs::create_dir_all(&directory).unwrap();
        for entry in fs::read_dir(new.path()).unwrap() {
            let wheel = entry.unwrap();
            fs::rename(wheel.path(), directory.join(wheel.file_name())).unwrap();
        }
    }
    directory
}

/// What a list of the manifest has under a key.
fn named<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().filter_map(|one| one[key].as_str()).collect()
}

#[test]
fn extras_and_kept_modules_come_with_the_release_and_stand_in_its_manifest() {
    let (author, desk) = (minions::author_of(&minions::LONG_TERM), Desk::new());
    desk.pack(&REAL, &["--lock"]).ok();
    let lock = fs::read_to_string(desk.lock()).unwrap();
    for pin in REAL {
        assert!(lock.contains(&format!("\n{pin} --hash=sha256:")), "{lock}");
    }
    let bundle = packed(&author, &desk);
    let host = Host::new(&author);
    let shown = host.sidle(&["--json", "inspect", text(&bundle)]).json();
    let manifest = &shown["releases"][0]["manifest"];
    assert_eq!(named(&manifest["extras"], "name"), ["saltext-vault", "saltext-zabbix"], "{}", manifest["extras"]);
    let vault = &manifest["extras"][0];
    assert_eq!(vault["licence"], "Apache Software License", "{vault}");
    assert!(lock.contains(vault["sha256"].as_str().unwrap()));
    for (kind, module) in [("module", "vault"), ("states", "vault"), ("sdb", "vault"), ("beacons", "vault_lease")] {
        assert!(vault["provides"][kind].as_array().unwrap().contains(&Value::from(module)), "{vault}");
    }
    assert_eq!(
        named(&manifest["kept"], "file"),
        [
            "salt/modules/tomcat.py",
            "salt/states/tomcat.py",
            "salt/modules/nginx.py",
            "salt/pillar/saltclass.py",
            "salt/beacons/wtmp.py"
        ]
    );
    assert_eq!(manifest["kept"][0]["origin"], format!("{SALT} {OLD}-1"));
    assert_eq!(manifest["kept"][0]["licence"], "Apache Software License 2.0");
    let components = named(&manifest["sbom"]["components"], "name");
    for name in ["python", "salt", "cryptography", "saltext-vault", "salt/modules/tomcat.py"] {
        assert!(components.contains(&name), "{name}: {components:?}");
    }
    let offers = &manifest["offers"]["module"]["modules"];
    assert!(offers["vault"].as_array().unwrap().contains(&"read_secret".into()));
    assert!(offers["tomcat"].as_array().unwrap().contains(&"ls".into()) && offers["test"].is_array());
    assert!(offers.get("mongodb").is_none(), "3008 dropped it");
    let words = host.sidle(&["inspect", text(&bundle)]).ok();
    assert!(
        words.contains("saltext-vault 1.8.0: ") && words.contains(&format!("states tomcat of {SALT} {OLD}-1")),
        "{words}"
    );
    // What hosts with the release before lack is little, and enough for them.
    let (part, repository) = (author.directory().join("part.sidle"), author.repository());
    let named = format!("{SALT}@{NEW}-2");
    host.sidle(&["export", text(&repository), &named, "--since", &format!("{NEW}-1"), "--output", text(&part)]).ok();
    let bytes = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(bytes(&part) * 20 < bytes(&bundle), "{} of {}", bytes(&part), bytes(&bundle));
    let refused = host.sidle(&["install", text(&part)]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains(&format!("install {SALT} {NEW}-1 first")), "{refused:?}");
    host.install(&author.salt(NEW)).ok();
    called(&host, &part);
}

/// A new revision of a release that is packed already, with all of it.
fn packed(author: &Author, desk: &Desk) -> PathBuf {
    let (key, repository, old, base) = (author.key(), author.repository(), author.salt(OLD), author.salt(NEW));
    let bundle = author.directory().join("with-layer.sidle");
    let lower = desk.refused(&REAL, &["--base", text(&base), "--repo", text(&repository), "--key", text(&key)]);
    assert!(lower.contains(&format!("has {SALT} {NEW}-1")) && lower.contains("a lower revision"), "{lower}");
    // Beside the release itself pip chooses what it chose beside the tree that the release was packed of.
    let locked = fs::read(desk.lock()).unwrap();
    fs::remove_file(desk.lock()).unwrap();
    desk.pack(&REAL, &["--lock", "--base", text(&base), "--repo", text(&repository)]).ok();
    assert_eq!(fs::read(desk.lock()).unwrap(), locked);
    let more = [
        "--base",
        text(&base),
        "--revision",
        "2",
        "--keep-modules",
        "tomcat,nginx,saltclass,wtmp",
        "--from",
        text(&old),
    ];
    let to = ["--repo", text(&repository), "--key", text(&key), "--output", text(&bundle)];
    let told = desk.pack(&REAL, &[&more[..], &to[..]].concat()).ok();
    assert!(told.contains("extra") && told.contains("kept"), "{told}");
    bundle
}

/// The installed release's own Salt runs what was added, and nothing of it was built or fetched here.
fn called(host: &Host, bundle: &Path) {
    host.install(bundle).ok();
    let configuration = host.path("etc/salt");
    fs::create_dir_all(&configuration).unwrap();
    let lines = ["cachedir", "pki_dir", "log_file", "sock_dir"].map(|key| format!("{key}: {}", text(&host.path(key))));
    let manager = "tomcat-manager.user: nobody\ntomcat-manager.passwd: nothing\n";
    let text_of_it = format!("id: layer\nfile_client: local\n{manager}{}\n", lines.join("\n"));
    fs::write(configuration.join("minion"), text_of_it).unwrap();
    let call = |words: &[&str]| {
        let arguments =
            ["run", SALT, "--release", &format!("{NEW}-2"), "salt-call", "--", "-c", text(&configuration), "--local"];
        host.sidle(&[&arguments[..], words].concat()).ok()
    };
    let listed = call(&["sys.list_modules"]);
    for module in ["vault", "zabbix", "tomcat"] {
        assert!(listed.lines().any(|line| line.trim() == format!("- {module}")), "{module}: {listed}");
    }
    let states = call(&["sys.list_state_modules", "tomcat"]);
    assert!(states.contains("- tomcat"), "{states}");
    without_a_master(host, &configuration, &call);
}

/// A masterless minion with a pillar and a beacon that 3008 dropped: what 3008 lacks is named, and with the modules the pillar is what it was.
fn without_a_master(host: &Host, configuration: &Path, call: &dyn Fn(&[&str]) -> String) {
    let classes = host.path("srv/saltclass");
    for (path, content) in [
        ("nodes/layer.yml", "environment: base\nclasses: [web]\n"),
        ("classes/web.yml", "pillars:\n  port: 8080\n  names: [one, two]\n"),
    ] {
        fs::create_dir_all(classes.join(path).parent().unwrap()).unwrap();
        fs::write(classes.join(path), content).unwrap();
    }
    let options = format!(
        "ext_pillar: [saltclass: [{{path: {}}}]]\nbeacons: {{wtmp: []}}\npillar_mask_output: False\n",
        text(&classes)
    );
    let minion = configuration.join("minion");
    fs::write(&minion, fs::read_to_string(&minion).unwrap() + &options).unwrap();
    let pillar = call(&["pillar.items"]);
    assert!(pillar.contains("8080") && pillar.contains("two"), "{pillar}");
    let mut call_of_old = Command::new(tree(OLD).join("bin/salt-call"));
    let old = call_of_old.arg("-c").arg(configuration).args(["--local", "pillar.items"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&old.stdout), pillar, "{old:?}");

    host.sidle(&["test-flip", SALT, &format!("{NEW}-2")]).ok();
    let lacks = host.sidle(&["rehearse", SALT, &format!("{NEW}-1")]);
    assert_eq!(lacks.code, Some(1), "{lacks:?}");
    for part in ["ext_pillar needs the pillar module saltclass", "beacon wtmp needs the beacon wtmp"] {
        assert!(lacks.stdout.contains(part), "{part}: {lacks:?}");
    }
}

#[test]
fn an_extra_that_does_not_fit_the_release_is_refused_by_name_with_the_reason() {
    let desk = Desk::new();
    let locking = |extra: &str| desk.refused(&[extra], &["--lock"]);
    let newer = locking("saltext-newer==1.0");
    assert!(newer.contains("cannot add the extra saltext-newer") && newer.contains("needs Python >=3.99"), "{newer}");
    let strict = locking("saltext-strict==1.0");
    assert!(strict.contains("saltext-strict 1.0: it needs PyYAML<5, and the release has PyYAML 6"), "{strict}");
    assert!(locking("saltext-good==7").contains("cannot add the extra saltext-good 7: the index has no such version"));
    assert!(!desk.lock().exists());
    let unlocked = desk.refused(&["saltext-good==1.0"], &[]);
    assert!(unlocked.contains(&format!("no lock of their hashes, site-{NEW}.lock")), "{unlocked}");
    desk.pack(&["saltext-good==1.0"], &["--lock"]).ok();
    let more = desk.refused(&["saltext-good==1.0", "saltext-broken==1.0"], &[]);
    assert!(more.contains("recipe and lock differ in saltext-broken==1.0"), "{more}");
    let good = fs::read_to_string(desk.lock()).unwrap();
    let (before, hash) = good.trim_end().rsplit_once("sha256:").unwrap();
    fs::write(desk.lock(), format!("{before}sha256:{}\n", "0".repeat(64))).unwrap();
    let wrong = desk.refused(&["saltext-good==1.0"], &[]);
    assert!(wrong.contains(&format!("cannot add saltext-good==1.0: its SHA-256 is {hash}")), "{wrong}");
    for (extra, reason) in [
        (
            "saltext-broken==1.0",
            "the extra saltext-broken 1.0: saltext_broken/modules/saltext_broken.py: ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("saltext-dead==1.0", "cannot add the extra saltext-dead 1.0: the tree's Python cannot import it"),
    ] {
        desk.pack(&[extra], &["--lock"]).ok();
        let broken = desk.refused(&[extra], &[]);
        assert!(broken.contains(reason), "{broken}");
    }
}

#[test]
fn a_module_that_the_new_loader_cannot_load_is_not_kept_and_is_named() {
    let desk = Desk::new();
    let old = packaged_tree(OLD);
    let refused = |name: &str, from: &Path| desk.refused(&[], &["--keep-modules", name, "--from", text(from)]);
    let unknown = refused("tomkat", &old);
    assert!(unknown.contains("cannot keep the module tomkat") && unknown.contains("did you mean tomcat?"), "{unknown}");
    let own = refused("states.file", &old);
    assert!(own.contains("the new release has states file of its own"), "{own}");
    // An older release as small as it can be: Salt's directory with a module that the new Python cannot import, and one that misses a helper.
    let made = desk.path("older");
    let salt = made.join("lib/python3.10/site-packages/salt");
    for (path, content) in [
        ("modules/wants.py", "import nowhere_at_all\n\n\ndef go():\n    return 1\n"),
        ("modules/uses.py", "import salt.utils.files\n\n\ndef go():\n    return salt.utils.files.forgotten_helper()\n"),
        ("utils/files.py", "def forgotten_helper():\n    return 1\n"),
    ] {
        fs::create_dir_all(salt.join(path).parent().unwrap()).unwrap();
        fs::write(salt.join(path), content).unwrap();
    }
    let wants = refused("wants", &made);
    assert!(wants.contains("the kept module wants: salt/modules/wants.py: ModuleNotFoundError"), "{wants}");
    let uses = refused("uses", &made);
    assert!(uses.contains("uses salt.utils.files.forgotten_helper, which the new release does not have"), "{uses}");
}
