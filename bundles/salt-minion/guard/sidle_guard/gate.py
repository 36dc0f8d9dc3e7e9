"""Jobs that arrive: claimed, held until the verdict, or dropped."""

import collections
import logging
import time

from . import claims as claim_files
from .decision import CLAIM, DROP, WAIT, decide, missed

log = logging.getLogger(__name__)
RUN, HOLD = "run", "hold"
# Verdicts are kept for sub-jobs and repeated deliveries, which follow at once.
MOST_VERDICTS = 10000
# One is enough to find a process that hears nothing.
MOST_RESCUED = 20
# A lost claim is made again for this long: longer than any process holds a job.
REMEMBERED_SECONDS = 60.0
# Longest hold of a job whose claim another process may owe.
OWED_SECONDS = 30.0
# Salt hands a job that waited in its queue on disk to the same method again.
FROM_QUEUE = ("__ignore_process_count_max", "_job_queue_file", "_state_queue_file")
# One job may come through two masters (two syndics, one master with two addresses). Salt runs it once
# as it remembers ids alone; two processes remember them by a claim that no master's name is part of.
ANY_PEER = "any"
# The id of the job for `startup_states`, in every minion at every start.
STARTUP = "req"


class Held:
    """A job without a verdict yet, with its deliveries."""

    def __init__(self, claim, peer, jid, closed, caught_up=False):
        self.claim = claim
        self.peer = peer
        self.jid = jid
        self.closed = closed
        # It was published after the other process's subscription stood.
        self.caught_up = caught_up
        self.since = time.monotonic()
        self.loads = []


class Peer:
    """The jobs of one master."""

    def __init__(self):
        self.first = None
        self.last = None
        self.count = 0
        # Jobs that this process took because the other process, which should have heard them, did not.
        self.rescued: collections.deque[str] = collections.deque(maxlen=MOST_RESCUED)


