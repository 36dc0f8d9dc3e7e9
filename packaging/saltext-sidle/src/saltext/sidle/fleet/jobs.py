"""The jobs of a rollout: what is ordered from each host."""

import math
import re
from collections import Counter
from typing import NamedTuple

from . import states
from .states import RolloutError

#: So long a switch keeps its masters busy, seconds (docs/rollouts.md, "How long it takes").
SWITCH_SECONDS = 90

#: The units of a time, as sidle has them, seconds.
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Away(Exception):
    """The master takes no jobs now."""


class Job(NamedTuple):
    """One job for some hosts."""

    function: str
    kwarg: dict


def of(record, kind, ids):
    """Returns the jobs that install on these hosts, or switch them: `(job, ids)`. Hosts whose job is the same have one."""
    splays = _splays(record) if kind == "switch" else {}
    groups = {}
    for each in ids:
        host = record["hosts"][each]
        job = install(record, host) if kind == "install" else switch(record, host, splays[host["wave"]])
        groups.setdefault((job.function, tuple(sorted(job.kwarg.items()))), (job, []))[1].append(each)
    return list(groups.values())


def install(record, host):
    """Returns what installs the release on a host: a bundle, or a repository; the host's own repository where the rollout names none."""
    source, named = source_of(record, host["wave"]), f"{record['package']}@{record['release']}"
    if not source:
        return Job("sidle.install", {"source": named})
    if source.endswith(".sidle"):
        return Job("sidle.install", {"source": source, "release": record["release"]})
    kwarg = {"source": named, "repository": source}
    if record.get("install_rate") and source.startswith("salt://"):
        # What all of them may take, shared by as many as install at once.
        kwarg["rate"] = max(1, int(bytes_of(record["install_rate"]) / record["settings"]["install_at_once"]))
    return Job("sidle.install", kwarg)


def bytes_of(text):
    """Returns the bytes of `40M`, `500K` or a number. Raises `RolloutError`."""
    found = re.fullmatch(r"([0-9]+)([KMG]?)(?:i?B)?", str(text).strip())
    if not found or not int(found[1]):
        raise RolloutError(f"cannot use install_rate={text}: it is no number of bytes a second, as 40M or 500K")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]


def _splays(record):
    """
    Returns the splay of each wave. Who waits for a maintenance window begins without the driver: there a splay as long as the wave takes keeps `at_once`.
    """
    said, splays = record["splay"], {}
    for wave, hosts in Counter(host["wave"] for host in record["hosts"].values()).items():
        batches = math.ceil(hosts / record["settings"]["at_once"])
        seconds = batches * SWITCH_SECONDS if record.get("at_window") and batches > 1 else 0
        splays[wave] = said if seconds <= _seconds(said) else f"{seconds}s"
    return splays


def _seconds(text):
    """Returns the seconds of `90s` or `10m`; hosts refuse what is no time."""
    found = re.fullmatch(r"([0-9]+)(ms|s|m|h|d)", str(text))
    return int(found[1]) * UNITS[found[2]] if found else math.inf


def switch(record, host, splay):
    """Returns what switches a host, or takes it back."""
    kwarg = {
        "package": record["package"], "release": host["to"], "splay": splay, "reason": f"rollout {record['id']}",
        "rollout": record["id"], "epoch": record["epoch"],
    }  # fmt: skip
    for name, is_on in (("force", host.get("force")), ("at_window", record.get("at_window")), ("outside_window", record.get("outside_window"))):
        if is_on:
            kwarg[name] = True
    return Job(f"sidle.{record['purpose']}", kwarg)


def explained(record, answer):
    """Returns the answer to an order to switch (`answers.order`); a refusal that may be for a maintenance window has its remedy."""
    error = answer.get("error")
    if not error or error["class"] != "held" or record.get("outside_window"):
        return answer
    if record["purpose"] == states.ROLLBACK:
        remedy = f"`salt-run sidle.abort {record['id']}`, then `salt-run sidle.rollback {record['of']} outside_window=True`"
    else:
        remedy = "`sidle.rollout` takes outside_window=True"
    return {**answer, "error": {**error, "message": f"{error['message']} (to begin outside of maintenance windows: {remedy})"}}


def source_of(record, wave):
    """Returns where the hosts of a wave install from: one source for all, or one for each wave, of which the last one serves all later waves."""
    source = record.get("source")
    return source[min(wave, len(source) - 1)] if isinstance(source, list) and source else source or None


def is_taken(answer):
    """Returns whether a host refuses a claim (`answers.order`): it belongs to another rollout, or obeys a newer driver."""
    return isinstance(answer, dict) and (answer.get("error") or {}).get("class") == "conflict"
