//! What programs get that sidle starts: where they work, which variables they know, and whose files they run.

use crate::support::pretended;
use crate::support::stage::{Author, DEMO, Host, SIDLE, text};
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Variables by which loaders, interpreters, shells and Salt run or load what a stranger wrote.
pub const HOSTILE: [&str; 31] = [
    "LD_PRELOAD_",
    "LD_LIBRARY_PATH",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "MALLOC_CHECK_",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PERL5LIB",
    "RUBYLIB",
    "RUBYOPT",
    "BASH_ENV",
    "ENV",
    "BASH_FUNC_ls%%",
    "SHELLOPTS",
    "PS4",
    "IFS",
    "CDPATH",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "OPENSSL_ENGINES",
    "SALT_EXTRAS_DIR",
    "SIDLE_GATE",
    "GIT_SSH",
    "LESSOPEN",
    "HOSTALIASES",
    "PIP_INDEX_URL",
    "PIP_TARGET",
    "SSL_CERT_FILE",
    "NODE_OPTIONS",
    "JAVA_TOOL_OPTIONS",
];

/// What a program may know beside what its release sets: what docs/hosts.md lists.
pub fn may_pass(name: &str) -> bool {
    const USUAL: [&str; 16] = [
        "PATH",
        "HOME",
        "TMPDIR",
        "USER",
        "LOGNAME",
        "SUDO_USER",
        "SUDO_UID",
        "SUDO_GID",
        "LANG",
        "LANGUAGE",
        "TERM",
        "COLORTERM",
        "NO_COLOR",
        "COLUMNS",
        "LINES",
        "TZ",
    ];
    USUAL.contains(&name)
        || name.starts_with("LC_")
        || name.to_lowercase().ends_with("_proxy")
        // What sidle itself tells an agent, and what tests tell sidle.
        || (name.starts_with("SIDLE_") && name != "SIDLE_GATE_")
}

fn hostile() -> Vec<(&'static str, &'static str)> {
    HOSTILE.iter().map(|name| (*name, "() { touch /nowhere; }")).chain([("LANG", "C.UTF-8"), ("KEPT", "no")]).collect()
}

/// The names of variables that a program printed with `env -0`.
fn names(printed: &str) -> BTreeSet<String> {
    printed.split('\0').filter_map(|pair| Some(pair.split_once('=')?.0.to_owned())).collect()
}

#[test]
fn a_release_knows_no_variable_that_is_not_on_the_list() {
    let author = Author::new();
    let bundle = author.release_with("1.0", |tree| {
        fs::write(tree.join("bin/demo-agent"), "#!/bin/sh\nexec /usr/bin/env -0\n").unwrap();
    });
    let host = Host::new(&author);
    host.install(&bundle).ok();
    let run = |more: &[&str]| {
        let words = [more, &["run", DEMO, "demo-agent", "--release", "1.0-1"]].concat();
        names(&host.sidle_with(&words, &hostile()).ok())
    };
    // The shell of the release sets PWD, and may set others.
    let of_the_shell = ["PWD", "OLDPWD", "SHLVL", "_"];
    let known = run(&[]);
    let surplus: Vec<&String> =
        known.iter().filter(|name| !may_pass(name) && !of_the_shell.contains(&name.as_str())).collect();
    assert!(surplus.is_empty() && !known.contains("SIDLE_GATE"), "{surplus:?}");
    assert!(known.contains("LANG") && known.contains("PATH"), "{known:?}");
    assert!(
        run(&["--pass-environment", "KEPT,OPENSSL_*"]).is_superset(&["KEPT", "OPENSSL_CONF"].map(str::to_owned).into())
    );
    let settings = format!("[instances.{DEMO}]\npass_environment = [\"PIP_*\"]\n");
    fs::write(host.path("etc/sidle/conf.d/environment.toml"), settings).unwrap();
    let passed = run(&[]);
    assert!(passed.contains("PIP_TARGET") && !passed.contains("KEPT"), "{passed:?}");
}

