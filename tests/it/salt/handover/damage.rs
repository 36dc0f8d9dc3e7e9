//! The incident, in the middle of the day: a third of the running minion's files is deleted under a stream of jobs.

use super::{AROUND_SECONDS, OLD};
use crate::support::inside::Contents;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stream::Plan;
use crate::support::trees;
use crate::support::{come_first, eventually};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MENDED_SECONDS: u64 = 60;
/// Of so many files, some are deleted: nearly a third.
const OF: usize = 10;
const DELETED: usize = 3;

/// Modules that nothing has used before, each with something of its own in the answer.
const CALLS: [(&[&str], &str); 6] = [
    (&["hashutil.sha256_digest", "abc"], "ba7816bf"),
    (&["random.hash", "abc", "algorithm=md5"], "900150983cd2"),
    (&["network.is_loopback", "127.0.0.1"], "True"),
    (&["sqlite3.sqlite_version"], "3."),
    (&["slsutil.merge", "{a: 1}", "{b: 2}"], "b"),
    (&["disk.usage"], "capacity"),
];

fn deleted(whole: &Contents) -> Vec<&String> {
    let files = whole.iter().filter(|(_, (kind, ..))| *kind == 'f').map(|(path, _)| path);
    files.enumerate().filter(|(number, _)| number % OF < DELETED).map(|(_, path)| path).collect()
}

/// A job's own process imports what it needs: with a third of the tree gone it ended without an answer.
#[test]
fn a_third_of_the_running_tree_is_deleted_and_mended_while_every_job_is_answered() {
    come_first();
    let scene = Scene::with(&Wanted::of(&[OLD]));
    // What no other release has comes from the repository, which may be a directory.
    let repository = format!("[repository]\nurl = \"file://{}\"\n", scene.author.repository().display());
    fs::write(scene.host.path("etc/sidle/conf.d/repository.toml"), repository).unwrap();
    let tree: PathBuf = scene.host.path(&format!("opt/sidle/salt-minion/versions/{OLD}-1"));
    let whole = trees::contents(&tree);
    let damage = deleted(&whole);
    assert!(damage.len() > 2000, "only {} files", damage.len());
    let before = scene.status()["supervisor"]["agent"]["leader"].clone();

    let stream = scene.stream(&Plan::short(1.0));
    stream.run(AROUND_SECONDS);
    let begun = Instant::now();
    let window_from = stream.age();
    for path in &damage {
        // What is mended already may be deleted only once; what is not there any more is deleted.
        let _ = fs::remove_file(tree.join(Path::new(path)));
    }
    eventually(MENDED_SECONDS, "the tree is whole again", || {
        let missing = damage.iter().filter(|path| !tree.join(path).exists()).count();
        if missing == 0 && trees::contents(&tree) == whole {
            Ok(())
        } else {
            Err(format!("{missing} files are missing"))
        }
    });
    println!("{} files were deleted and mended in {:.1} s", damage.len(), begun.elapsed().as_secs_f64());
    let window_until = stream.age();
    let answers = scene.master().calls(15, ID, &CALLS.map(|(call, _)| call));
    for (answer, (call, needle)) in answers.iter().zip(CALLS) {
        assert!(answer.contains(needle), "{call:?}: {answer}");
    }
    stream.run(AROUND_SECONDS);
    let report = stream.end();
    println!("{} jobs, {} of them answered with an error", report.published, report.lost.len());
    assert_eq!(report.returned, report.published, "every job is answered: {:#?}", report.lost);
    for job in report.lost.iter().chain(&report.unfinished) {
        let within = window_from - 1.0..window_until + 1.0;
        assert!(job.returned && within.contains(&job.at), "an error outside of {within:?}: {job:#?}");
    }
    assert_eq!(report.doubled(), 0, "{report:#?}");
    assert_eq!(scene.status()["supervisor"]["agent"]["leader"], before, "the minion is the same process");
    let history = scene.host.sidle(&["--json", "history", "salt-minion"]).json();
    let incidents = history["incidents"].as_array().unwrap();
    assert!(incidents.iter().any(|incident| incident["occasion"] == "watch"), "{incidents:?}");
}
