"""What of Salt is wrapped, and how: one wrapper per function, each falling back to Salt's own.

In a job's child every wrapper but those of the job itself is Salt's own function again.
"""

import functools
import inspect
import logging
import multiprocessing.util
import sys

from . import damage, events, shape
from .channels import ChannelWrappers
from .coroutines import SKIP, around
from .decision import RUN
from .guard import Guard
from .jobs import published_jid

log = logging.getLogger(__name__)


class Missing(Exception):
    """This Salt has no such function: it is not one that the guard knows."""


class RoundTheGate(Exception):
    """A job's process was about to start without a verdict, beside another minion: the job is another process's."""


def wrap_manager(module, slot, paths, counts):
    """Let the guard begin where Salt's main does: in `MinionManager.tune_in`, before it has any minion. `counts`: whether uses are counted."""
    manager_class = module.MinionManager
    original = manager_class.tune_in
    armed = []

    @functools.wraps(original)
    def tune_in(self, *arguments, **options):
        guard = next((guard for guard in armed if guard.acts()), None)
        try:
            if guard:
                # Salt begins again in the same process, after it has lost all masters.
                guard.manager = self
            else:
                guard = arm(self, slot, paths, counts)
                armed.append(guard)
        except Exception:
            log.exception("sidle-guard: cannot arm this minion")
        if (guard is None or guard.overlap) and (guard.role() if guard else slot.first_role) != "active":
            # Unguarded, it would run every job a second time.
            log.critical("sidle-guard: this minion cannot run beside another: %s", guard.overlap if guard else "see above")
            sys.exit(1)
        return original(self, *arguments, **options)

    manager_class.tune_in = tune_in


def arm(manager, slot, paths, counts):
    """Wrap everything, or nothing; then begin. Gives the guard."""
    guard = Guard(manager, slot, paths)
    if paths.sock_dir is None and not guard.overlap:
        guard.overlap = "the configuration was not read by salt.config.minion_config"
    if type(manager)._create_minion_object is not sys.modules["salt.minion"].MinionManager._create_minion_object:
        guard.overlap = guard.overlap or f"{type(manager).__name__} makes minions of another kind"
    wrap_all(guard)
    guard.attempt("count what is used", lambda: guard.count_uses(counts))
    guard.begin()
    multiprocessing.util.Finalize(None, guard.end, exitpriority=10)
    return guard


def wrap_all(guard):
    """Wrap all that the guard needs. Nothing, where this minion cannot run beside another anyhow, or something is not there: `overlap` then says why."""
    if guard.overlap:
        return
    try:
        _Wrapper(guard).wrap_all()
    except Missing as missing:
        guard.overlap = f"the guard does not know this Salt ({sys.modules['salt.version'].__version__}): it has no {missing}"


