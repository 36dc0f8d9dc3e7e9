"""What a process without singletons leaves to the next one: schedule and beacons, with their counters.

Salt keeps the counters of its schedule in memory only, between the lines of its configuration:
keys that begin with `_`, and some that it adds to a job while it runs it. Without them every
switch would shift intervals, skip a tick or fire one twice. All of this is pure.
"""

import copy
import datetime
import json

SCHEMA = 1
DATETIME = "__sidle_datetime__"
# What `salt.utils.schedule.Schedule.eval` and the commands that postpone and skip write into a job.
WRITTEN_BY_EVAL = frozenset(("run", "name", "jid_include", "maxrunning", "splay", "skip_during_range", "enabled"))
POSTPONED = frozenset(("run_explicit", "skip_explicit"))
# What beacons remember of their last look, where it can be handed on: names in their modules, and in the context that they share.
# Others keep open files, which nobody can hand on, or nothing.
BEACON_NAMES = {"service": "LAST_STATUS", "load": "LAST_STATUS"}
BEACON_CONTEXT = ("log.loc", "btmp.loc", "wtmp.loc", "beacon.pkg")
# Salt's own jobs (__mine_interval, __master_alive…): each process makes them for itself.
INTERNAL = "__"


def encode(content):
    """A handover as text."""

    def other(value):
        if isinstance(value, datetime.datetime):
            return {DATETIME: value.isoformat()}
        if isinstance(value, (set, frozenset, tuple)):
            return list(value)
        if hasattr(value, "items"):
            return dict(value.items())
        return str(value)

    return json.dumps(content, default=other)


def decode(text):
    """Read it; ValueError if it is none."""

    def convert(found):
        return datetime.datetime.fromisoformat(found[DATETIME]) if found.keys() == {DATETIME} else found

    content = json.loads(text, object_hook=convert)
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError("cannot read the handover: another schema")
    return content


def definition(job):
    """What somebody configured of a job, without what Salt added to it."""
    if not hasattr(job, "items"):
        return job
    # `enabled: True` and `maxrunning: 1` are added where nobody set them.
    return {key: value for key, value in job.items()
            if not key.startswith("_") and key not in WRITTEN_BY_EVAL | POSTPONED}


def state(job):
    """What Salt knows of a job by having run it."""
    if not hasattr(job, "items"):
        return {}
    return {key: value for key, value in job.items()
            if key.startswith("_") or key in POSTPONED}


def same(one, other):
    """Whether two definitions are equal, also when one of them has been through a file."""
    return json.loads(encode(one)) == json.loads(encode(other))


def merge(mine, configured, known, handed, handed_known, touched):
    """The entries of a schedule (or of beacons) that are right for the new holder.

    mine: what is in this process; configured: what the configuration files say now; known: what
    they said when this process read them. handed: what the former holder had in memory, None if
    it left nothing; handed_known: the names that it had read from or written to the files.
    touched: names that were changed here by commands since the start, and stay as they are.
    """
    merged = {}
    for name in dict.fromkeys([*configured, *mine, *(handed or ())]):
        if name in touched or name.startswith(INTERNAL):
            source = mine
        elif name in configured:
            # Changed in the former's memory alone (persist=False): that is what was in force.
            changed = handed is not None and name in handed and name not in handed_known
            source = handed if changed else configured
            if source is configured and name in mine and same(definition(mine[name]), definition(configured[name])):
                # Equal: the object at hand keeps what this process knows of it.
                merged[name] = _enabled_as(mine[name], configured[name])
                continue
        elif handed is not None and name in handed and name not in handed_known:
            source = handed
        elif name in mine and name not in known:
            source = mine
        else:
            continue  # Deleted from the files in the meantime.
        if name in source:
            merged[name] = source[name] if source is mine else copy.deepcopy(source[name])
    return merged


def _enabled_as(job, configured):
    """`job` with the switch that a command may have persisted."""
    if hasattr(job, "items") and "enabled" in configured:
        job["enabled"] = configured["enabled"]
    return job


def _is_plain(value):
    """Whether a file gives it back as it is."""
    if type(value) is dict:
        return all(type(key) is str and _is_plain(found) for key, found in value.items())
    return value is None or type(value) in (str, int, float, bool)


def _variables(loader, beacon):
    """The names in a beacon's module; None: it has no such beacon."""
    function = loader.get(f"{beacon}.beacon")
    return getattr(getattr(function, "func", function), "__globals__", None)


def beacon_memory(loader):
    """What these beacons know by having looked: without it each would tell once more what has not changed."""
    context = loader.pack.get("__context__") or {}
    found = {key: context[key] for key in BEACON_CONTEXT if key in context}
    modules = {beacon: (_variables(loader, beacon) or {}).get(name) for beacon, name in BEACON_NAMES.items()}
    return {"context": {key: value for key, value in found.items() if _is_plain(value)},
            "modules": {beacon: value for beacon, value in modules.items() if value and _is_plain(value)}}


def remember_beacons(loader, memory):
    """Let these beacons go on from there."""
    context = loader.pack.get("__context__")
    if context is not None:
        context.update(memory.get("context", {}))
    for beacon, value in memory.get("modules", {}).items():
        known = (_variables(loader, beacon) or {}).get(BEACON_NAMES.get(beacon))
        if type(known) is dict and type(value) is dict:
            known.clear()
            known.update(value)


def take_counters(jobs, handed, started_by_switch):
    """Put the former's counters into the jobs that are the same; changes `jobs`."""
    for name, job in jobs.items():
        if not hasattr(job, "items"):
            continue
        former = (handed or {}).get(name)
        if hasattr(former, "items") and same(definition(former), definition(job)):
            job.update(state(former))
            if "_next_fire_time" in former:
                # It has had its start. 3006 and 3007 know that of some jobs only, 3008 of all.
                job["_run_on_start"] = False
        elif handed is None and started_by_switch:
            # The former is gone without a word: a switch is no start.
            job["_run_on_start"] = False
