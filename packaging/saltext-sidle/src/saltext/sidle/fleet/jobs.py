"""The jobs of a rollout: what is ordered from each host."""

import re
from typing import NamedTuple

from . import states
from .states import RolloutError


class Away(Exception):
    """The master takes no jobs now."""


class Job(NamedTuple):
    """One job for some hosts."""

    function: str
    kwarg: dict


def of(record, kind, ids):
    """Returns the jobs that install on these hosts, or switch them: `(job, ids)`. Hosts whose job is the same have one."""
    make = install if kind == "install" else switch
    groups = {}
    for each in ids:
        job = make(record, record["hosts"][each])
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


def switch(record, host):
    """Returns what switches a host, or takes it back."""
    kwarg = {
        "package": record["package"], "release": host["to"], "splay": record["splay"], "reason": f"rollout {record['id']}",
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
