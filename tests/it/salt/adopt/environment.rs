//! What the package's unit gives its minion is carried over, what can't be is refused, and giving back costs what it says.

use super::{GivenBack, NEW, Packaged};
use crate::support::eventually;
use crate::support::scene::ID;
use sidle::os::clock;
use std::fs;
use std::path::Path;

const CARRIED: &str = "LimitNOFILE=100000\nEnvironment=HTTPS_PROXY=http://me:secret@proxy:3128\n\
    EnvironmentFile=-/etc/default/salt-minion\n";

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn what_the_unit_sets_is_carried_over_and_giving_back_waits_for_jobs_and_tells_its_cost() {
    let packaged = Packaged::new(&[NEW]);
    let (scene, host) = (&packaged.scene, &packaged.scene.host);
    put(
        &host.path("usr/lib/systemd/system/salt-minion.service"),
        "[Service]\nType=notify\nLimitNOFILE=8192\nExecStart=/usr/bin/salt-minion\n",
    );
    let (limit, rest) = CARRIED.split_once('\n').unwrap();
    let drop_ins = host.path("etc/systemd/system/salt-minion.service.d");
    put(&drop_ins.join("limit.conf"), &format!("[Service]\n{limit}\nMemoryMax=2G\n"));
    put(&drop_ins.join("proxy.conf"), &format!("[Service]\n{rest}"));

    // As whom it runs is not what its configuration says: the next one would be another user's.
    let configuration = scene.configuration().join("minion");
    let text = fs::read_to_string(&configuration).unwrap();
    fs::write(&configuration, text.replace("user: root", "user: daemon")).unwrap();
    let refused = packaged.adopt(&[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("it runs as root, and a release would run as daemon"), "{refused:?}");
    fs::write(&configuration, text).unwrap();

    let told = packaged.adopt(&["--dry-run"]).ok();
    for part in ["LimitNOFILE=100000", "HTTPS_PROXY=…", "-/etc/default/salt-minion", "leave to you", "MemoryMax=2G"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("secret"), "{told}");
    let carried = host.path("etc/systemd/system/sidle@salt-minion.service.d/adopted.conf");
    assert!(!carried.exists());
    let adopted = packaged.adopt(&["--mode", "idle"]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}\n{}", packaged.logs());
    let text = fs::read_to_string(&carried).unwrap();
    assert!(text.ends_with(&format!("[Service]\n{CARRIED}")), "{text}");

    let told = scene.verb("unadopt", &["--dry-run"]).ok();
    assert!(told.contains("would do every job a second time") && told.contains("is missed"), "{told}");
    scene.master().publish(ID, &["test.sleep", "25"]);
    let busy = || scene.master().call(ID, &["saltutil.running"]).contains("test.sleep");
    eventually(20, "the job runs", || if busy() { Ok(()) } else { Err("not yet".to_owned()) });
    let refused = scene.verb("unadopt", &["--deadline", "1s"]);
    assert_eq!(refused.code, Some(11), "{refused:?}");
    assert!(refused.stdout.contains("test.sleep"), "{refused:?}");
    assert!(carried.exists() && packaged.version().contains(NEW));

    let began = clock::since_boot();
    let released = scene.verb("unadopt", &[]);
    let took = clock::since_boot().saturating_sub(began);
    let _given_back = GivenBack(scene);
    assert_eq!(released.code, Some(0), "{released:?}\n{}", packaged.logs());
    println!("{}\nafter {took:?} in all", released.stdout);
    let parts = ["downtime ", "salt-run jobs.list_jobs start_time='20", "a master names what was published"];
    assert!(parts.iter().all(|part| released.stdout.contains(part)), "{released:?}");
    assert!(!busy(), "the job was left to the other minion");
    assert!(!carried.exists() && drop_ins.join("proxy.conf").exists());
}
