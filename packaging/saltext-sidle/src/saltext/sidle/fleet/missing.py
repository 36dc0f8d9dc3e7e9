"""Who did not return a job, and why: all silent minions of a job, in groups of one cause."""

import re
import shlex
from dataclasses import asdict, dataclass, field

from . import values, why
from .causes import CAUSES
from .evidence import CLOCK_SECONDS, when

#: With these causes a minion may be asked to run the job again, if it also answers, and surely did not receive it.
MISSED = ("missed-in-switch", "was-stopped", "not-yet-connected", "not-received", "target-not-understood")

#: The ids of a group are shown as far as this; the data have all.
IDS_CHARACTERS = 600

#: What stands for the id of a minion in what is said of several.
SOME = "ID"


class MissingError(Exception):
    """What is missing cannot be told, or cannot be run again: the message says why, and what can be done."""


@dataclass
class Group:
    """Minions with the same cause."""

    cause: str
    #: What is said of them, after their number.
    words: str
    minions: "list[str]"
    #: What is said of the first one.
    example: str
    remedy: "list[str]"


@dataclass
class Report:
    """A job, and who did not return it."""

    jid: str
    function: str
    tgt: str
    tgt_type: str
    user: str
    #: Seconds since the epoch.
    published: float
    expected: int
    missing: int
    groups: "list[Group]"
    #: Those that missed the job, and surely did not begin it.
    can_run_again: "list[str]"
    #: What would be run again, in full, and its digest; empty where nobody may run it.
    job: str = ""
    digest: str = ""
    notes: "list[str]" = field(default_factory=list)


def report(silent):
    """Returns the groups of all minions of `silent.Silent`, the largest first."""
    told, groups, again = [(each, why.answer(each)) for each in silent.minions], {}, []
    for each, answer in told:
        if is_sure(each, answer.cause):
            again.append(each.minion)
        groups.setdefault((answer.cause, _words(each, answer.cause)), []).append((each.minion, answer))
    made = [_group(cause, words, members) for (cause, words), members in groups.items()]
    made.sort(key=lambda group: (-len(group.minions), group.words))
    job = silent.job
    found = Report(
        silent.jid, job.fun, values.text(job.tgt, limit=IDS_CHARACTERS), job.tgt_type, job.user, job.published, silent.expected, len(told), made, sorted(again)
    )
    if silent.unasked:
        found.notes.append(f"{silent.unasked} minions were not asked, since so many are silent: they count as offline or as connected by what this master sees")
    return found


def is_sure(evidence, cause):
    """Returns whether a minion can run the job now, and surely did not begin it."""
    # With another clock than the master's, claims that were removed for their age look as if they had never been there.
    is_dated = abs(evidence.skew) <= CLOCK_SECONDS
    return bool(cause in MISSED and evidence.answers and evidence.received is False and is_dated)


def _words(evidence, cause):
    words = next(row.group for row in CAUSES if row.name == cause)
    if cause == "offline" and evidence.seen and evidence.job:
        return f"{words} since before the job" if evidence.seen < evidence.job.published else f"{words}, and seen after the job"
    if cause in ("target-not-understood", "sign-in-refused") and evidence.version:
        return f"{words} (Salt {evidence.version})"
    return words


def _group(cause, words, members):
    first, answer = members[0]
    remedy = answer.remedy if len(members) == 1 else [_of_some(line, first) for line in answer.remedy]
    return Group(cause, words, [minion for minion, _ in members], answer.text, remedy)


def _of_some(line, minion):
    return re.sub(rf"(?<![\w.-]){re.escape(minion)}(?![\w-]|\.\w)", SOME, line)


def render(report):
    """Returns the report as lines of text."""
    job = f"{report.function} for {report.tgt} ({report.tgt_type}), by {report.user}, published {when(report.published)}"
    lines = [f"Job {report.jid}: {job}", f"{report.missing:,} of {report.expected:,} minions have not returned it."]
    for group in report.groups:
        # Of one minion the sentence has more than the words of a group.
        said = f"1 {group.words}: {group.example}" if len(group.minions) == 1 else f"{len(group.minions):,} {group.words}"
        lines += ["", f"{said}  [{group.cause}]", f"    salt -L {shlex.quote(_ids(group.minions))} …", *(f"    Remedy: {line}" for line in group.remedy)]
    if report.can_run_again:
        words = f"{len(report.can_run_again):,} of them answer, and surely did not begin the job: {_ids(report.can_run_again)}"
        lines += ["", words]
    if report.digest:
        lines += [f"    {report.job}", f"    `salt-run sidle.missing {report.jid} run_again={report.digest}` runs this there, once: read it before"]
    return "\n".join([*lines, *(f"Note: {note}" for note in report.notes)])


def _ids(minions):
    """Returns ids as a list that a command takes, or the beginning of it."""
    shown, length = [], 0
    for minion in map(values.text, minions):
        length += len(minion) + 1
        if shown and length > IDS_CHARACTERS:
            return f"{','.join(shown)},… {len(minions) - len(shown):,} more (format=data has all)"
        shown.append(minion)
    return ",".join(shown)


def written(report):
    """Returns the report as data."""
    return asdict(report)
