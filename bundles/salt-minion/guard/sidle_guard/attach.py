"""Attaches the guard to a running minion of a package, which started without it.

A grain that sidle writes for a moment calls `arm` in the minion's main process. Functions that
Salt looks up at every call are wrapped as at a start. References that Salt keeps since its start are replaced here:
the periodic callbacks of the queues on disk, the sockets, the engines, and the jobs that run already.
"""

import contextvars
import gc
import inspect
import logging
import sys
import time
import types

from . import paths, wraps
from .guard import Guard
from .jobs import Job
from .masters import configured_name
from .slot import Slot

log = logging.getLogger(__name__)
# Their callbacks are bound methods of the minion objects; all others look up what they call.
CAPTURED = {"process_queue": "process_process_queue", "state_queue": "process_state_queue"}
PAYLOAD = "_handle_decoded_payload"
BUS = "handle_event"
# A request to a master has ended by then with all its retries; what still hangs there will hang for ever.
LONGEST_PASSING_SECONDS = 120.0
ARMED = []


def arm(gate, leader):
    """Attach the guard to this process; if that is impossible, the report says why."""
    guard = next((guard for guard in ARMED if guard.acts()), None)
    if guard:
        # Asked once more: the report may have been swept away with the gate.
        guard.report_file.forget()
        return guard
    module = sys.modules["salt.minion"]
    managers = [found for found in gc.get_objects() if issubclass(type(found), module.MinionManager) and found.minions]
    slot = Slot(gate, leader, "active")
    if len(managers) != 1:
        raise RuntimeError(f"this process has {len(managers)} connected minion managers, not one")
    guard = Guard(managers[0], slot, paths.Paths(slot))
    guard.overlap = _refused(guard, module)
    wraps.wrap_all(guard)
    if guard.overlap:
        # Nothing was changed.
        guard.write_report()
        return guard
    ARMED.append(guard)
    _take_over(guard)
    _follow_restarts(guard, module)
    # The grain's context is the loader's: what is scheduled now must not keep it for ever.
    contextvars.Context().run(guard.begin)
    return guard


def _refused(guard, module):
    kind = type(guard.manager)
    if kind._create_minion_object is not module.MinionManager._create_minion_object:
        return f"{kind.__name__} makes minions of another kind"
    other = next((type(minion).__name__ for minion in guard.minions() if type(minion) is not module.Minion), None)
    if other:
        return f"{other} is not an ordinary minion"
    guard.paths.inherit(guard.opts)
    return guard.paths.refused


def _take_over(guard):
    """Take over what began before the guard was there."""
    guard.announced = True
    guard.bus_is_captured = guard.inherited = True
    guard.singletons.held = guard.queues.had_singletons = True
    guard.opts["sock_dir"] = guard.paths.sock_dir
    for minion in guard.minions():
        minion._sidle_master = configured_name(guard.opts, minion.opts)
        # Its own returns must go over its own bus, wherever the default paths lead.
        minion.opts["sock_dir"] = guard.paths.sock_dir
        for callback, method in CAPTURED.items():
            if callback in minion.periodic_callbacks:
                minion.periodic_callbacks[callback].callback = getattr(minion, method)
        guard.singletons.inherit_engines(minion.opts, minion.process_manager)
        for process in minion.subprocess_list.processes:
            wraps.note_process(guard, minion.subprocess_list, process, known=False)
    if guard.manager.event is not None:
        for name in ("puburi", "pulluri"):
            uri = getattr(guard.manager.event, name, None)
            if isinstance(uri, str):
                setattr(guard.manager.event, name, guard.paths.own(uri))
    for found in gc.get_objects():
        kind = _pending(found)
        if kind == PAYLOAD:
            jid, what = _described(found)
            guard.gate.admit(jid)
            guard.jobs.running.append(Job(jid, what, Pending(found), goes_on=True, known=False))
        elif kind == BUS:
            guard.jobs.inherited.append(Pending(found, LONGEST_PASSING_SECONDS))


class Pending:
    """A coroutine that was under way before the guard was there; looks like a job's process."""

    pid = None

    def __init__(self, coroutine, patience_seconds=float("inf")):
        self.coroutine = coroutine
        self.give_up_at = time.monotonic() + patience_seconds

    def is_alive(self):
        """Whether the coroutine is unfinished."""
        return _frame(self.coroutine) is not None and time.monotonic() < self.give_up_at


def _frame(coroutine):
    return coroutine.cr_frame if isinstance(coroutine, types.CoroutineType) else coroutine.gi_frame


def _pending(found):
    """PAYLOAD or BUS, for such a coroutine of a minion object that waits for something."""
    if type(found) not in (types.CoroutineType, types.GeneratorType):
        return None
    code = found.cr_code if isinstance(found, types.CoroutineType) else found.gi_code
    if code.co_name not in (PAYLOAD, BUS) or "minion" not in code.co_filename:
        return None
    state = inspect.getcoroutinestate(found) if isinstance(found, types.CoroutineType) else inspect.getgeneratorstate(found)
    return code.co_name if state.endswith("SUSPENDED") else None


def _described(coroutine):
    data = _frame(coroutine).f_locals.get("data") or {}
    return str(data.get("jid")), str(data.get("fun"))


def _follow_restarts(guard, module):
    """Salt begins again in the same process after it has lost all masters: with another manager, and what it makes is wrapped."""
    original = module.MinionManager.tune_in

    def tune_in(self, *arguments, **options):
        if guard.acts():
            guard.manager, guard.opts, guard.bus_is_captured = self, self.opts, False
            self.opts["sock_dir"] = guard.paths.sock_dir
        return original(self, *arguments, **options)

    module.MinionManager.tune_in = tune_in
