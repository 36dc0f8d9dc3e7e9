//! What is known of the demonstration agent.

use crate::support::eventually;
use sidle::agent::{Activity, Agent as _, AgentSettings, Subject};
use sidle::demo::DemoAgent;
use sidle::os::process::{Identity, Input, Program};
use std::fs;
use std::path::Path;

#[test]
fn the_demonstration_agent_is_known_while_it_works_and_after_its_end() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("demo.conf"), "state=run\n").unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("bundles/demo-agent/tree/bin/demo-agent");
    let mut child = Program::new(program).argument("-c").argument(root.path()).start(Input::Null).unwrap();
    let leader = Identity::of(child.id()).unwrap().unwrap();
    let agent = DemoAgent::new(&AgentSettings::new(root.path())).unwrap();
    eventually(20, "the agent is healthy", || agent.health(Subject::unguarded(&leader)).lacks(&[]).map_or(Ok(()), Err));
    assert_eq!(agent.activity(Subject::unguarded(&leader)), Activity::Idle);
    assert_eq!(agent.core(Subject::unguarded(&leader)).unwrap(), std::slice::from_ref(&leader));
    assert_eq!(agent.watches().len(), 3);

    let state = root.path().join("run");
    fs::write(state.join(".nap"), "sleep 1\n").unwrap();
    fs::rename(state.join(".nap"), state.join("jobs/nap")).unwrap();
    let seen = agent.activity(Subject::unguarded(&leader));
    assert!(matches!(&seen, Activity::Busy(jobs) if jobs[0].id == "nap"), "a waiting job is one: {seen:?}");
    eventually(20, "the job runs", || match agent.activity(Subject::unguarded(&leader)) {
        Activity::Busy(jobs) if jobs[0].pid.is_some() => Ok(()),
        other => Err(format!("{other:?}")),
    });
    eventually(20, "it is idle again", || match agent.activity(Subject::unguarded(&leader)) {
        Activity::Idle => Ok(()),
        other => Err(format!("{other:?}")),
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(agent.health(Subject::unguarded(&leader)).lacks(&[]).is_some());
    assert!(agent.core(Subject::unguarded(&leader)).is_err());
}
