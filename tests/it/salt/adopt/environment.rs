//! What would run as another user is refused, and giving back waits for jobs and tells its cost.

use super::{GivenBack, NEW, Packaged};
use crate::support::eventually;
use crate::support::scene::ID;
use crate::support::stage::SIDLE;
use sidle::os::clock;
use std::fs;

#[test]
fn another_user_is_refused_and_giving_back_waits_for_jobs_and_tells_its_cost() {
    let packaged = Packaged::new(&[NEW]);
    let scene = &packaged.scene;
    // It runs as another user than its configuration says: a release would run as that user.
    let configuration = scene.configuration().join("minion");
    let text = fs::read_to_string(&configuration).unwrap();
    fs::write(&configuration, text.replace("user: root", "user: daemon")).unwrap();
    let refused = packaged.adopt(&[]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("it runs as root, and a release would run as daemon"), "{refused:?}");
    fs::write(&configuration, text).unwrap();
    // A job of the minion that is to be taken over: one waited for the other, without an end.
    let command = format!("{SIDLE} --root {} adopt {}", scene.host.root().display(), scene.package);
    let said = scene.master().call(ID, &["cmd.run", &command]);
    assert!(said.contains("this command runs in a job of that agent"), "{said}");

    // Here no unit could give it to the release; the other variable is the running minion's own.
    let setup = scene.host.path("etc/default/salt-setup");
    fs::create_dir_all(setup.parent().unwrap()).unwrap();
    fs::write(&setup, "SALT_HOME=/srv/home\nSALT_EXTRAS_DIR=/srv/other\n").unwrap();
    let warning = format!("{} names SALT_HOME=/srv/home, which the running agent does not have", setup.display());
    let told = packaged.adopt(&["--dry-run"]).ok();
    assert!(told.contains(&warning) && !told.contains("/srv/other"), "{told}");
    let adopted = packaged.adopt(&["--mode", "idle"]);
    assert_eq!(adopted.code, Some(0), "{adopted:?}\n{}", packaged.logs());
    assert!(adopted.stderr.contains(&warning) && !adopted.stderr.contains("/srv/other"), "{adopted:?}");

    let told = scene.verb("unadopt", &["--dry-run"]).ok();
    assert!(told.contains("would do every job a second time") && told.contains("is missed"), "{told}");
    scene.master().publish(ID, &["test.sleep", "60"]);
    let busy = || scene.master().call(ID, &["saltutil.running"]).contains("test.sleep");
    eventually(20, "the job runs", || if busy() { Ok(()) } else { Err("not yet".to_owned()) });
    let refused = scene.verb("unadopt", &["--deadline", "1s"]);
    assert_eq!(refused.code, Some(11), "{refused:?}");
    assert!(refused.stdout.contains("test.sleep"), "{refused:?}");
    assert!(packaged.version().contains(NEW));

    let began = clock::since_boot();
    let released = scene.verb("unadopt", &[]);
    let took = clock::since_boot().saturating_sub(began);
    let _given_back = GivenBack(scene);
    assert_eq!(released.code, Some(0), "{released:?}\n{}", packaged.logs());
    println!("{}\nafter {took:?} in all", released.stdout);
    let command = format!("salt-run sidle.missed {ID} since=20");
    let parts = ["downtime ", &command, "salt-run jobs.list_jobs start_time='20", "a master names what was published"];
    assert!(parts.iter().all(|part| released.stdout.contains(part)), "{released:?}");
    let downtimes = scene.host.sidle(&["--json", "missed", scene.package]).json()["instances"][0]["downtimes"].clone();
    let causes: Vec<&str> = downtimes.as_array().unwrap().iter().map(|each| each["cause"].as_str().unwrap()).collect();
    assert_eq!(causes, ["switch", "unadopted"], "{downtimes:#}");
    assert!(!busy(), "the job was left to the other minion");
}
