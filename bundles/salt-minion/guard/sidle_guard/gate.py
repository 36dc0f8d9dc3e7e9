"""Jobs that arrive: claimed, held until the verdict, or dropped."""

import collections
import logging
import time

from . import claims as claim_files
from .decision import DROP, HOLD, RUN, decide, missed
from .owed import OwedClaims

log = logging.getLogger(__name__)
# Verdicts are kept for sub-jobs and repeated deliveries, which follow at once.
MOST_VERDICTS = 10000
# One is enough to find a process that hears nothing.
MOST_RESCUED = 20
# Those of some seconds: the other process remembers them from one report to the next.
MOST_UNCLAIMED = 100
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
        # All that it took because nobody else did, and whether the other process should have heard them.
        self.taken: collections.deque[tuple[str, bool]] = collections.deque(maxlen=MOST_UNCLAIMED)


class Gate:
    """The jobs of this process. `role()` gives its role, `run(minion, data)` starts a held job, `log(step, jid)` writes the job log,
    `caught_up(peer)`: whether the other process hears what comes now from this master; `beside()`: whether there is another process."""

    def __init__(self, claims, role, reports, run, log, caught_up=lambda peer: False, beside=lambda: True):
        self.claims = claims
        self.role = role
        self.reports = reports
        self.run = run
        self.log = log
        self.caught_up = caught_up
        self.beside = beside
        self.held = {}
        self.peers = collections.defaultdict(Peer)
        self._verdicts = collections.OrderedDict()
        self._judged = collections.OrderedDict()
        self.owed = OwedClaims(claims)
        self._last_role = None
        # When this process became the active one; what came before may run in the other one.
        self._active_since = 0.0
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
        if verdict == HOLD:
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

    def first(self, peer):
        """The id of the first job that came from a master; None: none has."""
        return self.peers[peer].first if peer in self.peers else None

    def unclaimed(self, peer):
        """The jobs of a master that this process holds, or took as nobody else did: [id, whether the other process should have heard it]."""
        held = [[held.jid, held.caught_up] for (where, _), held in self.held.items() if where == peer]
        taken = [list(job) for job in self.peers[peer].taken] if peer in self.peers else []
        return [*taken, *held[:MOST_UNCLAIMED]]

    def look_again(self):
        """Decide on held jobs, as far as possible by now."""
        self.owed.look(self.beside())
        role = self.role()
        if role == "active" and self._last_role != "active":
            self._active_since = time.monotonic()
            # The next trial begins without the jobs of the last one.
            for peer in self.peers.values():
                peer.taken.clear()
                peer.rescued.clear()
        self._last_role = role
        for key, held in list(self.held.items()):
            if self.claims.taken(held.claim):
                self.owed.seen(held.jid)
                verdict = DROP
            else:
                verdict = self._decide(held, role)
            if verdict == HOLD:
                continue
            del self.held[key]
            if self._conclude(key, verdict) == RUN:
                for minion, data in held.loads:
                    self.run(minion, data)

    def _note(self, peer, jid):
        found = self.peers[peer]
        found.first = found.first or jid
        found.last = jid
        found.count += 1

    def _decide(self, held, role):
        """RUN: it is claimed, and ours now; HOLD or DROP."""
        waited = time.monotonic() - held.since
        if self.owed.knows(held.jid):
            return DROP  # It runs already, through another master: also where the file that said so is gone.
        lost = role in ("draining", "closed") and missed(held.jid, held.peer, self.reports())
        # Claims of others are lost, too: they make them again before this process takes the job.
        waits = role == "active" and self.beside() and self.owed.are_lost()
        verdict = decide("standby" if waits else role, waited, held.closed, lost)
        if verdict != RUN:
            return verdict
        both = (held.claim, claim_files.name(ANY_PEER, held.jid))
        came_before = role != "active" or held.since < self._active_since
        if came_before and not lost and waited < OWED_SECONDS and self.claims.others_owe():
            return HOLD  # It may be running there; its claim is made as soon as there is room.
        taken = []
        try:
            for claim in both:
                if not self.claims.take(claim):
                    self.owed.seen(held.jid)
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
            self.owed.remember(claim, claim in taken)
        self.owed.seen(held.jid)
        if role != "active" and not lost:
            self.peers[held.peer].taken.append((held.jid, held.caught_up))
            if held.caught_up:
                self.peers[held.peer].rescued.append(held.jid)
        return RUN

    def take_unjudged(self, jid):
        """Whether a job that the gate did not judge may start: True if no process has claimed it. Claims it."""
        try:
            return self.claims.take(claim_files.name(ANY_PEER, jid))
        except OSError:
            return True  # Without claims the active process runs what it has.

    def _conclude(self, key, verdict):
        self.log("claimed" if verdict == RUN else "dropped", key[1])
        self._verdicts[key] = verdict
        while len(self._verdicts) > MOST_VERDICTS:
            self._verdicts.popitem(last=False)
        return verdict
