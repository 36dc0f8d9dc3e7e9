"""What a minion missed: the jobs that were for it and that it did not return, each with its cause."""

import re
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone

from . import again, collect, values, why
from .causes import CAUSES
from .evidence import span, when
from .jobs import Away
from .missing import MissingError, is_sure
from .silent import BY_NAME, Master

#: So many jobs are looked into: each is a question to the minion.
JOBS_MAX = 300

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass
class Missed:
    """A job that a minion did not return."""

    jid: str
    function: str
    #: Seconds since the epoch.
    published: float
    cause: str
    #: What is said of the minion.
    words: str
    #: It surely did not begin there, and the minion answers.
    can_run_again: bool
    #: It was published once more for this minion.
    again: bool = False
    #: What would be run again, in full, and its digest; empty where it may not be.
    job: str = ""
    digest: str = ""

    @property
    def choice(self):
        """Returns what a person names who has seen it."""
        return f"{self.jid}/{self.digest}"


@dataclass
class Report:
    """What one minion did not return, the oldest job first."""

    minion: str
    since: float
    jobs: "list[Missed]"
    notes: "list[str]" = field(default_factory=list)


def seconds_of(text, now=None):
    """Returns the seconds of `30m`, `24h` or `7d`, or those since a time in UTC (`2026-11-24T09:12:00Z`). Raises `MissingError`."""
    text = str(text).strip()
    if re.fullmatch(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?", text):
        try:
            at = datetime.strptime(text.rstrip("Z").replace(" ", "T"), "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
        except ValueError:
            raise MissingError(f"cannot use since={text}: there is no such time") from None
        ago = (time.time() if now is None else now) - at
        if not 0 <= ago <= 365 * UNITS["d"]:
            raise MissingError(f"cannot use since={text}: it is a time of the last year, in UTC; by this master's clock it is {'to come' if ago < 0 else 'longer ago'}")
        return ago
    number, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS else (text, "s")
    if not (number.isascii() and number.isdigit()) or not 0 < int(number) * UNITS[unit] <= 365 * UNITS["d"]:
        raise MissingError(f"cannot use since={values.text(text)}: it is neither a span as 30m, 24h or 7d, of a year at most, nor a time in UTC as 2026-11-24T09:12:00Z")
    return int(number) * UNITS[unit]


def collect_jobs(opts, ask, minion, since):
    """Returns what the minion did not return of the last `since` seconds. `ask`: as `Bus.ask`."""
    master, begun = Master(opts), time.time() - since
    base = master.evidence(None, None, [minion], ())[0]
    jobs = []
    for jid, job in master.unreturned(minion, begun):
        jobs.append((jid, job))
        if len(jobs) > JOBS_MAX:
            break
    report = Report(minion, begun, [])
    if len(jobs) > JOBS_MAX:
        jobs.pop()
        report.notes.append(f"there are more: these are the newest {JOBS_MAX}; name a shorter time, as in since=1h")
    for each in _asked(ask, base, jobs):
        answer = why.answer(each)
        words = next(row.group for row in CAUSES if row.name == answer.cause)
        was_asked = minion in again.Again(opts).asked(each.jid)
        report.jobs.append(Missed(each.jid, each.job.fun, each.job.published, answer.cause, words, is_sure(each, answer.cause), was_asked))
    report.jobs.sort(key=lambda job: job.published)
    return report


def _asked(ask, base, jobs):
    """Yields the evidence of each job: what the minion says of it, as long as it answers."""
    running, answers_now = {}, None
    for jid, job in jobs:
        each = replace(base, jid=jid, job=job)
        if "accepted" in base.keys and answers_now is not False:
            told = _told(ask, each)
            if answers_now is None and told:
                running = {process.get("jid"): process for process in _one(ask, each, "saltutil.running", []) or () if isinstance(process, dict)}
            answers_now = bool(told)
            if told:
                matcher = next((name for name in told if name.startswith("match.")), None)
                collect.said(each, {**told, "saltutil.find_job": running.get(jid, {})}, matcher)
        each.answers = answers_now
        if matched_by_name(each):
            each.matches = True
        yield each


def _told(ask, each):
    each.now = time.time()
    own = _one(ask, each, "sidle.job", [each.jid])
    if own is None:
        return {}
    matcher = collect.MATCHERS.get(each.job.tgt_type) if not matched_by_name(each) else None
    return {"sidle.job": own, **({matcher: _one(ask, each, matcher, [each.job.tgt])} if matcher else {})}


def matched_by_name(each):
    """Returns whether the target matches the minion by its name alone: then nobody has to ask it."""
    matches = BY_NAME.get(each.job.tgt_type)
    return bool(matches and matches(each.minion, each.job.tgt))


def _one(ask, each, function, arguments):
    try:
        return ask([each.minion], function, arguments).get(each.minion)
    except Away as error:
        raise MissingError(f"cannot ask {each.minion}: {error}") from None


def chosen(report, wanted):
    """Returns the jobs of this list that surely did not begin: each is named by its id and by the digest of what was seen. Raises `MissingError`."""
    wanted = [str(each) for each in (wanted if isinstance(wanted, (list, tuple)) else [wanted])]
    unseen = [each for each in wanted if "/" not in each]
    if unseen:
        raise MissingError(
            f"cannot run {values.text(', '.join(unseen))} again unseen: any accepted minion can store another job under an id. `salt-run sidle.missed {report.minion}` "
            f"shows what would be run, and how each job is named; nothing was run"
        )
    names = {each.split("/", 1)[0] for each in wanted}
    unsure = sorted(names - {job.jid for job in report.jobs if job.can_run_again})
    if unsure:
        raise MissingError(f"cannot run {values.text(', '.join(unsure))} again: of these it is not sure that they did not begin on {report.minion}; nothing was run")
    digests = dict(each.split("/", 1) for each in wanted)
    return [replace(job, digest=digests[job.jid]) for job in report.jobs if job.jid in names]


def render(report):
    """Returns the report as lines of text."""
    time_span = span(time.time() - report.since)
    if not report.jobs:
        return "\n".join([f"{report.minion} has returned each job of the last {time_span} that was for it.", *(f"Note: {note}" for note in report.notes)])
    lines = [f"{len(report.jobs)} jobs of the last {time_span} have no return of {report.minion}:"]
    for job in report.jobs:
        kind = " (a state: it changes the host)" if job.function.startswith("state.") else ""
        lines.append(f"  {job.jid}  {when(job.published)}  {job.function}{kind}: {job.words}  [{job.cause}]{'; was run again' if job.again else ''}")
    sure = [job for job in report.jobs if job.digest and not job.again]
    if sure:
        lines += [
            f"{len(sure)} of them surely did not begin there:",
            *(f"  {job.jid}  {job.job}" for job in sure),
            "Read them, and run some of them, once, in this order:",
            f"  salt-run sidle.missed {report.minion} run='[{', '.join(job.choice for job in sure)}]'",
        ]
    return "\n".join([*lines, *(f"Note: {note}" for note in report.notes)])


def written(report):
    """Returns the report as data."""
    return asdict(report)
