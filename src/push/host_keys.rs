//! Whether ssh checks the key of a host: the options that may be passed on to ssh, and ssh's own answer (`ssh -G`) on what it would do.

use crate::failure::{Class, Report};
use crate::os::dir::{Dir, FileKind};
use crate::os::file;
use std::path::Path;

/// The option that decides whether a host's key is checked, in ssh's own spelling for `ssh -G`.
const STRICT: &str = "stricthostkeychecking";
/// Its values with which a changed key is refused. `ask` asks nobody (`BatchMode`), so it is the same as `yes`.
const STRICT_VALUES: [&str; 4] = ["yes", "true", "ask", "accept-new"];
/// The value with which the keys of new hosts are accepted, and written down.
const ACCEPT_NEW: &str = "accept-new";

/// The options that may be given (`ssh_config(5)`): none of them accepts a host's key, takes one host for another, or changes what `sidle push` relies on.
/// Options that are not listed, and those of later versions of ssh, are refused.
const ALLOWED: [&str; 38] = [
    "addressfamily",
    "bindaddress",
    "bindinterface",
    "casignaturealgorithms",
    "certificatefile",
    "ciphers",
    "compression",
    "connectionattempts",
    "connecttimeout",
    "fingerprinthash",
    "globalknownhostsfile",
    "gssapiauthentication",
    "gssapidelegatecredentials",
    "hashknownhosts",
    "hostkeyalgorithms",
    "identitiesonly",
    "identityagent",
    "identityfile",
    "ipqos",
    "kexalgorithms",
    "macs",
    "pkcs11provider",
    "port",
    "preferredauthentications",
    "proxycommand",
    "proxyjump",
    "pubkeyacceptedalgorithms",
    "pubkeyacceptedkeytypes",
    "pubkeyauthentication",
    "rekeylimit",
    "requiredrsasize",
    "revokedhostkeys",
    "securitykeyprovider",
    "serveralivecountmax",
    "serveraliveinterval",
    "tcpkeepalive",
    "user",
    "userknownhostsfile",
];

/// What ssh has to say of options that its configuration may have set: `ssh -G` names each in lower case.
const NEEDED: [(&str, &[&str]); 7] = [
    ("nohostauthenticationforlocalhost", &["no", "false"]),
    ("verifyhostkeydns", &["no", "false"]),
    ("batchmode", &["yes", "true"]),
    ("sessiontype", &["default"]),
    ("stdinnull", &["no", "false"]),
    ("forkafterauthentication", &["no", "false"]),
    ("requesttty", &["no", "false"]),
];

/// Refuses options that are not known to be harmless; gives the value of `StrictHostKeyChecking`.
pub(super) fn strictness(options: &[String]) -> Result<&str, Report> {
    let mut strict = None;
    for option in options {
        let refuse = |reason: &str| {
            Err(Report::of(Class::Usage, format!("cannot pass -o {option:?} to ssh: {reason}")).hint(
                "leave it out, or set it in ssh's configuration for this host; `-o StrictHostKeyChecking=accept-new` accepts the keys of new hosts, \
                 and of no others",
            ))
        };
        let Some((key, value)) = parts(option) else { return refuse("it is not written as `Option=value`") };
        if key == STRICT {
            if !STRICT_VALUES.contains(&value) {
                return refuse("a host whose key has changed would be accepted");
            }
            // ssh takes the first value of an option.
            strict = strict.or(Some(value));
        } else if !ALLOWED.contains(&key.as_str()) {
            return refuse("it is none of the options that `sidle push` passes on");
        }
    }
    Ok(strict.unwrap_or("yes"))
}

/// `Option=value`, `Option = value` or `Option value`. ssh itself reads more forms (`=Option=value`, `"Option" value`): those are refused.
fn parts(option: &str) -> Option<(String, &str)> {
    let end = option.find(|c: char| !c.is_ascii_alphanumeric())?;
    let rest = option[end..].trim_start_matches(' ');
    let value = rest.strip_prefix('=').unwrap_or(rest).trim_matches(' ');
    let is_plain = end > 0
        && option[end..].starts_with(['=', ' '])
        && !value.is_empty()
        && !value.starts_with('=')
        && !option.contains(char::is_control);
    is_plain.then(|| (option[..end].to_ascii_lowercase(), value))
}

/// Refuses a host whose key ssh would not check, by what `ssh -G` has printed of it.
pub(super) fn judge(host: &str, answer: &str) -> Result<(), Report> {
    let value_of = |wanted: &str| {
        answer.lines().filter_map(|line| line.split_once(' ')).find(|(key, _)| *key == wanted).map(|(_, value)| value)
    };
    let refuse = |reason: String| Report::of(Class::NotTrusted, format!("cannot connect to {host}: {reason}"));
    let configured = "correct ssh's configuration for this host: `ssh -G HOST` shows what ssh reads there";
    let Some(strict) = value_of(STRICT) else {
        return Err(refuse("ssh does not say whether it checks the host's key".to_owned())
            .hint("use OpenSSH 6.8 or later as `ssh`"));
    };
    if !STRICT_VALUES.contains(&strict) {
        return Err(
            refuse(format!("ssh would accept a changed host key (StrictHostKeyChecking {strict})")).hint(configured)
        );
    }
    for (key, good) in NEEDED {
        if let Some(value) = value_of(key).filter(|value| !good.contains(value)) {
            return Err(refuse(format!("ssh's configuration says `{key} {value}`")).hint(configured));
        }
    }
    if strict == ACCEPT_NEW {
        let file = value_of("userknownhostsfile").and_then(|files| files.split_whitespace().next()).unwrap_or("none");
        if let Err(reason) = keeps(file) {
            return Err(refuse(format!(
                "accept-new would accept each changed key, since UserKnownHostsFile {file} {reason}"
            ))
            .hint("name a file that keeps the keys of new hosts: `-o UserKnownHostsFile=FILE`"));
        }
    }
    Ok(())
}

