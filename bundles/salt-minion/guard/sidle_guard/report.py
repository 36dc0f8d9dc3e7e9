"""The guard's report: the state of this process, for the supervisor and for the other guard."""

import json
import logging
import os

from .slot import replace_file, seconds_since_boot, start_time

log = logging.getLogger(__name__)
SCHEMA = 1
# While two processes run, a report that gets old must mean that its process hangs.
LONGEST_SILENCE_SECONDS = 1.0


class ReportFile:
    """Writes this slot's report when its content has changed or would get stale."""

    def __init__(self, slot):
        self.path = slot.path("slots", f"{slot.leader}.json")
        self._last = None
        self._written = 0.0
        self._failing = False
        self.fixed = {"schema": SCHEMA, "leader": slot.leader, "pid": os.getpid(),
                      "start_time": start_time(os.getpid())}

    def forget(self):
        """Write the report again at the next look: the file may be gone."""
        self._last = None

    def write(self, content, urgent):
        """Write `content` if it is new; `urgent`: also if the file gets old."""
        now = seconds_since_boot()
        if content == self._last and not (urgent and now - self._written >= LONGEST_SILENCE_SECONDS):
            return
        text = json.dumps({**self.fixed, **content, "updated": round(now, 2)})
        try:
            try:
                replace_file(self.path, text)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
                replace_file(self.path, text)
            self._last, self._written, self._failing = content, now, False
        except OSError as error:
            if not self._failing:
                log.error("sidle-guard: cannot write %s: %s", self.path, error)
            self._failing = True


class Others:
    """The reports of the other slots, read again when they were replaced."""

    def __init__(self, slot):
        self.slot = slot
        self._read = {}

    def report(self, leader):
        """The newest report of a slot; None: no valid one."""
        path = self.slot.path("slots", f"{leader}.json")
        try:
            found = os.stat(path)
            signature = (found.st_ino, found.st_mtime_ns)
            known = self._read.get(leader)
            if known is None or known[0] != signature:
                with open(path, encoding="utf-8") as file:
                    known = self._read[leader] = (signature, json.load(file))
            return known[1] if isinstance(known[1], dict) else None
        except (OSError, ValueError):
            return None

    def has_given_up(self, leader, serial):
        """Whether a slot has given up the singletons since the roles with this serial number, or has no process."""
        if start_time(leader) is None:
            return True
        report = self.report(leader)
        return bool(report) and report.get("singletons") is False and report.get("serial", -1) >= serial
