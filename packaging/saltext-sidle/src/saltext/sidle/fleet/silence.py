"""
The rules of the causes for which a minion does not answer: its key, its sign-in, its connection. Each yields a text and remedies if it
applies.
"""

from saltext.sidle.fleet.evidence import EXPIRED, OTHER_KEY, TOO_MANY, TOO_OLD, UNSIGNED, span, speaks_3, when

#: A minion that was not seen for so long is most likely gone.
GONE_SECONDS = 90 * 86400


def rejected(e):
    if "rejected" in e.keys and "accepted" not in e.keys:
        yield (
            f"This master rejects the key of {e.minion}.",
            f"if the host is yours: `salt-key -d {e.minion}`, then accept the key that it sends again: `salt-key -a {e.minion}`",
        )


def pending(e):
    if "pending" in e.keys and "accepted" not in e.keys:
        yield (
            f"The key of {e.minion} waits for a person to accept it.",
            f"compare `salt-key -f {e.minion}` with `salt-call --local key.finger` on the host, then `salt-key -a {e.minion}`",
        )


def no_key(e):
    if "accepted" in e.keys or (e.keys and "denied" not in e.keys):
        return
    yield (
        f"This master has no key of {e.minion}: no minion of this name ever signed in, or its key was deleted.",
        "on the host: `sidle doctor` (or `salt-call test.ping`) says whether its minion runs, and which master it calls; "
        "`salt-key -L` lists the names that this master knows",
    )


def master_down(e):
    if e.master_is_up is False:
        yield "This master does not run: its own ports do not answer.", "`systemctl status salt-master`, `journalctl -u salt-master`"


def sign_in_refused(e):
    if e.answers is not False:
        return
    is_old = e.minimum_auth >= 3 and e.version and not e.connected and not speaks_3(e.version)
    if e.refused(TOO_OLD) or is_old:
        yield (
            f"This master refuses the sign-in of {e.minion}: its Salt {e.version or ''} is older than minimum_auth_version: {e.minimum_auth} allows.".replace("  ", " "),
            "upgrade the minion (3006.12, 3007.4 and later sign in with version 3); or, until then, lower `minimum_auth_version` in the master's configuration",
        )


def too_many(e):
    if e.answers is False and e.refused(TOO_MANY):
        yield f"This master takes no more minions: max_minions is {e.max_minions}.", "raise `max_minions` in the master's configuration"


def clock(e):
    if e.answers is False and e.refused(EXPIRED):
        yield (
            f"This master refuses the messages of {e.minion}, because they are too old: the clocks differ, or the messages wait for too long.",
            "set the clocks (`chronyc tracking` on both); `request_server_ttl` in the master's configuration is the limit",
        )


def signature(e):
    if e.answers is False and e.refused(UNSIGNED):
        yield (
            f"This master drops the messages of {e.minion}: their signature is missing or wrong.",
            "set `minion_sign_messages: True` in the minion's configuration (a master of 3008 checks signatures only with "
            "`signing_algorithm: PKCS1v15-SHA1` in its own); if the host has a new key: "
            f"`salt-key -d {e.minion}`, then `salt-key -a {e.minion}`",
        )


def key_changed(e):
    if e.answers is False and "accepted" in e.keys and ("denied" in e.keys or e.refused(OTHER_KEY)):
        yield (
            f"{e.minion} signs in with another key than the accepted one: the host was installed again, or a second host has its name.",
            f"compare `salt-key -f {e.minion}` with `salt-call --local key.finger` on the host; if it is yours: `salt-key -d {e.minion}`, then "
            f"`salt-key -a {e.minion}`",
        )


def gone(e):
    if e.answers is False and not e.connected and e.seen and e.now - e.seen >= GONE_SECONDS:
        yield f"{e.minion} was not seen for {span(e.now - e.seen)}: the host is most likely gone.", f"if it is: `salt-key -d {e.minion}`"


def never_seen(e):
    if e.answers is False and not e.connected and e.seen is None:
        yield (
            f"The key of {e.minion} is accepted, but the minion was never seen.",
            "on the host: `sidle doctor`, or `salt-call test.ping`",
        )


def hung(e):
    if e.answers is False and e.connected:
        yield (
            f"{e.minion} is connected, but does not answer: its minion is stopped, blocked or overloaded.",
            "on the host: `sidle doctor`, `systemctl status salt-minion` (or `sidle@salt-minion`), the minion's log; `sidle restart salt-minion`",
        )


def offline(e):
    if e.answers is not False:
        return
    what = "is offline" if e.connected is False else "does not answer"
    yield (
        f"{e.minion} {what}; it was last seen {when(e.seen)} ({e.seen_how}).",
        "on the host: `sidle doctor`, or `systemctl status salt-minion` and `salt-call test.ping`; what was published meanwhile is missed for good",
    )
