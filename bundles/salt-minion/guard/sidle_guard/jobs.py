"""The jobs that this process has taken, until they have returned or their process is gone."""

import collections
import os
import re
import time

from .quiet import Quiet

# What a child wrote just before it ended may still lie in a socket: so long at least, and until main has nothing more to read on its bus.
LAST_WORDS_SECONDS = 1.0
# A bus that is never quiet is not listened to for ever.
LAST_WORDS_MAXIMUM_SECONDS = 120.0
# Names of functions are kept for jobs that are about to start; more than these don't start at once.
MOST_REMEMBERED = 5000
# What Salt calls the processes and threads of jobs (salt.minion, salt.utils.schedule).
NAME = re.compile(r"ProcessPayload\(jid=(?P<jid>.*)\)$|Schedule\(name=(?P<schedule>.*), jid=(?P<scheduled>.*)\)$")


class Job:
    """One job in a process (or thread) of its own."""

    def __init__(self, jid, what, process, master=None, schedule=None, goes_on=False, known=True):
        self.jid = jid
        self.what = what
        self.process = process
        # A thread (multiprocessing: False) runs in this very process.
        self.pid = getattr(process, "pid", None) or os.getpid()
        self.master = master
        self.schedule = schedule
        # Returners get the result after the master has it, and resources return one by one: such a
        # job has not ended with its first return.
        self.goes_on = goes_on
        self.known = known
        self.returned = False
        self.ended = None

    def is_over(self, now, quiet):
        """Whether nothing of it can come any more; `quiet`: main has read its bus to the end."""
        if self.returned and not self.goes_on:
            return True
        if self.ended is None and not _alive(self.process):
            self.ended = now
        if self.ended is None:
            return False
        since = now - self.ended
        return since >= LAST_WORDS_SECONDS and (quiet or since >= LAST_WORDS_MAXIMUM_SECONDS)


class Jobs:
    """All of them; `log(step, jid)` is told."""

    def __init__(self, log):
        self.log = log
        self.running = []
        self.starting = {}
        self.passing = 0
        # What was on its way before the guard was there.
        self.inherited = []
        # By job id: what its loads are, in the order in which they are started.
        self._known: collections.OrderedDict[str, collections.deque[tuple[str, bool]]] = collections.OrderedDict()
        # Main's bus: it reads one event a round.
        self.bus = Quiet()

    def look(self):
        """Once a round of the guard."""
        self.bus.look(time.monotonic())

    def remember(self, data, returners):
        """A job is about to be given to Salt: keep what its process's name doesn't say."""
        fun = data.get("fun")
        what = fun if isinstance(fun, str) else ",".join(map(str, fun or ()))
        goes_on = bool(data.get("ret") or returners or data.get("resource_targets"))
        # 3008: one job id has a load for each resource, and all of them may have been held.
        self._known.setdefault(str(data.get("jid")), collections.deque(maxlen=MOST_REMEMBERED)).append((what, goes_on))
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return what

    def _recall(self, jid):
        loads = self._known.get(jid)
        found = loads.popleft() if loads else ("", False)
        if not loads:
            self._known.pop(jid, None)
        return found

    def begin(self, data, what):
        """Salt is asked to start it; gives a token for `begun`."""
        token = object()
        self.starting[token] = (str(data.get("jid")), what)
        return token

    def begun(self, token):
        """Salt has started it, put it into its queue on disk, or knew it already."""
        self.starting.pop(token, None)

    def add(self, process, master, function_of_schedule, known=True):
        """A process or thread was started: a job's, if its name says so. `known` or not: its beginning was seen."""
        name = getattr(process, "name", "")
        found = NAME.match(name)
        if not known:
            # Whether it has returned, and to whom it still returns, nobody can tell: it has ended when its process has.
            jid = found and (found["jid"] or found["scheduled"])
            self.running.append(Job(jid or name, found["schedule"] or "" if found else "", process, master=master, goes_on=True, known=False))
            return
        if not found:
            return
        if found["schedule"] is not None:
            what = function_of_schedule(found["schedule"]) or found["schedule"]
            self.running.append(Job(found["scheduled"], what, process, schedule=found["schedule"]))
        else:
            self.log("started", found["jid"])
            what, goes_on = self._recall(found["jid"])
            self.running.append(Job(found["jid"], what, process, master=master, goes_on=goes_on))

    def returned(self, jid, master):
        """The master has acknowledged a return, or Salt gave it up."""
        self.log("sent", jid)
        for job in self.running:
            if job.jid == str(jid) and not job.returned and master in (job.master, None):
                job.returned = True
                return

    def schedule_returned(self, schedule, pid):
        """The same for a scheduled job, whose return names its process."""
        for job in self.running:
            if job.schedule == schedule and job.pid == pid and not job.returned:
                job.returned = True
                return

    def all_known(self):
        """Whether no job is left that began before the guard was there."""
        return all(job.known for job in self.running)

    @property
    def returning(self):
        """Returns and events that main passes on, not yet acknowledged."""
        self.inherited = [pending for pending in self.inherited if pending.is_alive()]
        return self.passing + len(self.inherited)

    def alive(self):
        """What still runs, as the report says it."""
        now = time.monotonic()
        self.running = [job for job in self.running if not job.is_over(now, self.bus.lasts)]
        told = [{"id": jid, "what": what, "pid": os.getpid()} for jid, what in self.starting.values()]
        return told + [{"id": job.jid, "what": job.what, "pid": job.pid} for job in self.running]


def published_jid(process):
    """The id of the published job whose process or thread this is, as Salt names it; None: it is no such job's."""
    found = NAME.match(getattr(process, "name", ""))
    return found and found["jid"]


def _alive(process):
    try:
        return process.is_alive()
    except (ValueError, AssertionError):
        return False  # Closed by Salt, which does that after the end.