class _Wrapper(ChannelWrappers):
    """Finds all that is to be wrapped first, and wraps it then."""

    def __init__(self, guard):
        self.guard = guard
        self.plan = []

    def wrap_all(self):
        """The list of what the guard needs of Salt."""
        import salt.channel.client
        import salt.engines
        import salt.minion
        import salt.utils.process
        import salt.utils.schedule

        minion = salt.minion.Minion
        otherwise = shape.first_difference(minion)
        if otherwise:
            raise Missing(otherwise)
        self._plan(minion, "__init__", self._init)
        self._plan(minion, "_handle_decoded_payload", self._handle_decoded_payload)
        self._plan(minion, "_target", self._target)
        self._plan(minion, "_fire_master_minion_start", self._fire_master_minion_start)
        self._plan(minion, "_state_run", self._state_run)
        self._plan(minion, "handle_event", self._handle_event)
        self._plan(salt.minion.MinionManager, "handle_event", self._handle_manager_event)
        self._plan(salt.minion.MinionBase, "process_schedule", self._process_schedule)
        self._plan(salt.minion.MinionBase, "process_beacons", self._process_beacons)
        # Salt before 3006.2x has no queues on disk.
        for name in ("process_process_queue", "process_state_queue"):
            if hasattr(minion, name):
                self._plan(minion, name, self._pop_queue)
        if hasattr(minion, "_cleanup_orphaned_queue_files"):
            self._plan(minion, "_cleanup_orphaned_queue_files", self._not_beside_others)
        self._plan(salt.utils.schedule, "clean_proc_dir", self._not_in_a_switch)
        self._plan(salt.utils.schedule.Schedule, "persist", self._persist)
        self._plan(salt.utils.schedule.Schedule, "handle_func", self._handle_func)
        self._plan(salt.utils.process.SubprocessList, "add", self._add_process)
        self._plan(salt.utils.process.SignalHandlingProcess, "start", self._start_process)
        self._plan(salt.channel.client.AsyncPubChannel, "_decode_payload", self._decode_payload)
        self._plan(salt.channel.client.AsyncPubChannel, "connect", self._connect)
        self._plan_monitors()
        self._plan(salt.engines, "start_engines", self._start_engines)
        for owner, name, wrapper in self.plan:
            setattr(owner, name, wrapper)

    def _plan(self, owner, name, make):
        found = inspect.getattr_static(owner, name, None)
        where = f"{getattr(owner, '__module__', owner.__name__)}.{owner.__name__}" if inspect.isclass(owner) else owner.__name__
        if found is None:
            raise Missing(f"{where}.{name}")
        bound = next((kind for kind in (staticmethod, classmethod) if isinstance(found, kind)), None)
        original = found.__func__ if bound else found
        wrapper = functools.wraps(original)(make(original))
        self.guard.originals[f"{where}.{name}"] = original
        self.plan.append((owner, name, bound(wrapper) if bound else wrapper))

    # Jobs.

    def _handle_decoded_payload(self, original):
        guard = self.guard

        def before(minion, data):
            return guard.note(minion, data) if guard.judge(minion, data) == RUN else SKIP

        return around(guard, original, before, lambda token, _: guard.jobs.begun(token))

    def _add_process(self, original):
        guard = self.guard

        def add(self, process):
            original(self, process)
            if guard.acts():
                guard.attempt("note a job's process", lambda: note_process(guard, self, process))

        return add

    def _start_process(self, original):
        guard = self.guard

        def start(self, *arguments, **options):
            jid = published_jid(self) if guard.acts() else None
            if jid is not None and not guard.may_start(jid):
                raise RoundTheGate(f"job {jid} is not started: {guard.bypassed}")
            return original(self, *arguments, **options)

        return start

    # In a job's own process.

    def _target(self, original):
        guard = self.guard

        def target(cls, minion, opts, data, *arguments, **options):
            def start():
                return original(cls, minion, opts, data, *arguments, **options)

            if guard.acts():
                # A thread (multiprocessing: False): its minion object is everybody's.
                damage.wait(guard.slot)
                return start()
            return damage.run(guard.slot, minion, data, start)

        return target

    def _handle_func(self, original):
        slot = self.guard.slot

        def handle_func(self, *arguments, **options):
            damage.wait(slot)
            return original(self, *arguments, **options)

        return handle_func

    # The start.

    def _init(self, original):
        guard = self.guard

        def init(self, opts, *arguments, **options):
            if not guard.acts():
                return original(self, opts, *arguments, **options)
            master = opts.get("master")
            self._sidle_master = master if isinstance(master, str) else None
            guard.attempt("look for queued jobs", lambda: guard.queues.note(opts))
            with guard.queues.locks_kept():
                return original(self, opts, *arguments, **options)

        return init

    def _fire_master_minion_start(self, original):
        guard = self.guard

        def before(minion):
            return SKIP if guard.attempt("hold the start event back", lambda: guard.holds_start_event(minion)) else None

        return around(guard, original, before)

    def _state_run(self, original):
        return self._not_in_a_switch(original)

    def _not_beside_others(self, original):
        guard = self.guard

        def alone(*arguments, **options):
            return None if guard.acts() and guard.queues.someone_lives_beside() else original(*arguments, **options)

        return alone

    def _not_in_a_switch(self, original):
        guard = self.guard

        def at_boot_only(*arguments, **options):
            if guard.acts() and guard.started_by_switch():
                return None
            return original(*arguments, **options)

        return at_boot_only

    # Singletons.

    def _pop_queue(self, original):
        guard = self.guard

        def pop_queue(self, *arguments, **options):
            if guard.acts():
                pops = guard.attempt("decide on the queues", lambda: guard.queues.pops(self))
                if not (guard.singletons.due if pops is None else pops):
                    return None
            return original(self, *arguments, **options)

        return pop_queue

    def _process_schedule(self, original):
        guard = self.guard

        def process_schedule(minion, loop_interval):
            if not guard.acts():
                return original(minion, loop_interval)
            if guard.singletons.due:
                loop_interval = original(minion, loop_interval)
                guard.singletons.keep_counters()
            return loop_interval

        return process_schedule

    def _process_beacons(self, original):
        guard = self.guard

        def process_beacons(self, functions):
            return original(self, functions) if not guard.acts() or guard.singletons.due else []

        return process_beacons

    def _persist(self, original):
        guard = self.guard

        def persist(self):
            if not guard.acts():
                return original(self)
            if not guard.singletons.held:
                return None  # The one with the singletons does it: it gets the same commands.
            original(self)
            guard.singletons.known_schedule = set(self.opts.get("schedule") or ())
            return None

        return persist

    def _start_engines(self, original):
        guard = self.guard

        def start_engines(opts, *arguments, **options):
            if not guard.acts() or opts.get("__role") != "minion":
                return original(opts, *arguments, **options)
            return guard.singletons.start_engines(opts, *arguments, **options)

        return start_engines

    # The bus.

    def _handle_event(self, original):
        guard = self.guard

        def before(minion, package):
            if guard.hears_by(minion):
                self._hear(package)
            else:
                guard.jobs.bus.stir()
            return guard.attempt("watch a return", lambda: events.Watch.begin(guard, minion, package))

        return around(guard, original, before, lambda watch, _: watch and watch.end())

    def _handle_manager_event(self, original):
        return around(self.guard, original, lambda _, package: self._hear(package))

    def _hear(self, package):
        self.guard.jobs.bus.stir()
        self.guard.attempt("forward an event", lambda: events.forward(self.guard, package))


def note_process(guard, processes, process, known=True):
    """A job has a process; `known`: the guard has seen its beginning."""
    minion = next((found for found in guard.minions() if found.subprocess_list is processes), None)
    jid = published_jid(process)
    if known and jid is not None and not guard.overlap and not guard.gate.has_judged(jid):
        guard.suspect(jid)

    def function_of(name):
        schedule = guard.schedule()
        job = (schedule._get_schedule() if schedule else {}).get(name) or {}
        return job.get("function") or job.get("func") or job.get("fun")

    guard.jobs.add(process, minion.opts.get("master") if minion else None, function_of, known)
