//! Rehearsing the demonstration agent: `share/demo-agent/rehearsal` in a release's tree says how that goes, and after it the host's own
//! `rehearsal-RELEASE` in the configuration directory. Without the first nothing is rehearsed.
//!
//! Each line is `refuse: REASON`, `unknown: REASON`, `extra: TEXT`, `note: TEXT`, `hang` or `crash`.

use crate::os::file;
use crate::os::process::Program;
use crate::rehearsal::{Performance, Rehearsal, Rehearser, Role, Scene};
use std::path::Path;

/// The file in a release's tree.
const SCRIPT: &str = "share/demo-agent/rehearsal";

/// What plays the lines.
const PLAYER: &str = r#"for script; do
    [ -e "$script" ] || continue
    while read -r word rest; do
        case $word in
        hang) exec sleep 600 ;;
        crash) echo "crashed as told" >&2; exit 1 ;;
        *) echo "$word $rest" ;;
        esac
    done <"$script"
done"#;

/// The demonstration agent's rehearser.
pub static DEMO: DemoRehearser = DemoRehearser;

/// Rehearses demonstration agents.
#[derive(Debug)]
pub struct DemoRehearser;

impl Rehearser for DemoRehearser {
    fn program(&self, scene: &Scene, role: Role, _scratch: &Path) -> Option<Program> {
        let tree = &scene.part(role)?.tree;
        let script = tree.join(SCRIPT);
        file::open(&script).ok()?;
        let release = tree.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let of_host = scene.config_directory.join(format!("rehearsal-{release}"));
        Some(Program::new("/bin/sh").argument("-c").argument(PLAYER).argument("sh").argument(script).argument(of_host))
    }

    fn judge(&self, trial: Option<&Performance>, former: Option<&Performance>) -> Rehearsal {
        let lines = |performance: &Performance| {
            let text = String::from_utf8_lossy(&performance.output).into_owned();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let Some(trial) = trial else { return Rehearsal::default() };
        let before = former.map(lines).unwrap_or_default();
        let mut rehearsal = Rehearsal::default();
        if let Some(failure) = &trial.failure {
            let why = format!("cannot rehearse: {failure}: {}", trial.errors);
            let both = former.is_some_and(|former| former.failure.is_some());
            if both { &mut rehearsal.unknown } else { &mut rehearsal.blocking }.push(why);
        }
        for line in lines(trial).into_iter().filter(|line| !before.contains(line)) {
            match line.split_once(": ") {
                Some(("refuse", reason)) => rehearsal.blocking.push(reason.to_owned()),
                Some(("unknown", reason)) => rehearsal.unknown.push(reason.to_owned()),
                Some(("extra", text)) => rehearsal.extras.push(text.to_owned()),
                Some(("note", text)) => rehearsal.notes.push(text.to_owned()),
                _ => {}
            }
        }
        rehearsal
    }

    fn judge_again(&self, again: Option<&Performance>) -> Rehearsal {
        self.judge(again, None)
    }
}
