"""Salt's queues on disk: their directories, the process that pops them, and jobs that an earlier process left.

Salt before 3006.21 and 3007.13 has none. 3006.21 to 25, 3007.13 and 14, and 3008.0 have them directly in `cachedir`, later ones
in a directory for each master. No release reads the directories of another layout.
"""

import contextlib
import glob
import json
import logging
import os
import sys
import time

from .slot import is_trusted, seconds_since_boot, start_time

log = logging.getLogger(__name__)
NONE, ONE, BY_MASTER = "none", "one for all masters", "one for each master"
NAMES = ("job_queue", "state_queue")
QUEUED, RUNNING, ENDING = "queued_", "running_", ".p"
# Prefix of jobs that were set aside: no Salt reads such names.
SET_ASIDE = "left_"
LOCK = "queue.lock"
# Salt holds its lock for milliseconds: whoever made one of this age is gone. It would wait a day for it.
LONGEST_LOCK_SECONDS = 60.0
# From the pop of a job to its process it takes milliseconds, too. Salt itself takes such a file for left after this time.
LONGEST_POP_SECONDS = 300.0
# A process whose report is older is not waited for.
LONGEST_SILENCE_SECONDS = 10.0


def layout(minion_class):
    """Which of the three layouts this Salt has."""
    if hasattr(sys.modules.get("salt.utils.state"), "job_queue_dir"):
        return BY_MASTER
    return ONE if hasattr(minion_class, "process_state_queue") else NONE


def waiting(directories, popped=lambda path: False):
    """The paths of jobs that wait in these directories; and of those that were popped, of which `popped` says so."""
    found = []
    for directory in directories:
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in sorted(names):
            path = os.path.join(directory, name)
            if name.endswith(ENDING) and (name.startswith(QUEUED) or (name.startswith(RUNNING) and popped(path))):
                found.append(path)
    return found


