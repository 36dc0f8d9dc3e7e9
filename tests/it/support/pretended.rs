//! What a release that only calls itself a minion's says that Salt makes of a configuration: see `Author::posing_as_minion`.

use serde_json::{Value, json};

/// The answer about a configuration that sets `options`. It rests on no known files, so sidle asks anew each time.
pub fn answer(options: Value) -> Value {
    let master = json!({"name": "salt.example", "host": "salt.example", "request_port": 4506, "publish_port": null});
    let mut all = json!({
        "cachedir": "/var/cache/salt/minion", "extension_modules": "/var/cache/salt/minion/extmods", "pki_dir": "/etc/salt/pki/minion",
        "sock_dir": "/var/run/salt/minion", "pidfile": "/var/run/salt-minion.pid", "log_file": "/var/log/salt/minion", "id": "web1",
        "user": "root", "transport": "zeromq", "multiprocessing": true, "ipv6": false, "masters": [master], "need": "all",
        "masters_unknown": null
    });
    let Value::Object(options) = options else { panic!("{options} are no options") };
    all.as_object_mut().unwrap().extend(options);
    json!({
        "schema": 1, "version": "3006.30", "failure": null, "problems": [], "generated": null, "id_file": null, "digest": null, "files": null,
        "options": all
    })
}
