"""What happened in a rollout, as values: the file that stays when it is over. Its form is public (`docs/rollouts.md`)."""

import time

from . import states
from .rollout import Rollout

#: The form of the file.
SCHEMA = 1


def made(record, master, now, missed=None):
    """
    Returns the report of a rollout, as its record is. `master`: the id of this master; `missed`: what `meanwhile.numbers` has of its hosts.
    """
    _, counts, is_whole = missed or ({}, {}, True)
    return {
        "schema": SCHEMA,
        "rollout": record["id"],
        "purpose": record["purpose"],
        "of": record.get("of"),
        "package": record["package"],
        "release": record["release"],
        "master": master,
        "status": record["status"],
        "why": record["why"],
        "made": moment(now),
        "begun": moment(record["begun"]),
        "ended": moment(max((host.get("ended") or 0 for host in record["hosts"].values()), default=0)),
        "ordered_by": record["acts"][0]["by"] if record.get("acts") else None,
        "acts": [{**act, "at": moment(act["at"])} for act in record.get("acts", ())],
        "source": record.get("source"),
        "settings": {**record["settings"], **{name: record.get(name) for name in ("splay", "install_rate", "at_window", "outside_window")}},
        "waves": record["waves"],
        "counts": Rollout(record).counts(),
        "failures": list(record["failures"].values()),
        "jobs_missed_is_whole": is_whole,
        "hosts": {minion: _host(host, counts.get(minion, 0)) for minion, host in sorted(record["hosts"].items())},
        "not_going": record.get("stay", {}),
    }


def moment(seconds):
    """Returns a time of the record as text in UTC; None: it has not come."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)) if seconds else None


def _host(host, missed):
    """Returns what happened to a host. A downtime of 0: its switch had none; None: nobody knows it, or there was no switch."""
    down, state = host.get("downtime"), host["state"]
    return {
        "wave": host["wave"] + 1,
        "family": host["family"],
        "from": host["from"],
        "to": host["to"],
        "state": state,
        "ordered": moment(host.get("ordered")),
        "ended": moment(host.get("ended")),
        "orders": host.get("orders", 0),
        "downtime_seconds": down["seconds"] if down else (0 if "downtime" in host and state == states.DONE else None),
        "jobs_missed": missed,
        "kind": host.get("cause"),
        "why": host.get("text"),
        "earlier": [
            {"state": tried["state"], "ended": moment(tried["ended"]), "kind": tried["cause"], "why": tried["text"]} for tried in host.get("earlier", ())
        ],
    }
