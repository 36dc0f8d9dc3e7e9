"""
What minions say, made safe once, where it is taken: each answer has one reader here, and nothing else looks into it.

A minion may say anything: bytes, times, numbers without end, lists where a text belongs. A reader gives values of its own, with known keys: text is text on
one line, cut at a limit; numbers are whole and in range; lists have a limit. What no reader can read is `Unreadable`: that minion is refused, and the others
go on. Unknown keys are not looked at: a later version of sidle may add some.
"""

import math
import re
from typing import NamedTuple

from . import names
from .values import (
    NUMBER_MAX,
    Unreadable,
    flag,
    line,
    listed,
    moment,
    number,
    optional,
    release,
    seconds_of,
    table,
    text,
    word,
)

#: An answer in the job cache may be as large as Salt's events, and no larger: it would fill the memory of the runner.
ANSWER_BYTES = 1 << 20

#: So many instances and releases may a host have, and so many marks a release: more is no host.
INSTANCES_MAX, RELEASES_MAX, MARKS_MAX = 64, 500, 100

#: So many masters may a minion have: each name costs the master a look-up.
MASTERS_MAX = 16

#: Of the notes of a dry run so many are shown.
NOTES_MAX = 20

#: The reason of a host that belongs to another rollout.
OTHER_ROLLOUT = "other-rollout"

#: The reasons of errors that a plan or a driver knows.
REASONS = ("highstate", "peers", "used", OTHER_ROLLOUT)

#: So many states that differ between two releases are kept of a host.
STATES_MAX = 50

#: So many values may a grain have that makes waves; so many addresses a minion; so many switches, lines and unfinished jobs are of a job's story.
VALUES_MAX, ADDRESSES_MAX, STORY_MAX = 64, 1000, 50

#: A job goes to so many minions at most.
MINIONS_MAX = 1_000_000

#: The exit code of sidle where there is nothing to do.
NOTHING_TO_DO = 3


class Status(NamedTuple):
    """What `sidle.status` says of a package: its default instance; without one, why (None: the host has nothing of the package)."""

    instance: "dict | None"
    trouble: "str | None"


def read(reader, told):
    """Returns what a reader makes of an answer. What was found unreadable before stays so. Raises `Unreadable`."""
    if isinstance(told, Unreadable):
        raise told
    return reader(told)


def taken(reader, told):
    """Reads many answers at once: what cannot be read is given, and not raised."""
    try:
        return read(reader, told)
    except Unreadable as error:
        return error


# --- sidle's answers -------------------------------------------------------------------------------------------------------


def status(told, package):
    """Reads what `sidle.status` says of a package."""
    if isinstance(told, str):
        said = text(told, "sidle.status")
        return Status(None, "it lacks this extension: `saltutil.sync_all`, then plan again" if "is not available" in said else f"sidle.status answered: {said}")
    known = table(told, "sidle.status")
    if known.get("error") is not None:
        return Status(None, _error(known["error"])["message"])
    found = (table(each, "an instance") for each in listed(known.get("instances"), "instances", INSTANCES_MAX))
    own = next((each for each in found if each.get("instance") == package), None)
    return Status(_instance(own, package) if own else None, None)


def _instance(told, package):
    supervisor = optional(table, told.get("supervisor"), "supervisor")
    agent = optional(table, (supervisor or {}).get("agent"), "agent")
    return {
        "instance": package,
        "current": optional(release, _there(told, "current"), "current"),
        "installed": [release(each, "installed") for each in listed(_there(told, "installed"), "installed", RELEASES_MAX)],
        "supervisor": None if supervisor is None else {"reaches": masters((agent or {}).get("reaches") or [])},
        "hold": optional(_hold, _there(told, "hold"), "hold"),
        "switch": optional(_switch, _there(told, "switch"), "switch"),
        "last": optional(_switch, _there(told, "last"), "last"),
        "rollout": optional(_claim, told.get("rollout"), "rollout"),
    }


def _there(told, key):
    if key not in told:
        raise Unreadable(f"it has no {key}")
    return told[key]


def _hold(told, what):
    told = table(told, what)
    return {"by": text(told.get("by"), "hold: by"), "reason": optional(text, told.get("reason"), "hold: reason") or "", "until": optional(text, told.get("until"), "hold: until")}


def _switch(told, what):
    """Reads a switch: under way it has a phase, ended it has a result."""
    told = table(told, what)
    found = {"id": number(told.get("id"), f"{what}: id"), "to": release(told.get("to"), f"{what}: to"), "failure": optional(_failure, told.get("failure"), f"{what}: failure")}
    key = "phase" if what == "switch" else "result"
    return {**found, key: word(told.get(key), f"{what}: {key}"), **(_downtime(told, what) if what == "last" else {})}


