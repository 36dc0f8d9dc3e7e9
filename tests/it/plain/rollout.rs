//! A host belongs to one rollout at a time, and obeys no driver of it that was taken for dead.

use crate::support::stage::{DEMO, two_releases};

#[test]
fn a_second_rollout_and_an_older_epoch_are_refused_and_a_person_is_not() {
    let (host, _author) = two_releases();
    let _supervisor = host.supervise();
    let order = |release: &str, id: &str, epoch: &str| {
        host.sidle(&["switch", DEMO, release, "--rollout", id, "--epoch", epoch])
    };
    host.sidle(&["rollout", "claim", DEMO, "r1", "--epoch", "2"]).ok();
    assert!(host.sidle(&["status", DEMO]).ok().contains("  rollout    r1 (epoch 2), until "));
    let refused = order("1.0-1", "r2", "7");
    assert!(refused.code == Some(12) && refused.stderr.contains("it belongs to rollout r1 (epoch 2)"), "{refused:?}");
    let late = order("1.0-1", "r1", "1");
    assert!(late.code == Some(12) && late.stderr.contains("another driver goes on with epoch 2"), "{late:?}");
    for words in
        [&["rollout", "claim", DEMO, "r2", "--epoch", "1"][..], &["switch", DEMO, "--rollout", "r2", "--epoch", "1"]]
    {
        let dry = host.sidle(&[words, &["--dry-run"]].concat());
        assert_eq!(dry.code, Some(12), "{dry:?}");
    }
    let far = host.sidle(&["rollout", "claim", DEMO, "r1", "--epoch", &u64::MAX.to_string()]);
    assert!(far.code == Some(12) && far.stderr.contains("is more than 1000000 above 2"), "{far:?}");
    assert_eq!(host.sidle(&["switch", DEMO, "--rollout", "r1"]).code, Some(2), "a rollout without its epoch");
    assert_eq!(host.current(), None, "nothing was switched");
    order("1.0-1", "r1", "2").ok();
    // Another driver takes over by its first order; the one before is fenced from then on.
    order("1.1-1", "r1", "3").ok();
    assert_eq!(order("1.0-1", "r1", "2").code, Some(12));
    assert_eq!(host.sidle(&["restart", DEMO, "--rollout", "r1", "--epoch", "2"]).code, Some(12));
    assert_eq!(host.sidle(&["rollback", DEMO, "--rollout", "r2", "--epoch", "9"]).code, Some(12));
    assert_eq!(host.current().as_deref(), Some("1.1-1"));
    // A person may always act.
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();

    assert_eq!(host.sidle(&["rollout", "unclaim", DEMO, "r2"]).code, Some(12));
    host.sidle(&["rollout", "unclaim", DEMO, "r1"]).ok();
    assert_eq!(host.sidle(&["rollout", "unclaim", DEMO, "r1"]).code, Some(3));
    order("1.1-1", "r2", "1").ok();
    assert_eq!(host.status()["rollout"]["id"], "r2");
}

#[test]
fn a_claim_ends_by_itself() {
    let (host, _author) = two_releases();
    host.sidle(&["rollout", "claim", DEMO, "r1", "--epoch", "2", "--for", "1s"]).ok();
    let other = || host.sidle(&["rollout", "claim", DEMO, "r2", "--epoch", "1"]);
    assert_eq!(other().code, Some(12));
    crate::support::eventually(10, "the claim has expired", || match other().code {
        Some(0) => Ok(()),
        code => Err(format!("{code:?}")),
    });
}
