"""The claims that this process has made or seen, and those of them that are not on disk: a claim that vanished is a lost claim, never a free job.

A claim may fail (no space), or vanish with its directory, or alone: cleaners of files go by age, people by names. Another process that is behind
looks for the claim before it takes the job, so each claim is made again as soon as it is missed.
"""

import collections
import time

from .decision import PATIENCE_SECONDS

# How long a claim that cannot be made is owed: longer than any process holds a job.
OWED_SECONDS = 60.0
# While another process lives: longer than it is behind with its publications. Shorter than claims are kept: what was removed for its age is
# not lost.
REMEMBERED_SECONDS = 1800.0
MOST_REMEMBERED = 10000
# How many claims are looked for at one look, at least; and after how many looks all of them were.
LOOKED_FOR = 50
LOOKS_FOR_ALL = 10


class OwedClaims:
    """Those of one process."""

    def __init__(self, claims):
        self.claims = claims
        # When each was made.
        self._mine: collections.OrderedDict[str, float] = collections.OrderedDict()
        # The order in which they are looked for.
        self._round: collections.deque[str] = collections.deque()
        # Since when each is owed.
        self._owed: dict[str, float] = {}
        # Ids of jobs that some process has claimed, as this one has seen.
        self._seen: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._lost_at: float | None = None

    def remember(self, claim, on_disk):
        """Note a claim that this process has made, or owes."""
        self._mine[claim] = time.monotonic()
        self._round.append(claim)
        if not on_disk:
            self._owed[claim] = self._mine[claim]

    def seen(self, jid):
        """Note that this job is claimed, by whomever."""
        self._seen[jid] = None
        while len(self._seen) > MOST_REMEMBERED:
            self._seen.popitem(last=False)

    def knows(self, jid):
        """Whether this job is claimed, also where its files are gone."""
        return jid in self._seen

    def are_lost(self):
        """Whether claims have vanished just now: those of other processes may be missing for as long as a job waits."""
        if self._mine and not (self._is_there(next(reversed(self._mine))) and self._is_there(next(iter(self._mine)))):
            self._miss_all()
        return self._lost_at is not None and time.monotonic() - self._lost_at < PATIENCE_SECONDS

    def look(self, beside):
        """Once a round: make what is missing; `beside`: another process lives, and may look for them."""
        owing = bool(self._owed)
        self._forget(REMEMBERED_SECONDS if beside else OWED_SECONDS)
        if len(self._round) > 2 * len(self._mine) + LOOKED_FOR:
            # A process alone searches for nothing, and would keep the name of each claim for ever.
            self._round = collections.deque(dict.fromkeys(claim for claim in self._round if claim in self._mine))
        if beside:
            self._search()
        try:
            for claim in list(self._owed):
                self.claims.take(claim)
                self._owed.pop(claim, None)
            self.claims.prepare()
        except OSError:
            pass  # The next look does it.
        # Paid, or so old that no process holds the job any more.
        if owing and not self._owed:
            self.claims.owe(False)

    def _forget(self, age_seconds):
        now = time.monotonic()
        while self._mine and (next(iter(self._mine.values())) < now - age_seconds or len(self._mine) > MOST_REMEMBERED):
            self._owed.pop(self._mine.popitem(last=False)[0], None)
        for claim, since in list(self._owed.items()):
            if since < now - OWED_SECONDS:
                # It can never be made, and is no lost one.
                del self._owed[claim]
                self._mine.pop(claim, None)

    def _search(self):
        """Look for the oldest and the newest claim, and for some others; if one is missing, for all."""
        if self.are_lost():
            self._miss_all()
            return
        count = max(LOOKED_FOR, len(self._mine) // LOOKS_FOR_ALL)
        some = [self._round.popleft() for _ in range(min(count, len(self._round)))]
        some = [claim for claim in some if claim in self._mine]
        self._round.extend(some)
        if not all(map(self._is_there, some)):
            self._miss_all()

    def _is_there(self, claim):
        return claim in self._owed or self.claims.taken(claim)

    def _miss_all(self):
        missing = [claim for claim in self._mine if not self._is_there(claim)]
        if missing:
            self._lost_at = time.monotonic()
            self._owed.update(dict.fromkeys(missing, self._lost_at))
