"""Why a minion did not return: one cause, what it rests on, the remedy, and what was not known."""

from dataclasses import dataclass

from saltext.sidle.fleet import values
from saltext.sidle.fleet.causes import CAUSES, UNCERTAIN
from saltext.sidle.fleet.evidence import CLOCK_SECONDS, span, when

#: A line of the answer is cut here: a target may be a list of thousands of minions.
LINE_CHARACTERS = 1000


@dataclass
class Answer:
    """The cause, in a sentence; what it rests on; what to do; and what was not known."""

    cause: str
    text: str
    evidence: "list[str]"
    remedy: "list[str]"
    missing: "list[str]"


def answer(evidence):
    """Returns the first cause that applies; there is always one."""
    for cause in CAUSES:
        found = next(cause.rule(evidence), None)
        if found:
            text, *remedy = found
            missing = _missing(evidence) if cause.name in UNCERTAIN else []
            return Answer(cause.name, _line(text), _lines_of(_evidence(evidence)), _lines_of(remedy), _lines_of(missing))
    raise AssertionError("the last cause applies always")


def _line(text):
    return values.text(text, limit=LINE_CHARACTERS)


def _lines_of(texts):
    return [_line(text) for text in texts]


def render(answer):
    """Returns the answer as lines of text."""
    lines = [answer.text, *(f"  {line}" for line in answer.evidence)]
    for title, found in (("Missing", answer.missing), ("Remedy", answer.remedy)):
        if found:
            lines += [f"{title}:", *(f"  {line}" for line in found)]
    return "\n".join(lines)


def _evidence(e):
    return list(_lines(e))


def _lines(e):
    keys = ", ".join(sorted(e.keys)) or "none"
    yield f"key: {keys}" + (f", accepted {when(e.accepted_since)}" if e.accepted_since else "")
    if e.job:
        yield f"job {e.jid}: {e.job.fun} for {e.job.tgt} ({e.job.tgt_type}), by {e.job.user}, published {when(e.job.published)}"
        if e.job.expected is not None:
            expected = set(e.job.expected)
            yield f"returns: {len(expected & set(e.job.returned))} of {len(expected)} that were expected" + _nobody(e)
    elif e.jid:
        yield f"job {e.jid}: not in the job cache"
    if e.ret:
        yield "return: " + (f"{when(e.ret.at)}: " if e.ret.at else "") + e.ret.said
    yield f"master: Salt {e.master_version}" + (f", started {when(e.master_since)}" if e.master_since else "")
    yield "minion: " + "; ".join(_minion(e))
    if abs(e.skew) > CLOCK_SECONDS:
        yield f"clock: the minion's is {span(abs(e.skew))} {'ahead' if e.skew > 0 else 'behind'}"
    yield from _records(e)
    yield from (f"master's log: {line}" for _, _, line in e.log[-3:])
    yield from (f"rollout: {line}" for line in e.rollouts)


def _nobody(e):
    return "; nobody returned: look at the master first" if len(e.job.expected or []) > 2 and not e.job.returned else ""


def _minion(e):
    if e.version:
        yield f"Salt {e.version}"
    if e.answers is not None:
        yield "answers now" if e.answers else "does not answer now"
    if e.since:
        yield f"its process was started {when(e.since)}"
    if e.connection:
        yield e.connection
    if e.seen and not e.answers:
        yield f"last seen {when(e.seen)} ({e.seen_how})"


def _records(e):
    own = e.own
    if own.get("claimed") is not None:
        yield f"sidle: its minion has {'taken' if own['claimed'] else 'not taken'} the job"
    if own.get("stale"):
        yield f"minion: process {own['stale']} of the job is gone, and its proc file is still there"
    if own.get("queued"):
        yield f"minion: the job is in its queue: {own['queued']}"
    if own.get("cached"):
        yield "minion: its own job cache has the return"
    yield from (f"minion's log: {line}" for line in own.get("log", []))
    for switch in own.get("switches", []):
        down = f", downtime {switch['up'] - switch['down']:.1f} s from {when(e.here(switch['down']))}" if switch.get("down") else ", no downtime"
        yield f"switch {switch['id']}: {switch['purpose']} to {switch['to']}, mode {switch['mode']}, {switch['result']}{down}"
    if e.unfinished:
        jobs = ", ".join(f"{each['id']} ({each['what']})" for each in e.unfinished["unfinished"])
        yield f"sidle: process {e.unfinished['pid']} {e.unfinished['how']} at {e.unfinished['at']}; unfinished: {jobs}"
    if e.matches is not None:
        yield f"minion: the target {'matches' if e.matches else 'does not match'} it"
    if e.match_error:
        yield f"minion: evaluating the target gives: {e.match_error}"


def _missing(e):
    return list(_gaps(e))


def _gaps(e):
    if e.answers is False:
        if e.connected is None:
            yield f"whether it is connected: {e.connection or 'the master has no addresses of it'}"
        yield "what the host says of itself: it does not answer"
        return
    if e.own_lack:
        yield f"the minion's own record of the job: {e.own_lack}"
    if e.own and not e.own_lack:
        if e.own.get("claimed") is None:
            yield "sidle's record of taken jobs: no sidle runs the minion, or the job is older than an hour"
        if not e.own.get("log_is_detailed"):
            yield "the minion's log names jobs only with `log_level_logfile: info`"
        elif not e.log_tells:
            yield "the minion's log of that time"
        if not e.own.get("cache_jobs"):
            yield "the minion's own job cache: `cache_jobs: True` in its configuration"
    yield "past events: Salt keeps none without an event returner (`event_return` in the master's configuration)"
