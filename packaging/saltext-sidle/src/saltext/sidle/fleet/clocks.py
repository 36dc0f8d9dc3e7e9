"""
Gaps in the time of a driver: the machine was paused, its clock was set, or the process was stopped. Nobody could see anything meanwhile.

The monotonic clock of Linux stands still while a virtual machine is suspended, and goes on while a process is stopped; the wall clock is set behind a suspension,
and by people.
"""

import time

#: Smaller differences between both clocks are no gap: time servers set a clock by less, and a rollout is more patient.
SLACK_SECONDS = 30

#: A step of the driver may take so long, with its jobs for a large fleet and the commands of the site: what is beyond is a gap, as nobody listens meanwhile.
STEP_SECONDS_MAX = 60


class Clock:
    """The wall clock (`now`), compared with the monotonic clock (`steady`)."""

    def __init__(self, now, steady=time.monotonic):
        self._now, self._steady = now, steady
        self._wall, self._mark = now(), steady()

    def gap(self):
        """Returns the seconds of the gap since the last call, and the time now: 0: there is none; less: the clock was set back."""
        wall, mark = self._now(), self._steady()
        passed = mark - self._mark
        unexplained = wall - self._wall - passed
        self._wall, self._mark = wall, mark
        return (unexplained if abs(unexplained) > SLACK_SECONDS else 0.0) + max(0.0, passed - STEP_SECONDS_MAX), wall