def _downtime(told, what):
    """Reads between which times nobody heard jobs in a switch that ended, seconds since 1970; a switch without a downtime has nothing here."""
    length = number(told.get("downtime_milliseconds") or 0, f"{what}: downtime")
    if not length:
        return {}
    begun, ended = (seconds_of(told.get(key), f"{what}: {key}") for key in ("requested_at", "ended_at"))
    return {"downtime": {"seconds": length / 1000, "begun": begun, "ended": ended}}


def _failure(told, what):
    told = table(told, what)
    return {"phase": word(told.get("phase"), f"{what}: phase"), "cause": word(told.get("cause"), f"{what}: cause"), "text": text(told.get("text"), f"{what}: text")}


def _claim(told, what):
    told = table(told, what)
    if not names.is_rollout(told.get("id")):
        raise Unreadable(f"{what}: id is no name of a rollout")
    return {"id": told["id"], "epoch": number(told.get("epoch"), f"{what}: epoch"), "until": text(told.get("until"), f"{what}: until")}


def _error(told):
    told = table(told, "error")
    reason = {"reason": told["reason"]} if told.get("reason") in REASONS else {}
    return {"class": word(told.get("class"), "error: class"), "message": text(told.get("message"), "error: message"), **reason}


def order(told):
    """Returns what a host says to an order: `{}`, or its `error`; what Salt itself says is one, too."""
    if isinstance(told, str):
        return {"error": {"class": "failed", "message": f"the minion answered: {text(told, 'the answer')}"}}
    known = table(told, "the answer")
    code = number(known.get("code"), "code", 255)
    if known.get("error") is not None:
        return {"error": _error(known["error"])}
    return {"error": {"class": "nothing-to-do", "message": "nothing to do"}} if code == NOTHING_TO_DO else {}


def dry_run(told):
    """Returns what the dry run of a switch or of an upgrade says: `error`, `notes`, `mode`, `highstate`, `used`."""
    if isinstance(told, str):
        return {"error": {"class": "failed", "message": f"the dry run said nothing: {text(told, 'the answer')}"}, "notes": [], "mode": None, "highstate": None, "used": []}
    known = table(told, "the dry run")
    notes = listed(known.get("notes") or [], "notes", RELEASES_MAX)
    shown = [text(each, "notes") for each in notes[:NOTES_MAX]] + ([f"and {len(notes) - NOTES_MAX} more notes"] if len(notes) > NOTES_MAX else [])
    return {
        "error": optional(lambda error, _: _error(error), known.get("error"), "error"),
        "notes": shown,
        "mode": optional(word, known.get("mode"), "mode"),
        "highstate": _highstate(known),
        "used": _used(known.get("error")),
    }


def _used(error):
    """Returns what the host uses of what the release lacks: each function's kind, name and last day."""
    if not isinstance(error, dict) or error.get("reason") != "used":
        return []
    lines = [text(line, "error: lines").split(" ") for line in listed(error.get("lines") or [], "error: lines", RELEASES_MAX)[:STATES_MAX]]
    return [line for line in lines if len(line) == 3]


def _highstate(known):
    """Returns what became of the highstate in both releases: whether it is the `same`, and what differs; None: nobody asked."""
    error = known.get("error")
    if isinstance(error, dict) and error.get("reason") == "highstate":
        lines = listed(error.get("lines") or [], "error: lines", RELEASES_MAX)
        return {"found": "differs", "states": [text(line, "error: lines") for line in lines[:STATES_MAX]]}
    if known.get("highstate") is None:
        return None
    found = table(known["highstate"], "highstate")
    differences = [table(each, "highstate: differences") for each in listed(found.get("differences") or [], "highstate: differences", MINIONS_MAX)[:STATES_MAX]]
    states = [f"{text(each.get('id'), 'highstate: id')} ({text(each.get('function'), 'highstate: function')})" for each in differences]
    if word(found.get("compared"), "highstate: compared") == "nothing":
        return {"found": "not compared", "states": []}
    return {"found": "differs" if states else "same", "states": states}


def releases(told, package):
    """Returns what `sidle.list` says of a package: each release with its marks, and what is wrong with it."""
    # What Salt says where there is no such function, and an error: the status says more.
    if told is None or isinstance(told, str) or (isinstance(told, dict) and told.get("error") is not None):
        return []
    found = (table(each, "releases") for each in listed(table(told, "sidle.list").get("releases"), "releases", RELEASES_MAX))
    return [_release(each) for each in found if each.get("package") == package]


def _release(told):
    marks = [table(each, "marks") for each in listed(told.get("marks"), "marks", MARKS_MAX)]
    return {
        "release": release(told.get("release"), "releases"),
        "marks": [{"mark": word(each.get("mark"), "mark"), "reason": optional(text, each.get("reason"), "reason")} for each in marks],
        "problem": optional(text, told.get("problem"), "problem"),
    }


# --- Salt's answers --------------------------------------------------------------------------------------------------------


def masters(told):
    """Returns the names that a minion has for its masters: a text, or a list; none where it has no master."""
    if told is None or told is False or told == "":
        return []
    found = [told] if isinstance(told, str) else listed(told, "its masters", MASTERS_MAX)
    if not all(isinstance(each, str) and re.fullmatch(r"[\w.:\[\]%-]{1,255}", each) for each in found):
        raise Unreadable("the name of a master is no name of a host")
    return list(dict.fromkeys(found))


