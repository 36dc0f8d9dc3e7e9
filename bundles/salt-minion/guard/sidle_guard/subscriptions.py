"""How far the publications of each master have been read here, compared with another process of this minion.

Nothing relates what two subscribers have read: that the other process has heard nothing does not mean that nothing is on its way to this one.
A main loop that is behind holds minutes of publications in its socket. This process has caught up with another one when

- it has read the first publication that the other has read (a publisher sends to each subscriber in order), or
- its socket is quiet some time after the other's subscription stood.

A subscription that has ended or begun anew since then proves nothing: what was published in between never came there.
"""

import time

from .handshakes import MISSING
from .quiet import Quiet

# Longer than a publication is on its way.
STANDING_SECONDS = 2.0


def is_proven(peer):
    """Whether another process hears this master: it has answered, and the subscription stands as far as anybody can tell."""
    return bool(peer.get("address")) and peer.get("proven") is not None and peer.get("subscribed") != MISSING


class Subscription:
    """What is known of one master's publications."""

    def __init__(self):
        # Publications that are being decoded: that may take a sign-in.
        self.decoding = 0
        self.quiet = Quiet()
        # Since when each other process's subscription is known to stand, by its leader.
        self.stood = {}
        # The leaders of the processes that this one has caught up with.
        self.passed = set()
        # Which of their subscriptions that was, where they say it.
        self.numbers = {}
        self.anew = set()

    def forget(self, leader):
        """Begin anew with another process's subscription."""
        self.stood.pop(leader, None)
        self.passed.discard(leader)


class Subscriptions:
    """Those of all masters, by address; `heard(address, jid)` tells what has been read here."""

    def __init__(self, heard, one_of_a_list=False, clock=time.monotonic):
        self.heard = heard
        # Failover: another process may listen to another master of the list, and serves the minion by that.
        self.one_of_a_list = one_of_a_list
        self.clock = clock
        self._known = {}

    def _of(self, address):
        return self._known.setdefault(address, Subscription())

    def begin(self, address):
        """A publication has come out of the socket."""
        found = self._of(address)
        found.decoding += 1
        found.quiet.stir()

    def end(self, address):
        """It has been decoded, or could not be."""
        found = self._of(address)
        found.decoding -= 1
        found.quiet.stir()

    def look(self, addresses, starting, reports):
        """Once a round: `addresses` are those of the connected masters, with their names in the configuration; `starting`: Salt is just being
        given a job, and may read nothing until it has it."""
        now = self.clock()
        for address in addresses:
            found = self._of(address)
            found.quiet.look(now, starting or found.decoding > 0)
            for report in reports:
                self._compare(address, addresses[address], found, report, now)

    def _compare(self, address, name, found, report, now):
        leader = report.get("leader")
        self._follow(address, found, leader, report)
        proven = [peer for peer in report.get("peers", ()) if is_proven(peer)]
        theirs = next((peer for peer in proven if peer["address"] == address), None)
        if any(peer.get("address") == address and peer.get("subscribed") == MISSING for peer in report.get("peers", ())):
            # It is about to listen to this master.
            return
        # A master that the other process is not meant to listen to, or whose name is another's by now: what it has published until now is read here,
        # and no more.
        apart = self.one_of_a_list or all(peer.get("address") for peer in report.get("peers", ()) if peer.get("name") == name)
        if theirs is None and not (proven and apart):
            return
        stood = found.stood.setdefault(leader, now)
        first = theirs.get("first") if theirs and leader not in found.anew else None
        read = now - stood >= STANDING_SECONDS and found.quiet.lasts
        if read or (first is not None and self.heard(address, first)):
            found.passed.add(leader)

    @staticmethod
    def _follow(address, found, leader, report):
        """Forget what a subscription has proven that is not the same any more."""
        theirs = next((peer for peer in report.get("peers", ()) if peer.get("address") == address), None)
        number = theirs.get("subscribed") if theirs else None
        if number is None:
            return
        known = found.numbers.get(leader)
        if number == MISSING:
            found.forget(leader)
        elif known is None:
            found.numbers[leader] = number
        elif known != number:
            found.numbers[leader] = number
            found.forget(leader)
            # The first job that it has ever read says nothing of this subscription.
            found.anew.add(leader)

    def caught_up(self, address, leaders):
        """Whether all that was published before the subscriptions of these stood has been read here; without anybody nothing is known of that."""
        found = self._known.get(address)
        return found is not None and bool(leaders) and all(leader in found.passed for leader in leaders)