/// Whether ssh can write the key of a new host into this file. Otherwise the next key of the host is a new one, too.
fn keeps(path: &str) -> Result<(), &'static str> {
    if !path.starts_with('/') {
        return Err("is no absolute path");
    }
    let path = Path::new(path);
    match file::stat(path) {
        Ok(Some(stat)) if stat.kind == FileKind::File => match file::check_writable(path) {
            Ok(()) => Ok(()),
            Err(_) => Err("cannot be written"),
        },
        Ok(Some(_)) => Err("is not a regular file"),
        Err(_) => Err("cannot be examined"),
        Ok(None) => {
            // ssh makes a missing `.ssh`.
            let parents =
                path.ancestors().skip(1).take(2).filter_map(|parent| Dir::open_if_exists(parent).ok().flatten());
            let is_writable = parents.map(|parent| parent.check_writable().is_ok()).next();
            if is_writable == Some(true) { Ok(()) } else { Err("does not exist, and cannot be made") }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "tests make real files")]

    use super::*;

    /// Each of these is read by ssh as an option, in a spelling that is not the plain one, or is not known to be harmless.
    #[test]
    fn no_spelling_of_an_option_accepts_a_changed_host_key() {
        for bad in [
            "StrictHostKeyChecking=no",
            "stricthostkeychecking no",
            " StrictHostKeyChecking = \"off\"",
            "STRICTHOSTKEYCHECKING=NO",
            "StrictHostKeyChecking=false",
            "StrictHostKeyChecking='no'",
            "StrictHostKeyChecking=",
            "StrictHostKeyChecking==no",
            "=StrictHostKeyChecking=no",
            "\"StrictHostKeyChecking\" no",
            "\tStrictHostKeyChecking=no",
            "StrictHostKeyChecking\tno",
            "Compression=yes\nStrictHostKeyChecking=no",
            "=ControlPath=/tmp/x",
            "\"RemoteCommand\" id",
            "ControlPath=none",
            "BatchMode=no",
            "RemoteCommand=id",
            "KnownHostsCommand=/bin/echo",
            "NoHostAuthenticationForLocalhost=yes",
            "VerifyHostKeyDNS=yes",
            "HostKeyAlias=other",
            "Hostname=other",
            "LocalCommand=id",
            "PermitLocalCommand=yes",
            "Include=/tmp/x",
            "IgnoreUnknown=x",
            "Compression",
            "",
        ] {
            let refused = strictness(&[bad.to_owned()]).unwrap_err();
            assert_eq!(refused.class, Class::Usage, "{bad}");
        }
        let given = |options: &[&str]| options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>();
        assert_eq!(strictness(&given(&["Compression=yes", "ConnectTimeout 3", "User = adm"])).unwrap(), "yes");
        let twice = given(&["StrictHostKeyChecking=accept-new", "stricthostkeychecking yes"]);
        assert_eq!(strictness(&twice).unwrap(), "accept-new");
    }

    #[test]
    fn a_host_whose_key_ssh_would_not_check_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let known = directory.path().join("known");
        std::fs::write(&known, "").unwrap();
        let (known, below, nowhere) =
            (known.display(), directory.path().join(".ssh/known"), directory.path().join("a/b/c"));
        let good =
            "host x\nuser root\nnohostauthenticationforlocalhost no\nsessiontype default\nverifyhostkeydns false\n";
        let first = |strict: &str, rest: &str| judge("x", &format!("{good}stricthostkeychecking {strict}\n{rest}"));
        for (strict, rest) in [
            ("true", ""),
            ("ask", "userknownhostsfile /dev/null"),
            ("accept-new", &format!("userknownhostsfile {known} /dev/null")),
            ("accept-new", &format!("userknownhostsfile {}", below.display())),
        ] {
            first(strict, rest).unwrap();
        }
        for (strict, rest, words) in [
            ("false", "", "StrictHostKeyChecking false"),
            ("off", "", "StrictHostKeyChecking off"),
            ("accept-new", "", "UserKnownHostsFile none"),
            ("accept-new", "userknownhostsfile none", "UserKnownHostsFile none"),
            ("accept-new", &format!("userknownhostsfile /dev/null {known}"), "is not a regular file"),
            ("accept-new", &format!("userknownhostsfile {}", nowhere.display()), "cannot be made"),
        ] {
            let refused = first(strict, rest).unwrap_err();
            assert!(
                refused.class == Class::NotTrusted && refused.message.contains(words),
                "{strict} {rest}: {refused}"
            );
        }
        assert!(judge("x", "user root\n").unwrap_err().message.contains("does not say"));
        for line in [
            "nohostauthenticationforlocalhost yes",
            "verifyhostkeydns true",
            "sessiontype none",
            "forkafterauthentication yes",
        ] {
            let refused = judge("x", &format!("stricthostkeychecking true\n{line}\n")).unwrap_err();
            assert!(refused.message.contains(line), "{refused}");
        }
    }
}