/// `SALT_HOME` of the recipe replaced that of the host's unit: what a host's jobs found there was lost with the first release.
#[test]
fn where_a_host_keeps_its_files_is_for_the_host_to_say_and_not_for_a_recipe() {
    let author = Author::new();
    let bundle = author.printing_its_environment("1.0", "SALT_HOME = \"/of/the/recipe\", OTHER = \"of the recipe\"");
    let host = Host::new(&author);
    host.install(&bundle).ok();
    let of_the_host = [("SALT_HOME", "/of/the/host"), ("OTHER", "of the host")];
    let is = |printed: &str, home: &str| {
        let has = |pair: &str| printed.split('\0').any(|other| other == pair);
        assert!(has(&format!("SALT_HOME={home}")) && has("OTHER=of the recipe"), "{home}: {printed}");
    };
    let words = ["run", DEMO, "demo-agent", "--release", "1.0-1"];
    is(&host.sidle_with(&words, &of_the_host).ok(), "/of/the/recipe");
    is(
        &host.sidle_with(&[&["--pass-environment", "SALT_HOME,OTHER"], &words[..]].concat(), &of_the_host).ok(),
        "/of/the/host",
    );

    // As a supervisor that has its variables from a unit starts the agent.
    let agent = |variables: &[(&str, &str)]| {
        let mut run = Command::new(SIDLE);
        run.arg("--root").arg(host.root()).args([
            "run",
            DEMO,
            "--release",
            "1.0-1",
            "--await-start",
            "--all-variables",
        ]);
        let mut run = run.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        run.stdin.take().unwrap().write_all(b"go\n").unwrap();
        String::from_utf8(run.wait_with_output().unwrap().stdout).unwrap()
    };
    is(&agent(&[]), "/of/the/recipe");
    is(&agent(&of_the_host), "/of/the/host");
}

/// A directory that every user may fill, with Python modules of a stranger that leave a mark.
fn trap(place: &Path) -> std::path::PathBuf {
    let mark = place.join("mark");
    let trap = place.join("trap");
    fs::create_dir(&trap).unwrap();
    for module in ["getpass", "json", "os", "shutil", "runpy", "encodings", "salt"] {
        let script = format!("open({:?}, 'a').write(__name__ + '\\n')\nraise ImportError\n", text(&mark));
        fs::write(trap.join(format!("{module}.py")), script).unwrap();
    }
    fs::set_permissions(&trap, fs::Permissions::from_mode(0o777)).unwrap();
    trap
}

#[test]
fn doctor_runs_no_module_of_the_directory_that_it_is_called_in() {
    let author = Author::new();
    let place = tempfile::tempdir().unwrap();
    let (trap, started) = (trap(place.path()), place.path().join("started"));
    // Both programs are run, that about the configuration and that to the masters; Salt itself is not needed before the first import.
    let script = format!(
        "echo \"$(pwd) $1 $2 $3\" >>{0}\npython3 \"$@\" >{0}.said\ncat \"$5/answer\" || cat {0}.said",
        text(&started)
    );
    let bundle = author.posing_as_minion_with("1.0", &script);
    let host = Host::new(&author);
    host.install(&bundle).ok();
    host.sidle(&["test-flip", DEMO, "1.0-1"]).ok();
    let master = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = master.local_addr().unwrap().port();
    let told = json!({"name": "127.0.0.1", "host": "127.0.0.1", "request_port": port, "publish_port": null});
    fs::write(host.path("etc/demo-agent/answer"), pretended::answer(json!({"masters": [told]})).to_string()).unwrap();
    let mut doctor = Command::new(SIDLE);
    doctor.arg("--root").arg(host.root()).arg("doctor").current_dir(&trap).stdin(Stdio::null());
    let output = doctor.env("PYTHONPATH", &trap).output().unwrap();
    let told =
        fs::read_to_string(&started).unwrap_or_else(|error| panic!("no Python was started ({error}): {output:?}"));
    assert!(told.lines().count() >= 2 && told.lines().all(|line| line == "/ -I -B -c"), "{told} {output:?}");
    assert!(!place.path().join("mark").exists(), "{:?}", fs::read_to_string(place.path().join("mark")));
}
