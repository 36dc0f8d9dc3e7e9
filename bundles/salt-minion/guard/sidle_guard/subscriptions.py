"""How far the publications of each master have been read here, compared with another process of this minion.

Nothing relates what two subscribers have read: that the other process has heard nothing does not mean that nothing is on its way to this one.
A main loop that is behind holds minutes of publications in its socket. This process has caught up with another one when

- it has read the first publication that the other has read (a publisher sends to each subscriber in order), or
- nothing has come out of its socket at some looks in a row, in a loop that ran, some time after the other's subscription stood: a socket with
  something in it is read in the next round of the loop.
"""

import time

# Longer than a publication is on its way.
STANDING_SECONDS = 2.0
# So many looks in a row at which nothing has come out of the socket: longer than libzmq's thread takes to go on reading, and short enough to be found
# between two jobs of a busy master.
QUIET_LOOKS = 3
# A loop that was blocked for longer between two looks may not have read its sockets.
LONGEST_GAP_SECONDS = 0.3


class Subscription:
    """What is known of one master's publications."""

    def __init__(self):
        # Publications that are being decoded: that may take a sign-in.
        self.decoding = 0
        self.stirred = True
        self.quiet_looks = 0
        # Since when each other process's subscription is known to stand, by its leader.
        self.stood = {}
        # The leaders of the processes that this one has caught up with.
        self.level = set()


class Subscriptions:
    """Those of all masters, by address; `heard(address, jid)` tells what has been read here."""

    def __init__(self, heard, one_of_a_list=False, clock=time.monotonic):
        self.heard = heard
        # Failover: another process may listen to another master of the list, and serves the minion by that.
        self.one_of_a_list = one_of_a_list
        self.clock = clock
        self._known = {}
        self._looked = 0.0

    def _of(self, address):
        return self._known.setdefault(address, Subscription())

    def begin(self, address):
        """A publication has come out of the socket."""
        found = self._of(address)
        found.decoding += 1
        found.stirred = True

    def end(self, address):
        """It has been decoded, or could not be."""
        found = self._of(address)
        found.decoding -= 1
        found.stirred = True

    def look(self, addresses, starting, reports):
        """Once a round: `addresses` are those of the connected masters, with their names in the configuration; `starting`: Salt is just being given a job, and may read nothing until it has it."""
        now = self.clock()
        gap = now - self._looked > LONGEST_GAP_SECONDS
        self._looked = now
        for address in addresses:
            found = self._of(address)
            quiet = not (gap or starting or found.stirred or found.decoding)
            found.quiet_looks = found.quiet_looks + 1 if quiet else 0
            found.stirred = False
            for report in reports:
                self._compare(address, addresses[address], found, report, now)

    def _compare(self, address, name, found, report, now):
        leader = report.get("leader")
        proven = [peer for peer in report.get("peers", ()) if peer.get("address") and peer.get("proven") is not None]
        theirs = next((peer for peer in proven if peer["address"] == address), None)
        # A master that the other process is not meant to listen to, or whose name is another's by now: what it has published until now is read here,
        # and no more.
        apart = self.one_of_a_list or all(peer.get("address") for peer in report.get("peers", ()) if peer.get("name") == name)
        if theirs is None and not (proven and apart):
            return
        stood = found.stood.setdefault(leader, now)
        first = theirs.get("first") if theirs else None
        quiet = now - stood >= STANDING_SECONDS and found.quiet_looks >= QUIET_LOOKS
        if quiet or (first is not None and self.heard(address, first)):
            found.level.add(leader)

    def caught_up(self, address, leaders):
        """Whether all that was published before the subscriptions of these stood has been read here; without anybody nothing is known of that."""
        found = self._known.get(address)
        return found is not None and bool(leaders) and all(leader in found.level for leader in leaders)
