//! What findings about a minion mean, and the sentences of Salt's logs that tell of them (3006, 3007 and 3008).

use crate::agent::examination::Explanation;
use crate::failure::Class;

/// Words that belong to a general kind of finding.
const fn also(id: &'static str, words: &'static [&'static str]) -> Explanation {
    Explanation { id, class: Class::Failed, means: "", remedy: "", words }
}

const fn explanation(
    id: &'static str,
    means: &'static str,
    remedy: &'static str,
    words: &'static [&'static str],
) -> Explanation {
    Explanation { id, class: Class::Failed, means, remedy, words }
}

/// What to do about a kind of finding.
pub fn remedy(id: &str) -> &'static str {
    ALL.iter().find(|known| known.id == id).map_or("", |known| known.remedy)
}

/// All of them.
pub const ALL: &[Explanation] = &[
    explanation(
        "minion-configuration",
        "Salt can't load the minion's configuration, or it leaves open which masters the minion has: the minion could not be started again",
        "correct what the message names; `salt-call --local config.items` shows what Salt makes of it",
        &[
            "Error parsing configuration file: … - conf should be a document, not …",
            "Invalid keyword '…' for variable 'master_type'",
        ],
    ),
    explanation(
        "second-minion",
        "another minion of the same id and master runs on this host: every job runs twice, and both answer",
        "end the other one and keep its unit from being started: `systemctl disable --now UNIT`, or `sidle adopt PACKAGE` to take it over",
        &["An instance is already running. Exiting the Salt Minion"],
    ),
    explanation(
        "queued-jobs-left",
        "jobs lie in a queue on disk (`queue=True`, `process_count_max`) from which this minion will not run them: it no longer has their master, they \
         were queued before another release ran here, or were just begun as the minion was killed",
        "publish again what is still wanted, and remove the files",
        &["sidle-guard: the job in …"],
    ),
    explanation(
        "minion-key-missing",
        "the minion has no key yet: it makes one at its first start, which then waits at the master to be accepted",
        "start the minion, then `salt-key -a ID` on the master",
        &["Generating keys: …"],
    ),
    explanation(
        "master-unreachable",
        "a master's port takes no connection: the master is down, its name means another host, or a firewall drops the connection",
        "on the master: `systemctl status salt-master` and `ss -ltn`; in between: open TCP 4505 and 4506 from minion to master",
        &[
            "Unable to sign_in to master: Attempt to authenticate with the salt master failed with timeout error",
            "Attempt to authenticate with the salt master failed with timeout error",
            "SaltReqTimeoutError",
            "Message timed out",
            "Error while bringing up minion for multi-master. Is master at … responding?",
            "DNS lookup or connection check of … failed",
            "Master hostname: … not found or not responsive. Retrying in … seconds",
            "Authentication with master at … failed",
            "Minion unable to successfully connect to a Salt Master",
            "No master could be reached or all masters denied the minion's connection attempt",
        ],
    ),
    explanation(
        "master-silent",
        "a master's port is open, but no sign-in there is answered: the master is overloaded or hangs, or another program listens",
        "on the master: `systemctl status salt-master`, its log, and whether `worker_threads` are enough for its minions",
        &[
            "SaltReqTimeoutError",
            "Attempt to authenticate with the salt master failed with timeout error",
            "Unable to sign_in to master: Attempt to authenticate with the salt master failed with timeout error",
            "Authentication with master at … failed",
        ],
    ),
    explanation(
        "key-pending",
        "the master has the minion's key, but has not accepted the key: the minion asks again and again and gets no jobs",
        "compare `salt-call --local key.finger` with `salt-key -f ID` on the master, then `salt-key -a ID` there",
        &[
            "The Salt Master has cached the public key for this node",
            "this salt minion will wait for … seconds before attempting to re-authenticate",
            "Minion failed to authenticate with the master, has the minion key been accepted?",
        ],
    ),
    explanation(
        "key-denied",
        "the master refuses the minion's key: it was rejected there, or another key is accepted under the same id (a reinstalled or cloned host)",
        "on the master `salt-key -l rej` and `salt-key -l den` tell which; if the minion is the right one: `salt-key -d ID` there, \
         `sidle restart` here, `salt-key -a ID` there",
        &[
            "The Salt Master has rejected this minion's public key",
            "To repair this issue, delete the public key for this minion on the Salt Master",
            "Authentication attempt from … failed, the public keys did not match. This may be an attempt to compromise the Salt cluster.",
        ],
    ),
    explanation(
        "master-key-changed",
        "the master shows another key than the one that this minion knows: it was set up anew, the name leads to another master, or somebody \
         stands in between",
        "find out which: `salt-key -F master` on the master shows its fingerprint; if it is the right one, remove minion_master.pub from the \
         minion's pki directory (or correct master_finger), then `sidle restart`",
        &[
            "The master key has changed, the salt master could have been subverted, verify salt master's public key",
            "The Salt Master server's public key did not authenticate!",
            "Invalid master key",
            "Invalid signature",
            "The payload signature did not validate",
            "The specified fingerprint in the master configuration file: … Does not match the authenticating master's key",
        ],
    ),
    explanation(
        "master-full",
        "the master takes no more minions (max_minions)",
        "raise `max_minions` on the master, or remove keys of minions that are gone",
        &["Too many minions connected (max_minions=…)"],
    ),
    also(
        "release-damaged",
        &[
            "ImportError: No module named",
            "ModuleNotFoundError: No module named",
            "The renderer … is unavailable",
            "error while loading shared libraries",
        ],
    ),
    also("host-lacks", &["ImportError: lib…: cannot open shared object file"]),
    also("command-of-another", &["salt-call: command not found", "Minion failed to authenticate with the master"]),
    also("agent-not-running", &["Minion did not return. [No response]", "Minion did not return. [Not connected]"]),
];
