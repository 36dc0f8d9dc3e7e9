"""Counts which functions of each kind of module this minion calls: names, days and numbers, never arguments.

Salt's loaders hand every function out in a `LoadedFunc`; its call is what counts. Each process counts for itself, and appends one line to
`slots/uses.log` in the gate's directory when it ends. The process with the singletons folds these lines into `sidle_uses.json` in the minion's
cachedir, which survives a boot of the machine; see docs/formats.md.
"""

import functools
import inspect
import logging
import multiprocessing.util
import os
import re
import sys
import time

from .slot import replace_file
from .tally import MOST_PAIRS, Count, UsesLog, today

log = logging.getLogger(__name__)
VARIABLE = "SIDLE_USES"
FILE_NAME = "sidle_uses.json"
LOG_NAME = "uses.log"
LONGEST_NAME = 120
# A function's name as Salt's loaders build it. Whoever reads the count may print it.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\Z")
# How often lines are folded, a new name is written, and numbers alone are written.
FOLD_SECONDS, NEW_SECONDS, NUMBERS_SECONDS = 1.0, 5.0, 600.0
# A process that lives long passes its count on so often; looked at in each of so many calls of one function.
PASS_SECONDS, PASS_CALLS = 60.0, 256
# Salt's names of loaders, and what manifests and rehearsals call the same kind.
KINDS = {"modules": "module", "rawmodule": "module", "top": "tops", "executors": "executor"}
# Every refresh calls all grains, and modules call Salt's utilities as they please: of these only files outside Salt's package tell of this host.
OWN_ONLY = ("grains", "utils")
# Execution modules and state modules of Salt call other functions by themselves; a release brings callers and called together. These are counted
# under a kind of their own. Some of Salt's modules call what a person has named.
BY_SALT = "module-by-salt"
CALLERS_OF_SALT = ("salt.loaded.int.module.", "salt.loaded.int.states.")
FOR_OTHERS = tuple(
    prefix + name
    for prefix, name in (
        (CALLERS_OF_SALT[0], "mine"), (CALLERS_OF_SALT[0], "test"), (CALLERS_OF_SALT[0], "schedule"), (CALLERS_OF_SALT[0], "snapper"),
        (CALLERS_OF_SALT[1], "module"), (CALLERS_OF_SALT[1], "loop"))
)  # fmt: skip
# What the minion itself calls by these names, whatever host it is on.
BY_MINION = frozenset(("config.get", "config.merge", "config.option", "sys.reload_modules", "saltutil.refresh_modules", "timezone.get_offset"))
# The call of such a function ends with its process.
ENDLESS = ("engines",)


def file_of(opts):
    """The file of a minion's count; None: it has no cachedir."""
    directory = opts.get("cachedir")
    return os.path.join(directory, FILE_NAME) if isinstance(directory, str) else None


class Counter:
    """The calls of one process. `append(counted)`: passes them on."""

    def __init__(self, append):
        self.append = append
        self.pid = os.getpid()
        self.passed = time.monotonic()
        # (kind as Salt's loader calls it, name): calls since they were passed on
        self.fresh = {}
        self.ignored = set()
        # By the name of a calling module: whether it is Salt's own, which calls by itself.
        self.callers = {}

    def called(self, function):
        """Count the call of a `LoadedFunc`, in the wrapper's frame: in every job, often."""
        kind = function.loader.tag
        if kind == "module":
            caller = sys._getframe(2).f_globals.get("__name__")
            kind = self.callers.get(caller) or self._kind_by(caller)
            if kind is BY_MINION and function.name not in BY_MINION:
                kind = "module"
        key = (kind, function.name)
        fresh = self.fresh
        if key in fresh:
            number = fresh[key] = fresh[key] + 1
            if not number % PASS_CALLS:
                self.pass_on_in_time()
        else:
            self._first(key, function)

    def _kind_by(self, caller):
        """The kind of an execution function's use, by the module that calls it."""
        name, kind = str(caller), "module"
        if name.startswith(CALLERS_OF_SALT):
            kind = "module" if name in FOR_OTHERS else BY_SALT
        elif name.startswith("salt.") and not name.startswith("salt.loaded."):
            kind = BY_MINION
        if len(self.callers) < MOST_PAIRS:
            self.callers[caller] = kind
        return kind

    def _first(self, key, function):
        try:
            kind, name = key
            if len(self.fresh) >= MOST_PAIRS:
                return
            self.fresh[key] = 1
            if kind is BY_MINION:
                self.ignored.add(key)
                return
            is_salts = kind in OWN_ONLY and not str(function.func.__module__).startswith("salt.loaded.ext.")
            if is_salts or len(name) > LONGEST_NAME or not NAME.match(name) or not NAME.match(kind):
                self.ignored.add(key)
            if kind in ENDLESS:
                self.pass_on()
            else:
                self.pass_on_in_time()
        except Exception:  # noqa: BLE001 - a job must not fail because of the count.
            pass

    def pass_on_in_time(self):
        """Pass the count of a long-lived process on. In main, that is the work of its loop."""
        if self.append is not None and time.monotonic() - self.passed >= PASS_SECONDS:
            self.pass_on()

    def take(self):
        """Give the calls since the last time: {(kind, name): number}."""
        fresh, self.fresh = self.fresh, {}
        self.passed = time.monotonic()
        counted = {}
        for (kind, name), number in list(fresh.items()):
            if (kind, name) not in self.ignored:
                key = KINDS.get(kind, kind), name
                counted[key] = counted.get(key, 0) + number
        return counted

    def pass_on(self):
        """Append the calls of this process to the log."""
        if self.append is None:
            return
        if self.pid != os.getpid():
            # Forked in a way that Python's multiprocessing does not know: what was counted before is the parent's.
            self.restart()
        counted = self.take()
        if counted:
            self.append(counted)

    def restart(self):
        """Begin anew in a child."""
        self.pid, self.fresh, self.passed = os.getpid(), {}, time.monotonic()