def grains(told, wanted):
    """Returns these grains, as text; those that a minion lacks are left out. The values of a grain that has several are one text."""
    if told is None or isinstance(told, str):
        return {}
    known = table(told, "its grains")
    return {name: _grain(known[name], name) for name in wanted if known.get(name) not in (None, "")}


def _grain(told, name):
    if isinstance(told, list):
        return text(str([_value(each, name) for each in listed(told, f"grain {name}", VALUES_MAX)]), name)
    return _value(told, name)


def _value(told, name):
    if isinstance(told, bool) or (isinstance(told, int) and abs(told) <= NUMBER_MAX) or (isinstance(told, float) and math.isfinite(told)):
        return str(told)
    return text(told, f"grain {name}", 64)


def addresses(told):
    """Returns the addresses of a minion, by its grains; nonsense has none."""
    found = told if isinstance(told, (list, tuple)) else ()
    return {each for each in found[:ADDRESSES_MAX] if isinstance(each, str) and len(each) <= 64}


def process(told):
    """Returns what `saltutil.find_job` says: the process of a job; None: it does not run."""
    return {"pid": number(told.get("pid"), "saltutil.find_job: pid")} if isinstance(told, dict) and told else None


def load(told):
    """Returns a job as the job cache has it; None: it is not there. A minion that returns a job of its own writes it, too."""
    known = told if isinstance(told, dict) else {}
    if not known.get("fun"):
        return None
    of = {key: known.get(key, default) for key, default in (("fun", ""), ("tgt", ""), ("tgt_type", "glob"), ("user", "?"), ("Minions", None))}
    for key in ("fun", "tgt"):
        if isinstance(of[key], (list, tuple)):
            # A nodegroup that names another one is a list of the words of a compound target.
            between = ", " if key == "fun" else " " if of["tgt_type"] == "compound" else ","
            of[key] = between.join(_words(of[key], key))
    if not all(isinstance(of[key], str) and len(of[key]) <= ANSWER_BYTES for key in ("fun", "tgt", "tgt_type", "user")):
        raise Unreadable("the job in the job cache is no job")
    return {**of, "fun": text(of["fun"], "fun"), "tgt_type": text(of["tgt_type"], "tgt_type"), "user": text(of["user"], "user"), "Minions": optional(_words, of["Minions"], "Minions")}


def _words(told, what):
    if not isinstance(told, (list, tuple)) or len(told) > MINIONS_MAX or not all(isinstance(each, str) for each in told):
        raise Unreadable(f"{what} is no list of texts")
    return list(told)


# --- what a host knows of a job --------------------------------------------------------------------------------------------


def job(told):
    """Reads what `sidle.job` says."""
    known = table(told, "sidle.job")
    found = {key: optional(moment, known.get(key), key) for key in ("now", "started", "log_since", "returned_at")}
    found |= {key: optional(flag, known.get(key), key) for key in ("claimed", "cached", "cache_jobs", "log_is_detailed")}
    found |= {"stale": optional(number, known.get("stale"), "stale"), "queued": optional(line, known.get("queued"), "queued")}
    found |= {"masters": masters(known.get("masters")), "master": (masters(known.get("master")) or [None])[0]}
    found["log"] = [line(each, "log") for each in listed(known.get("log") or [], "log", STORY_MAX)]
    found["switches"] = [_past(table(each, "switches")) for each in listed(known.get("switches") or [], "switches", STORY_MAX)]
    found["ended"] = optional(_ended, known.get("ended"), "ended")
    # The host's program is missing, too old, or cannot read its files.
    found["error"] = _error(known["error"])["message"] if known.get("error") is not None else None
    # A clock that it does not tell is no clock that is wrong.
    return {key: value for key, value in found.items() if value is not None}


def _past(told):
    found = {key: word(told.get(key), f"switches: {key}") for key in ("purpose", "mode", "result")}
    found |= {key: optional(moment, told.get(key), f"switches: {key}") for key in ("begun", "ended", "down", "up")}
    if (found["down"] is None) != (found["up"] is None):
        raise Unreadable("switches: a downtime has no end")
    return {**found, "id": number(told.get("id"), "switches: id"), "to": release(told.get("to"), "switches: to")}


def _ended(told, what):
    told = table(told, what)
    jobs = [table(each, "unfinished") for each in listed(told.get("unfinished") or [], "unfinished", STORY_MAX)]
    return {
        "pid": number(told.get("pid"), "ended: pid"), "release": optional(release, told.get("release"), "ended: release"),
        "how": text(told.get("how"), "ended: how"), "at": text(told.get("at"), "ended: at"),
        "unfinished": [{"id": text(each.get("id"), "unfinished: id"), "what": text(each.get("what"), "unfinished: what")} for each in jobs],
    }  # fmt: skip
