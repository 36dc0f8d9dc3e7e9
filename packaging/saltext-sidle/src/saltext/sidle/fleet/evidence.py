"""What is known of a minion that did not return a job, and what follows from it."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timezone

#: A difference of clocks that is worth a line: more than an answer takes.
CLOCK_SECONDS = 5

#: The first releases whose sign-in is of protocol version 3, by their major version. Later ones have it, earlier ones do not.
SIGN_IN_3 = {3006: 12, 3007: 4}

#: Refusals in the master's log, and what they look like there.
TOO_OLD, TOO_MANY, EXPIRED, UNSIGNED, OTHER_KEY = "too-old", "too-many", "expired", "unsigned", "other-key"


@dataclass
class Job:
    """A job as the master's job cache has it."""

    fun: str
    tgt: str
    tgt_type: str
    user: str
    #: Seconds since the epoch, by the master's clock.
    published: float
    #: The minions from whom the master expected a return; None: not on record.
    expected: "list[str] | None"
    returned: "list[str]"


@dataclass
class Return:
    """The return of the minion in question."""

    #: None: the job cache does not tell.
    at: "float | None"
    failed: bool
    #: The beginning of what it said.
    said: str


@dataclass
class Evidence:
    """All that was found. What could not be found out is None."""

    minion: str
    now: float
    jid: "str | None" = None
    job: "Job | None" = None
    ret: "Return | None" = None
    #: Of `accepted`, `pending`, `rejected`, `denied`.
    keys: "frozenset[str]" = frozenset()
    accepted_since: "float | None" = None
    master_version: str = ""
    master_is_up: "bool | None" = None
    master_since: "float | None" = None
    minimum_auth: int = 0
    max_minions: int = 0
    #: How long the master keeps jobs; 0: for ever.
    keep_seconds: int = 86400
    #: How long a command waits for a minion that does not say that it works on the job.
    patience: int = 15
    #: The target of the job matches it today, as the master sees it.
    matched_now: "bool | None" = None
    #: None: it was not asked.
    answers: "bool | None" = None
    version: "str | None" = None
    #: One of its addresses has a connection to the publisher. `connection` says which, or why that cannot be told.
    connected: "bool | None" = None
    connection: str = ""
    #: The last sign of life before the question, and what it was.
    seen: "float | None" = None
    seen_how: str = ""
    #: What `saltutil.find_job` says.
    running: "dict | None" = None
    #: The target of the job matches it, as the minion itself sees it; `match_error` is why it cannot tell.
    matches: "bool | None" = None
    match_error: "str | None" = None
    #: What `sidle.job` says; `own_lack` is why there is nothing.
    own: dict = field(default_factory=dict)
    own_lack: "str | None" = None
    #: Refusals in the master's log: kind, seconds since the epoch or None, line.
    log: "list[tuple[str, float | None, str]]" = field(default_factory=list)
    #: What the rollouts of this master say of it.
    rollouts: "list[str]" = field(default_factory=list)

    # --- what follows from it ------------------------------------------------------------------------------------------

    @property
    def skew(self):
        """Returns by how many seconds the minion's clock is ahead of the master's."""
        return self.own["now"] - self.now if "now" in self.own else 0.0

    def here(self, theirs):
        """Returns a time of the minion by the master's clock; differences as small as an answer takes do not count."""
        return theirs - (self.skew if abs(self.skew) > CLOCK_SECONDS else 0)

    @property
    def since(self):
        """Returns the start of the minion's process, by the master's clock."""
        return self.here(self.own["started"]) if self.own.get("started") else None

    @property
    def started_later(self):
        """Returns whether the minion's process was started after the job was published, and not beside the process before."""
        return bool(self.job and self.since and self.since > self.job.published and not self._was_handed_over)

    @property
    def _was_handed_over(self):
        """Returns whether the minion's process was started by a switch without a downtime: the process before took jobs until then."""
        spans = [(each.get("begun"), each.get("ended")) for each in self.own.get("switches", []) if each["result"] == "committed" and not each.get("down")]
        # A process's start is known to a second or so.
        return any(begun and ended and begun - 2 <= self.own["started"] <= ended + 2 for begun, ended in spans)

    def line(self, word):
        return next((line for line in self.own.get("log", []) if word in line), None)

    @property
    def log_tells(self):
        """Returns whether the minion's log would name the job if it had been received."""
        since = self.own.get("log_since")
        return bool(self.job and self.own.get("log_is_detailed") and since and self.here(since) < self.job.published)

    @property
    def received(self):
        """Returns whether the minion has received the job; None: not known."""
        own = self.own
        if any(own.get(name) for name in ("claimed", "stale", "cached", "queued", "log")) or self.running or self.unfinished:
            return True
        return False if own.get("claimed") is False or self.log_tells else None

    @property
    def returned(self):
        """Returns whether the minion says that it sent the return; None: not known."""
        if self.own.get("cached") or self.line("Returning information"):
            return True
        return False if self.received and self.log_tells else None

    @property
    def unfinished(self):
        """Returns what the supervisor noted of a process that ended with this job."""
        ended = self.own.get("ended") or {}
        return ended if any(str(each.get("id")) == self.jid for each in ended.get("unfinished", [])) else None

    @property
    def downtime(self):
        """Returns the switch in whose downtime the job was published."""
        return self._switch(lambda switch: switch["down"] <= self.job.published <= switch["up"])

    @property
    def cutting(self):
        """Returns the switch in mode `now` that ended the process after the job was published."""
        return self._switch(lambda switch: switch["mode"] == "now" and self.job.published < switch["down"])

    def _switch(self, fits):
        for switch in self.own.get("switches", []) if self.job else []:
            if not switch.get("down"):
                continue
            here = {**switch, "down": self.here(switch["down"]), "up": self.here(switch["up"])}
            if fits(here):
                return here
        return None

    @property
    def masters(self):
        """Returns the other masters of the minion."""
        own = self.own.get("master")
        return [each for each in self.own.get("masters", []) if each != own]

    def refused(self, kind):
        """Returns the newest such refusal in the master's log, if the minion was not seen since."""
        lines = [line for of, at, line in self.log if of == kind and (at is None or self.seen is None or at >= self.seen - CLOCK_SECONDS)]
        return lines[-1] if lines else None


def is_stale(own):
    """Returns whether the process of a job is gone, by what `sidle.job` says. To ask `saltutil.find_job` would delete the sign of it."""
    return isinstance(own, dict) and bool(own.get("stale"))


def when(seconds):
    """Returns a time as it is printed."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def span(seconds):
    """Returns a duration as it is printed."""
    seconds = max(0, round(seconds))
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def time_of(jid):
    """Returns when a job was published, by its id; None for an id that somebody chose."""
    if not re.fullmatch(r"\d{20}(_\d+)?", jid or ""):
        return None
    try:
        return datetime.strptime(jid[:20], "%Y%m%d%H%M%S%f").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def speaks_3(version):
    """Returns whether a Salt of this version signs in with protocol version 3; True for what is no version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return True
    major, minor = (*numbers, 0)[:2]
    return major > max(SIGN_IN_3) or minor >= SIGN_IN_3.get(major, minor + 1)


def time_of_line(line):
    """Returns when a line of a log was written, in the local zone of this host; None if it does not begin with a time."""
    found = re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", line)
    return datetime.strptime(found[0], "%Y-%m-%d %H:%M:%S").timestamp() if found else None
