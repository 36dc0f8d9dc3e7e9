"""Whether main has read a source to its end: nothing came out of it at several looks in a row, in a loop that ran."""

# The loop reads a source that is not empty in its next round. Three looks are longer than libzmq's thread pauses, and short
# enough to fit between two jobs of a busy master.
LOOKS = 3
# A loop that was blocked for longer between two looks may not have read.
LONGEST_GAP_SECONDS = 0.3


class Quiet:
    """The state of one source."""

    def __init__(self):
        self._stirred = True
        self._looks = 0
        self._looked = 0.0

    def stir(self):
        """Note that something came out of the source."""
        self._stirred = True

    def look(self, now, busy=False):
        """Once a round of the guard; `busy`: the last item is not handled yet, and main may read no more before that."""
        quiet = not (self._stirred or busy) and now - self._looked <= LONGEST_GAP_SECONDS
        self._looks = self._looks + 1 if quiet else 0
        self._looked, self._stirred = now, False

    @property
    def lasts(self):
        """Whether the source was quiet for long enough."""
        return self._looks >= LOOKS
