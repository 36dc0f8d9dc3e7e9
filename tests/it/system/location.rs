//! What of `plain::location` needs root or a package: see there.

use crate::plain::location::*;
use crate::support::stage::{Author, DEMO, Host, text};
use std::fs;

#[test]
fn what_is_foretold_of_a_directory_is_what_systemd_tmpfiles_does_to_it() {
    // An age that everything has: `X` takes the age of a directory above, and not by which time it is told.
    let aged = |line: &str| line.replace("OLD", "0");
    let cases: [Case; 17] = [
        (&[], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD")], "opt/sidle", "cleaned"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - -")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - infinity")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nx /opt/sidle")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nx /opt/s*")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nx /opt/*")], "opt/.sidle", "cleaned"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nX /opt/sidle")], "opt/sidle", "cleaned"),
        (&[("etc/tmpfiles.d/a.conf", "d /opt - - - OLD\nd /opt/sidle - - - -")], "opt/sidle/a", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "e /opt/* - - - OLD")], "opt/sidle/a", "cleaned"),
        (&[("etc/tmpfiles.d/a.conf", "d! /opt - - - OLD")], "opt/sidle", "left alone"),
        (&[("etc/tmpfiles.d/a.conf", "D /opt - - - -")], "opt/sidle", "emptied"),
        (&[("etc/tmpfiles.d/a.conf", "R! /opt/s*")], "opt/sidle/a", "emptied"),
        // Precedence: a name in /etc masks the same name, the first line for a path counts, in the order of the names.
        (
            &[("etc/tmpfiles.d/a.conf", ""), ("usr/lib/tmpfiles.d/a.conf", "d /opt - - - OLD")],
            "opt/sidle",
            "left alone",
        ),
        (
            &[("usr/lib/tmpfiles.d/b.conf", "d /opt - - - OLD"), ("etc/tmpfiles.d/a.conf", "d /opt - - - -")],
            "opt/a",
            "left alone",
        ),
        (
            &[("usr/lib/tmpfiles.d/a.conf", "d /opt - - - OLD"), ("etc/tmpfiles.d/b.conf", "d /opt - - - -")],
            "opt/a",
            "cleaned",
        ),
        (&[("usr/lib/tmpfiles.d/a.conf", "d \"/opt/a b\" - - - OLD")], "opt/a b", "cleaned"),
    ];
    for (fragments, path, expected) in cases {
        let fragments: Vec<(&str, String)> = fragments.iter().map(|(name, text)| (*name, aged(text))).collect();
        let fragments: Vec<(&str, &str)> = fragments.iter().map(|(name, text)| (*name, text.as_str())).collect();
        assert_eq!(really(&fragments, path), (expected, expected), "{path} by {fragments:?}");
    }
}

#[test]
fn cleaning_leaves_the_running_release_alone_and_what_another_lost_is_found_and_mended_offline() {
    let author = Author::new();
    let bundles = [author.release("1.0", "good"), author.release("1.1", "good")];
    let host = Host::new(&author);
    put(&host.path(RULES).join("site.conf"), &format!("d /opt - - - {AGED}\n"));
    for bundle in &bundles {
        host.sidle(&["install", text(bundle), "--force-place"]).ok();
    }
    let supervisor = host.supervise();
    host.sidle(&["switch", DEMO, "1.0-1"]).ok();
    // As the stamps of unpacked bundles are: written anew, and all that it says of the other files is that they were there once.
    let stamp = host.path("opt/sidle/demo-agent/versions/1.1-1/stamp");
    age(&host.path("opt"));
    fs::write(&stamp, "1.1-1").unwrap();
    tmpfiles(&host.root(), &["--clean"]);

    let running = host.sidle(&["verify", DEMO, "1.0-1", "--full"]);
    assert_eq!(running.code, Some(0), "the running release was touched: {running:?}");
    assert_eq!(host.answering("after"), "1.0");
    // The control: what nobody leased is gone, its stamp is there.
    assert!(stamp.exists() && !host.path("opt/sidle/demo-agent/versions/1.1-1/bin").exists());
    fs::remove_file(&stamp).unwrap();
    let lost = host.sidle(&["verify", DEMO, "1.1-1"]);
    assert_eq!(lost.code, Some(6), "{lost:?}");
    let refused = host.sidle(&["switch", DEMO, "1.1-1"]);
    assert_eq!(refused.code, Some(6), "{refused:?}");
    host.sidle(&["repair", DEMO, "1.1-1", "--from", text(&bundles[1])]).ok();
    host.sidle(&["switch", DEMO, "1.1-1"]).ok();
    assert_eq!(host.answering("mended"), "1.1");
    drop(supervisor);
}

#[test]
fn mount_a_host_of_its_own_refuses_what_does_not_stay_or_does_not_work() {
    let author = Author::new();
    let bundle = author.release("1.0", "good");
    let host = Overlaid::new();
    let cases = [
        ("mount -t tmpfs -o mode=0755 tmpfs merged/opt/sidle", "/opt/sidle is in memory (tmpfs)"),
        ("mount -t tmpfs -o ro,mode=0755 tmpfs merged/opt/sidle", "/opt/sidle is mounted read-only"),
        ("mount --bind merged/opt merged/opt; mount -o remount,bind,noexec merged/opt", "mounted with noexec"),
        ("export TRANSACTIONAL_UPDATE=true", "snapshot of a transactional update"),
        (
            "mkdir -p merged/usr/keep; touch merged/run/ostree-booted; rmdir merged/opt/sidle; ln -s /usr/keep merged/opt/sidle",
            "/usr/keep/demo-agent/versions/1.0-1 belongs to the operating system's image",
        ),
        (
            "rm merged/run/ostree-booted; mkdir -p merged/var/tmp/sidle; ln -sfn /var/tmp/sidle merged/opt/sidle",
            "systemd-tmpfiles removes what is old in /var/tmp/sidle/demo-agent/versions/1.0-1: the usual rule for /var/tmp",
        ),
    ];
    for (preparation, told) in cases {
        let refused = host.install(&bundle, &author, preparation);
        assert!(refused.code == Some(1) && refused.stderr.contains(told), "{told}: {refused:?}");
        assert!(!host.path("var/lib/sidle/demo-agent").exists(), "{told}: something was made");
    }
    let good = host.install(&bundle, &author, "rm merged/opt/sidle");
    assert_eq!(good.code, Some(0), "{good:?}");
}
