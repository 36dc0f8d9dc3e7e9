"""The jobs of a trial that only another process has: it holds them or had to take them, and this one has not received them.

A job that came after the other process had read everything from before this one's subscription is *unheard*: this process should have received it.
Of an earlier one that is not known. It is explained if its id is lower than the first one received from the same master; else it is *doubtful* until
the other process has caught up for a while: a process that hears nothing misses a job of that time, too.
"""

import collections

from .decision import ORDERED

# As long as the supervisor waits for a job that is missing.
DOUBT_SECONDS = 15.0
# More are not needed to see that something is missing.
MOST = 1000
# Targets that name minions.
BY_ID = ("glob", "list", "pcre")
# Publications that are remembered: those of minutes.
MOST_RECEIVED = 10000


class Missing:
    """The missing jobs of all masters. `heard(address, jid)`, `first(address)`: what this process has received."""

    def __init__(self, heard, first, clock):
        self.heard = heard
        self.first = first
        self.clock = clock
        # (address, jid): (since when it is missing, whether it came after the subscription)
        self._jobs = collections.OrderedDict()
        self._caught_up = {}
        self._received = collections.OrderedDict()

    def receive(self, address, payload):
        """Note a publication that has come here. Its job may be none of this process's: two releases have other grains, and a target may name
        one of them alone. What names the minion is for both."""
        load = payload.get("load") if isinstance(payload, dict) else None
        if isinstance(load, dict) and "jid" in load and load.get("tgt_type", "glob") not in BY_ID:
            self._received[address, str(load["jid"])] = None
            while len(self._received) > MOST_RECEIVED:
                self._received.popitem(last=False)

    def look(self, role, reports):
        """Once a round; `reports`: those of the other processes that take jobs."""
        if role == "standby":
            # A trial begins, or begins again.
            self._jobs.clear()
            self._caught_up.clear()
        now = self.clock()
        for report in reports:
            for peer in report.get("peers", ()):
                self._note(report.get("leader"), peer, now)
        for address, jid in list(self._jobs):
            came = (address, jid) in self._received or self.heard(address, jid)
            if came or self._is_explained(address, jid, self._jobs[address, jid][1], now):
                del self._jobs[address, jid]

    def _note(self, leader, peer, now):
        address = peer.get("address")
        if peer.get("caught_up"):
            self._caught_up.setdefault((address, leader), now)
        else:
            self._caught_up.pop((address, leader), None)
        jobs = peer.get("unclaimed")
        if jobs is None:
            # A guard of an older release: it names only those that are certain.
            jobs = [(jid, True) for jid in peer.get("rescued", ())]
        for jid, certain in jobs:
            if len(self._jobs) < MOST:
                self._jobs.setdefault((address, jid), (now, certain))

    def _is_explained(self, address, jid, certain, now):
        if certain:
            return False
        first = self.first(address)
        if first and ORDERED.match(jid) and ORDERED.match(first) and jid < first:
            return True
        since = [at for (where, _), at in self._caught_up.items() if where == address]
        return bool(since) and now - min(since) >= DOUBT_SECONDS

    def unheard(self, address):
        """How many jobs of a master are unheard, and since when (None: none is)."""
        since = [at for (where, _), (at, certain) in self._jobs.items() if where == address and certain]
        return len(since), min(since, default=None)

    def doubtful(self, address):
        """How many are doubtful."""
        return sum(where == address and not certain for (where, _), (_, certain) in self._jobs.items())