class Uses:
    """The count of a minion, as its main process keeps it. `path`: the file; None: nothing is counted."""

    def __init__(self, slot, path):
        self.path = path
        self.log = UsesLog(slot.path("slots", LOG_NAME))
        # Main appends nothing by itself: its loop takes what it has counted.
        self.counter = Counter(None)
        self.count = None
        # Counted by this process's folding, not yet in the file.
        self.unwritten = {}
        self.has_new = False
        self.looked = self.written = 0.0
        self.originals = []

    @staticmethod
    def wanted(environment):
        """Whether this minion's uses are to be counted; what a job starts does not inherit the word."""
        return environment.pop(VARIABLE, "on") != "off"

    def begin(self):
        """Wrap the call of every function that Salt's loaders hand out; gives why that is impossible, or None."""
        if self.path is None:
            return "the setting `count_uses` was false when this minion was started"
        import salt.loader.lazy as lazy

        classes = [getattr(lazy, name) for name in ("LoadedFunc", "LoadedCoro") if hasattr(lazy, name)]
        if not classes:
            self.path = None
            return "this Salt's loader hands out bare functions"
        for kind in classes:
            if "__call__" in vars(kind):
                original = kind.__call__
                self.originals.append((kind, original))
                kind.__call__ = _counting(self.counter, original)
        multiprocessing.util.register_after_fork(self, Uses._in_child)
        return None

    def end(self):
        """Unwrap."""
        for kind, original in self.originals:
            kind.__call__ = original
        self.originals.clear()

    def _in_child(self):
        """Begin anew in a child, which passes its count on when it ends."""
        self.counter.restart()
        self.counter.append = self.log.append
        multiprocessing.util.Finalize(None, self.counter.pass_on, exitpriority=5)

    def look(self, folds):
        """Once a round of the guard; `folds`: this process keeps the file, as the one with the singletons."""
        now = time.monotonic()
        if self.path is None or now - self.looked < FOLD_SECONDS:
            return
        self.looked = now
        if folds:
            self._fold()
            self._write_if_due(now)
        elif self.counter.fresh or self.unwritten:
            self._hand_over()

    def close(self, folds):
        """At the end of the process."""
        if self.path is None:
            return
        if folds:
            self._fold()
            self._fold()
            self._write(time.monotonic())
        else:
            self._hand_over()

    def _hand_over(self):
        """Leave to the process that folds what is not in the file."""
        counted = self.counter.take()
        for (kind, name, _), number in self.unwritten.items():
            counted[kind, name] = counted.get((kind, name), 0) + number
        self.count, self.unwritten, self.has_new = None, {}, False
        if counted:
            self.log.append(counted)

    def _fold(self):
        day = today()
        if self.count is None:
            self.count = self._read()
        if day not in self.count.days:
            self.count.days.add(day)
            self.has_new = True
        found = self.log.taken()
        found.extend((day, kind, name, number) for (kind, name), number in self.counter.take().items())
        for when, kind, name, number in found:
            self.has_new = self.count.add(when, kind, name, number) or self.has_new
            self.unwritten[kind, name, when] = self.unwritten.get((kind, name, when), 0) + number

    def _read(self):
        try:
            return Count.read(self.path)
        except (OSError, ValueError) as error:
            log.error("sidle-guard: cannot read %s: %s; the count of uses begins again", self.path, error)
            return Count()

    def _write_if_due(self, now):
        since = now - self.written
        is_due = (self.has_new and since >= NEW_SECONDS) or (self.unwritten and since >= NUMBERS_SECONDS)
        # `saltutil.clear_cache` removes it.
        if is_due or (since >= NEW_SECONDS and not os.path.exists(self.path)):
            self._write(now)

    def _write(self, now):
        if self.count is None:
            return
        self.written = now
        self.count.bound()
        replace_file(self.path, self.count.text(), 0o600)
        self.unwritten, self.has_new = {}, False


def _counting(counter, original):
    """Give a `__call__` that counts before it calls."""
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def call(self, *arguments, **options):
            counter.called(self)
            return await original(self, *arguments, **options)

    else:

        @functools.wraps(original)
        def call(self, *arguments, **options):
            counter.called(self)
            return original(self, *arguments, **options)

    return call