class Queues:
    """The queues of this process."""

    def __init__(self, guard):
        self.guard = guard
        # One that never had the singletons has queued nothing: what lies in its queues is of another time.
        self.had_singletons = False
        self._layout = None
        # What the processes before this one have reported; None: not looked at yet, or done with.
        self._former = None
        self._forgotten = False
        # What lay there before this process had run any job; None: not looked at.
        self._found = None
        self._settled = set()
        # Locks and popped jobs, by when they were seen first.
        self._since = {}

    # Directories.

    @property
    def layout(self):
        """The layout of this Salt."""
        module = sys.modules.get("salt.minion")
        if self._layout is None and module is not None:
            self._layout = layout(module.Minion)
        return self._layout

    def of(self, opts):
        """The directories of one minion object."""
        if self.layout == BY_MASTER:
            state = sys.modules["salt.utils.state"]
            return [state.job_queue_dir(opts), state.state_queue_dir(opts)]
        return [os.path.join(opts["cachedir"], name) for name in NAMES] if self.layout == ONE else []

    def directories(self):
        """Those that this process pops when it has the singletons."""
        return sorted({directory for minion in self.guard.minions() for directory in self.of(minion.opts)})

    def note(self, opts):
        """Before the first minion object of this process: what waits already, in all paths."""
        if self._found is None:
            paths = [opts["cachedir"], *glob.glob(os.path.join(glob.escape(opts["cachedir"]), "queues", "*"))]
            self._found = set(waiting([os.path.join(path, name) for path in paths for name in NAMES], lambda path: True))

    # Which process.

    def _others(self):
        """The reports of other processes that can be waited for."""
        roles = self.guard.roles()
        leaders = [leader for leader in roles.slots if leader != self.guard.slot.leader] if roles else []
        now = seconds_since_boot()
        reports = filter(None, map(self.guard.others.report, leaders))
        return [report for report in reports if now - report.get("updated", 0.0) <= LONGEST_SILENCE_SECONDS]

    def _popped_by_the_active(self):
        named = [report.get("queues") or () for report in self._others() if report.get("role") == "active"]
        return {directory for directories in named for directory in directories}

    def pops(self, minion):
        """Whether this process may pop the queues of a minion object now."""
        guard = self.guard
        role = guard.role()
        if role == "active" and guard.singletons.held:
            guard.attempt("look after queued jobs", lambda: self._settle(minion))
            # First what another one still has in queues that this Salt does not read: it waits for longer, and the locks are not the same.
            return not any(report.get("queued") for report in self._others())
        # No other process will.
        return role in ("draining", "closed") and self.had_singletons and not self._popped_by_the_active().issuperset(self.of(minion.opts))

    def left(self):
        """How many jobs wait that no other process will pop."""
        if not self.had_singletons or not self.guard.beside_others():
            return 0
        directories = set(self.directories()) - self._popped_by_the_active()
        return len(waiting(sorted(directories), lambda path: self._age(path) < LONGEST_POP_SECONDS))

    def _age(self, path):
        """Seconds since this process first saw this very file."""
        try:
            found = os.stat(path)
        except OSError:
            return 0.0
        now = time.monotonic()
        known = (path, found.st_ino, found.st_mtime_ns)
        if self._since.get(path, (None,))[0] != known:
            self._since[path] = (known, now)
        return now - self._since[path][1]

    # Locks.

    def someone_lives_beside(self):
        """Whether another process of this minion may hold the lock."""
        roles = self.guard.roles()
        if roles is None:
            return self.guard.started_by_switch()
        return any(leader != self.guard.slot.leader and start_time(leader) is not None for leader in roles.slots)

    @contextlib.contextmanager
    def locks_kept(self):
        """Salt removes the lock at each start, as a crash may have left it: not while it may be another process's."""
        if not self.someone_lives_beside():
            yield
            return
        remove = os.remove

        def kept(path, *arguments, **options):
            if isinstance(path, str) and path.endswith(LOCK):
                raise FileExistsError(f"{path} may be another process's")
            return remove(path, *arguments, **options)

        os.remove = kept
        try:
            yield
        finally:
            os.remove = remove

    def clean(self):
        """Remove locks, and set jobs aside, that a killed process left. The process with the singletons does this now and then."""
        parents = {os.path.dirname(directory) for directory in self.directories()}
        locks = [path for parent in parents for path in glob.glob(os.path.join(glob.escape(parent), f"*{LOCK}"))]
        for path in locks:
            if self._age(path) >= LONGEST_LOCK_SECONDS:
                log.warning("sidle-guard: removing %s: it was left by a process that is gone", path)
                os.remove(path)
        for path in waiting(self.directories(), lambda path: self._age(path) >= LONGEST_POP_SECONDS):
            if os.path.basename(path).startswith(RUNNING):
                log.error("sidle-guard: the job in %s may not have been run: its process was killed as it began", path)
                _set_aside(path)
        self._since = {path: seen for path, seen in self._since.items() if os.path.exists(path)}

    # Jobs of earlier processes.

    def take_up(self):
        """This process has the singletons from now on."""
        first, self.had_singletons = not self.had_singletons, True
        if not first:
            self._settled.clear()
        guard = self.guard
        self._former = []
        slots = guard.slot.path("slots")
        for name in os.listdir(slots) if os.path.isdir(slots) else ():
            if name.endswith(".json") and name != f"{guard.slot.leader}.json":
                path = os.path.join(slots, name)
                with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
                    report = json.load(file)
                    if "queue_layout" in report and is_trusted(path):
                        self._former.append(report)
        self._former.sort(key=lambda report: report.get("updated", 0.0))
        last = self._former[-1:] if first and guard.started_by_switch() else []
        self._forgotten = bool(last) and last[0]["queue_layout"] != self.layout
        if self.layout == NONE:
            self._tell_of_orphans()

    def _dead(self):
        """The reports of processes that are gone, and had their queues elsewhere."""
        return [report for report in self._former or () if report["queue_layout"] != self.layout and start_time(report["leader"]) is None]

    def _tell_of_orphans(self):
        for report in self._dead():
            for path in waiting(report.get("queues") or ()):
                log.error("sidle-guard: the job in %s will not be run: this Salt has no queue, and the process that queued it is gone", path)

    def _settle(self, minion):
        """Once for each minion object: jobs that another time has left are not run, those of a process that is gone just now are."""
        own = tuple(self.of(minion.opts))
        if self._former is None or own in self._settled:
            return
        self._settled.add(own)
        if self._forgotten:
            for path in (self._found or set()).intersection(waiting(own, lambda path: True)):
                log.error("sidle-guard: the job in %s was queued before another release ran here, and is not run any more", path)
                _set_aside(path)
        for report in self._dead():
            for path in waiting(report.get("queues") or ()):
                folder, name = os.path.split(path)
                target = next((directory for directory in own if os.path.basename(directory) == os.path.basename(folder)), None)
                if target:
                    log.info("sidle-guard: taking over the queued job %s", path)
                    os.makedirs(target, exist_ok=True)
                    os.rename(path, os.path.join(target, name))


def _set_aside(path):
    """Rename a job so that no Salt runs it and an administrator finds it."""
    folder, name = os.path.split(path)
    os.rename(path, os.path.join(folder, SET_ASIDE + name))
