"""Wakes a loop whose timers go by the wall clock, as those of Tornado in Salt 3006: set back by an hour, it runs no timer for an hour."""

import threading
import time

# A quiet minion is hardly woken more often by this, and its report does not get so old that the minion counts as silent.
INTERVAL_SECONDS = 3.0
LATE_SECONDS = 1.0


class Alarm:
    """Calls `act` on the loop once there was no `beat` for some time."""

    def __init__(self, loop, act):
        self.loop = loop
        self.act = act
        self._beat = time.monotonic()
        self._rings = False

    def begin(self):
        """Watch a loop that needs it. A job's process has no such thread: a fork takes none along."""
        if getattr(self.loop, "time_func", None) is time.time:
            threading.Thread(target=self._watch, name="sidle-guard", daemon=True).start()

    def beat(self):
        """Note that the loop's timer has come."""
        self._beat = time.monotonic()

    def _is_late(self):
        return time.monotonic() - self._beat > LATE_SECONDS

    def _watch(self):
        while True:
            # Up to Python 3.10 an Event waits by the wall clock, too.
            time.sleep(INTERVAL_SECONDS)
            # A loop that is blocked gets one call, not one for each interval.
            if self._is_late() and not self._rings:
                self._rings = True
                self.loop.add_callback(self._ring)

    def _ring(self):
        self._rings = False
        if self._is_late():
            self.act()