class Gate:
    """The jobs of this process. `role()` gives its role, `run(minion, data)` starts a held job, `log(step, jid)` writes the job log,
    `caught_up(peer)`: whether the other process hears what comes now from this master."""

    def __init__(self, claims, role, reports, run, log, caught_up=lambda peer: False):
        self.claims = claims
        self.role = role
        self.reports = reports
        self.run = run
        self.log = log
        self.caught_up = caught_up
        self.held = {}
        self.peers = collections.defaultdict(Peer)
        self._verdicts = collections.OrderedDict()
        self._judged = collections.OrderedDict()
        # Recent claims of this process and their times; `_owed`: claims that are not on disk.
        self._mine = collections.OrderedDict()
        self._owed = set()
        self._directory = None
        self._complained = False

    def arrive(self, minion, data):
        """Decide on a job that Salt has received; RUN, HOLD (it is kept here) or DROP."""
        jid = str(data["jid"])
        self.admit(jid)
        if jid == STARTUP or any(key in data for key in FROM_QUEUE):
            return RUN
        peer = str(minion.opts.get("master_uri"))
        key = (peer, jid)
        if data.get("resource_job") and key in self._verdicts:
            # 3008: one job per resource, with the id of the job that it is part of, and its verdict.
            return self._verdicts[key]
        if key in self.held:
            if data.get("resource_job"):
                self.held[key].loads.append((minion, data))
            return HOLD
        if key in self._verdicts:
            self.log("again", jid)
            return DROP  # Delivered twice.
        self._note(peer, jid)
        self.log("heard", jid)
        role = self.role()
        held = Held(claim_files.name(peer, jid), peer, jid, role == "closed", self.caught_up(peer))
        verdict = self._decide(held, role)
        if verdict == WAIT:
            held.loads.append((minion, data))
            self.held[key] = held
            return HOLD
        return self._conclude(key, verdict)

    def admit(self, jid):
        """Allow a process for this job id: the gate judged the job, or the job is older than the guard."""
        self._judged[str(jid)] = None
        while len(self._judged) > MOST_VERDICTS:
            self._judged.popitem(last=False)

    def has_judged(self, jid):
        """Whether the gate judged a job with this id."""
        return str(jid) in self._judged

    def heard(self, peer, jid):
        """Whether this process received that master's job, whatever its verdict."""
        return (peer, jid) in self._verdicts or (peer, jid) in self.held

    def unheard(self, peer, reports):
        """How many jobs of a master another process reports as taken because this process did not hear them."""
        rescued = {jid for report in reports for found in report.get("peers", ())
                   if found.get("address") == peer for jid in found.get("rescued", ())}
        return sum(not self.heard(peer, jid) for jid in rescued)

    def look_again(self):
        """Decide on held jobs, as far as possible by now."""
        self._pay()
        if not self.held:
            return
        role = self.role()
        for key, held in list(self.held.items()):
            if self.claims.taken(held.claim):
                verdict = DROP
            else:
                verdict = self._decide(held, role)
            if verdict == WAIT:
                continue
            del self.held[key]
            if self._conclude(key, verdict) == RUN:
                for minion, data in held.loads:
                    self.run(minion, data)

    def _remember(self, claim, on_disk):
        self._mine[claim] = time.monotonic()
        if not on_disk:
            self._owed.add(claim)

    def _pay(self):
        """Make claims that failed (no space) or were lost with their directory: another process that holds the job looks for the
        claim before it takes the job."""
        owing = bool(self._owed)
        oldest = time.monotonic() - REMEMBERED_SECONDS
        while self._mine and next(iter(self._mine.values())) < oldest:
            self._owed.discard(self._mine.popitem(last=False)[0])
        directory = self.claims.signature()
        if directory != self._directory:
            if self._directory is not None:
                self._owed.update(self._mine)
            self._directory = directory
        try:
            for claim in list(self._owed):
                self.claims.take(claim)
                self._owed.discard(claim)
            self.claims.prepare()
        except OSError:
            pass  # The next look does it.
        # Paid, or so old that no process holds the job any more.
        if owing and not self._owed:
            self.claims.owe(False)

    def _note(self, peer, jid):
        found = self.peers[peer]
        found.first = found.first or jid
        found.last = jid
        found.count += 1

    def _decide(self, held, role):
        """CLAIM: it is ours now; WAIT or DROP."""
        waited = time.monotonic() - held.since
        lost = role in ("draining", "closed") and missed(held.jid, held.peer, self.reports())
        verdict = decide(role, waited, held.closed, lost)
        if verdict != CLAIM:
            return verdict
        both = (held.claim, claim_files.name(ANY_PEER, held.jid))
        if role != "active" and not lost and waited < OWED_SECONDS and self.claims.others_owe():
            return WAIT  # It may be running there; its claim is made as soon as there is room.
        taken = []
        try:
            for claim in both:
                if not self.claims.take(claim):
                    return DROP
                taken.append(claim)
        except OSError as error:
            if not self._complained:
                log.error("sidle-guard: cannot claim jobs in %s: %s", self.claims.directory, error)
            self._complained = True
            if role != "active" and not lost:
                for claim in taken:
                    self.claims.drop(claim)
                return DROP  # Without claims the active process runs everything that it hears.
            # Never lose a job for lack of a directory.
            self.claims.owe(True)
        for claim in both:
            self._remember(claim, claim in taken)
        if role != "active" and not lost and held.caught_up:
            self.peers[held.peer].rescued.append(held.jid)
        return CLAIM

    def take_unjudged(self, jid):
        """Whether a job that the gate did not judge may start: True if no process has claimed it. Claims it."""
        try:
            return self.claims.take(claim_files.name(ANY_PEER, jid))
        except OSError:
            return True  # Without claims the active process runs what it has.

    def _conclude(self, key, verdict):
        self.log("claimed" if verdict == CLAIM else "dropped", key[1])
        verdict = RUN if verdict == CLAIM else DROP
        self._verdicts[key] = verdict
        while len(self._verdicts) > MOST_VERDICTS:
            self._verdicts.popitem(last=False)
        return verdict
