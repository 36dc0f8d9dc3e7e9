//! A chain of states whose job restarts its own minion and sets its next link down afterwards: the link waits for the start after that.

use super::{ended, overlap};
use crate::support::eventually;
use crate::support::scene::{ID, Scene, Wanted};
use crate::support::stage::SIDLE;
use std::fs;
use std::path::Path;

const RELEASE: &str = "3006.30";
/// For what a reactor does, and a state.
const LINK_SECONDS: u64 = 60;

/// At each start of the minion its master asks for what waits.
const REACTOR: &str = "fileserver_list_cache_time: 0\nreactor:\n  - salt/minion/*/start:\n    - salt://resume.sls\n";
const RESUME: &str = "resume:\n  local.chain.resume:\n    - tgt: {{ data['id'] }}\n";
/// What comes next waits in a file; each look for it leaves a word.
const CHAIN: &str = "import os

def then(place, word):
    with open(place + '.next', 'w') as file:
        file.write(word)
    return True

def _note(place, word):
    with open(place, 'a') as file:
        file.write(word + '\\n')

def resume():
    place = os.path.join(__opts__['root_dir'], 'chain')
    _note(place, 'looked')
    if not os.path.exists(place + '.next'):
        return {}
    with open(place + '.next') as file:
        word = file.read()
    os.remove(place + '.next')
    _note(place, word)
    return True
";

/// Waits until these words were left, and no others.
fn has_run(scene: &Scene, place: &Path, words: &str) {
    eventually(LINK_SECONDS, &format!("the chain has run {words}"), || {
        let ran = fs::read_to_string(place).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        if ran == words { Ok(()) } else { Err(format!("{ran}\n{}", scene.logs())) }
    });
}

/// The new process's start event raced with what the job set down next: a chunk ran before the reboot that it was to follow.
#[test]
fn what_a_job_sets_down_after_it_restarted_its_minion_waits_for_the_next_start() {
    let scene = Scene::with(&Wanted { transport: REACTOR, ..Wanted::of(&[RELEASE]) });
    scene.marks.booted(1);
    let place = scene.host.path("chain");
    let (file, root) = (place.display(), scene.host.path(""));
    let one = format!(
        "ran:\n  cmd.run:\n    - name: echo one >>{file}\n    - order: 1\n\
         act:\n  cmd.run:\n    - name: {SIDLE} --root {} restart salt-minion\n    - order: 2\n\
         then:\n  module.run:\n    - chain.then:\n      - place: {file}\n      - word: two\n    - order: 3\n",
        root.display()
    );
    let master = scene.master();
    for (name, content) in [("_modules/chain.py", CHAIN), ("resume.sls", RESUME), ("one.sls", &one)] {
        master.file(name, content);
    }
    let said = master.call(ID, &["saltutil.sync_modules"]);
    assert!(said.contains("modules.chain"), "{said}");

    master.publish(ID, &["state.apply", "one"]);
    let waits = scene.host.path("chain.next");
    has_run(&scene, &place, "one looked");
    eventually(LINK_SECONDS, "the next link waits", || {
        let ran = fs::read_to_string(&place).unwrap_or_default();
        assert!(!ran.contains("two"), "the restart's own start event met what was set down after it: {ran}");
        fs::metadata(&waits).map(drop).map_err(|error| error.to_string())
    });
    let last = ended(&scene);
    assert_eq!((&last["purpose"], &last["result"]), (&"restart".into(), &"committed".into()), "{last}");

    overlap(&scene, "restart", &[]);
    has_run(&scene, &place, "one looked looked two");
}
