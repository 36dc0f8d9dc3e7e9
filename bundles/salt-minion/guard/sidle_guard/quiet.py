"""Whether main has read something to its end: nothing came out of it at some looks in a row, in a loop that ran."""

# What has something in it is read in the next round of the loop. So many looks are longer than libzmq's thread takes to go on reading, and short enough to
# be found between two jobs of a busy master.
LOOKS = 3
# A loop that was blocked for longer between two looks may not have read.
LONGEST_GAP_SECONDS = 0.3


class Quiet:
    """Of one source."""

    def __init__(self):
        self._stirred = True
        self._looks = 0
        self._looked = 0.0

    def stir(self):
        """Something has come out of it."""
        self._stirred = True

    def look(self, now, busy=False):
        """Once a round of the guard; `busy`: what came out last is not dealt with yet, and the next may not be read before it is."""
        quiet = not (self._stirred or busy) and now - self._looked <= LONGEST_GAP_SECONDS
        self._looks = self._looks + 1 if quiet else 0
        self._looked, self._stirred = now, False

    @property
    def lasts(self):
        """Whether it was quiet for long enough."""
        return self._looks >= LOOKS
