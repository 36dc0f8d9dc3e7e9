"""Singletons: what only one process of a minion may do (schedule, beacons, engines, queues on disk, default paths)."""

import glob
import logging
import os
import signal
import time

from . import events, handover
from .slot import is_trusted, replace_file, seconds_since_boot

log = logging.getLogger(__name__)
# A former holder that hangs is not waited for any longer.
LONGEST_WAIT_SECONDS = 5.0
# An engine that doesn't end on SIGTERM would hold its port or file.
ENGINE_STOP_SECONDS = 2.0
# Checking the default paths and old claims costs a few system calls.
UPKEEP_SECONDS = 1.0
CLEANING_SECONDS = 300.0
# As often as Salt looks for engines that have ended.
ENGINES_SECONDS = 10.0


class Singletons:
    """The singletons of this process: taking them up and giving them up."""

    def __init__(self, guard):
        self.guard = guard
        self.held = False
        # Engines that were asked for: started with the singletons. (opts, process manager, more arguments)
        self.engines = []
        self._engine_managers = {}
        self._ending = {}
        self._wanted_since = self._wanted_serial = None
        self._given_up_at = 0.0
        self._upkept = self._cleaned = self._engines_seen = 0.0
        self._swept = None
        self._began = seconds_since_boot()
        self.known_schedule = set()
        self.known_beacons = set()
        self.touched_schedule = set()
        self.touched_beacons = set()
        self.owes_schedule_file = False
        # Refreshes that came before there was anything to refresh.
        self.missed = {}
        self._signature = None

    @property
    def due(self):
        """Whether this process acts on them now: a process that was blocked when its role changed has yet to give them up."""
        return self.held and self.guard.role() == "active"

    @property
    def reported(self):
        """Whether the report names them: until no engine of this process is left."""
        return self.held or bool(self._ending)

    # The loop.

    def follow(self, role, roles, now):
        """Take them up or give them up, as the role says."""
        self._reap_engines(now)
        if role != "active":
            self._wanted_since = None
            if self.held:
                self.give_up(roles)
        elif not self.held and not self._ending:
            if self._wanted_since is None:
                self._wanted_since = now
                self._wanted_serial = roles.serial if roles else 0
            if self._others_gave_up(roles) or now - self._wanted_since >= LONGEST_WAIT_SECONDS:
                self.take_up(roles)
        if self.held and now - self._upkept >= UPKEEP_SECONDS:
            # Salt makes its sockets a moment after the start: until then at every look.
            self._upkept = now if self.guard.attempt("show the default paths", self.guard.paths.show) else 0.0
            self.guard.attempt("look after the queues' locks", self.guard.queues.clean)
            if now - self._cleaned >= CLEANING_SECONDS:
                self._cleaned = now
                self.guard.claims.clean()
            if roles and roles.serial != self._swept:
                self._swept = roles.serial
                self.guard.attempt("sweep", lambda: self.guard.paths.sweep(roles.slots))
        if self.held and now - self._engines_seen >= ENGINES_SECONDS:
            self._engines_seen = now
            self._restart_engines()

    def _others_gave_up(self, roles):
        others = [leader for leader in roles.slots if leader != self.guard.slot.leader] if roles else []
        return all(self.guard.others.has_given_up(leader, self._wanted_serial) for leader in others)

    # Taking up.

    def take_up(self, roles):
        """Do from now on all that only one process may do."""
        log.info("sidle-guard: taking up the singletons")
        guard = self.guard
        self.held = True
        self._upkept = 0.0
        guard.attempt("look for queues of others", guard.queues.take_up)
        guard.attempt("show the default paths", guard.paths.show)
        guard.attempt("take over schedule and beacons", lambda: self._take_over(roles))
        waiting, self.engines = self.engines, []
        for opts, arguments, options in filter(_is_served, waiting):
            guard.attempt("start engines", lambda: self.start_engines(opts, *arguments, **options))
        guard.attempt("refresh", lambda: events.catch_up(guard))
        for minion in guard.minions():
            # A tick that fell due in between must not wait for another second: `once` would be over then.
            if hasattr(minion, "schedule"):
                guard.attempt("look at the schedule", lambda: minion.process_schedule(minion, minion.opts["loop_interval"]))
                break

    def _take_over(self, roles):
        """Continue schedule and beacons of the former holder."""
        guard = self.guard
        schedule = guard.schedule()
        handed = self._newest_handover() or {}
        changed = self._signature != config_signature(guard.paths.conf_file, guard.opts)
        if schedule is None or not (handed or changed):
            if schedule is not None:
                handover.take_counters(self._jobs(schedule), None, guard.started_by_switch())
            return
        configured = self._configured()
        jobs = handover.merge(
            schedule.opts.get("schedule") or {}, configured.get("schedule") or {}, self.known_schedule,
            handed.get("schedule"), set(handed.get("known_schedule", ())), self.touched_schedule)
        schedule.opts["schedule"] = jobs
        self.known_schedule = set(configured.get("schedule") or ())
        handover.take_counters(
            self._jobs(schedule), {**handed.get("pillar_schedule", {}), **handed["schedule"]} if handed else None,
            guard.started_by_switch())
        for minion in guard.minions():
            if minion.opts is not schedule.opts:
                minion.opts["schedule"] = jobs
            if getattr(minion, "beacons_leader", False):
                minion.opts["beacons"] = handover.merge(
                    minion.opts.get("beacons") or {}, configured.get("beacons") or {}, self.known_beacons,
                    handed.get("beacons"), set(handed.get("known_beacons", ())), self.touched_beacons)
                intervals = getattr(getattr(minion, "beacons", None), "interval_map", None)
                if isinstance(intervals, dict):
                    intervals.update(handed.get("beacon_intervals", {}))
                if handed.get("beacon_memory") and hasattr(minion, "beacons"):
                    handover.remember_beacons(minion.beacons.beacons, handed["beacon_memory"])
        self.known_beacons = set(configured.get("beacons") or ())
        if self.owes_schedule_file:
            schedule.persist()
        self.owes_schedule_file = False

    @staticmethod
    def _jobs(schedule):
        """All jobs that this schedule evaluates: the very objects that it keeps its counters in."""
        pillar = (schedule.opts.get("pillar") or {}).get("schedule") or {}
        return {**pillar, **(schedule.opts.get("schedule") or {})}

    def _newest_handover(self):
        """The handover of the last holder in the lifetime of this process; older ones are stale."""
        guard = self.guard
        newest = None
        directory = guard.slot.path("handover")
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            if name in (f"{guard.slot.leader}.json",) or not name.endswith(".json"):
                continue
            try:
                if not is_trusted(os.path.join(directory, name)):
                    raise ValueError("it is another user's")
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    found = handover.decode(file.read())
            except (OSError, ValueError) as error:
                log.warning("sidle-guard: cannot read the handover %s: %s", name, error)
                continue
            if found["at"] >= max(self._began, self._given_up_at) and (newest is None or found["at"] > newest["at"]):
                newest = found
        return newest

    def note_configuration(self):
        """Remember the configuration as this process read it."""
        opts = self.guard.opts
        self.known_schedule = set(opts.get("schedule") or ())
        self.known_beacons = set(opts.get("beacons") or ())
        self._signature = self.guard.paths.loaded_signature

    def _configured(self):
        """The configuration files as they are now."""
        import salt.config

        read = getattr(salt.config.minion_config, "original", salt.config.minion_config)
        self._signature = config_signature(self.guard.paths.conf_file, self.guard.opts)
        return read(self.guard.paths.conf_file)

    # Giving up.

    def give_up(self, roles):
        """Stop, and write the handover for the next holder."""
        log.info("sidle-guard: giving up the singletons")
        self.held = False
        self._given_up_at = seconds_since_boot()
        self.guard.attempt("hand over", lambda: self._hand_over(roles))
        self._stop_engines()

    def keep_counters(self):
        """After each look at the schedule: if this process dies, the other process goes on from here."""
        if self.held and self.guard.beside_others():
            self.guard.attempt("keep the counters", lambda: self._hand_over(self.guard.roles()))

    def _hand_over(self, roles):
        guard = self.guard
        content = {"schema": handover.SCHEMA, "slot": guard.slot.leader, "serial": roles.serial if roles else 0,
                   "at": seconds_since_boot(), "schedule": {}, "pillar_schedule": {}}
        schedule = guard.schedule()
        if schedule is not None:
            content["schedule"] = schedule.opts.get("schedule") or {}
            content["pillar_schedule"] = (schedule.opts.get("pillar") or {}).get("schedule") or {}
        content["known_schedule"] = sorted(map(str, self.known_schedule))
        content["known_beacons"] = sorted(map(str, self.known_beacons))
        for minion in guard.minions():
            if getattr(minion, "beacons_leader", False):
                content["beacons"] = minion.opts.get("beacons") or {}
                content["beacon_intervals"] = getattr(getattr(minion, "beacons", None), "interval_map", {})
                if hasattr(minion, "beacons"):
                    memory = guard.attempt("hand over what beacons remember", lambda: handover.beacon_memory(minion.beacons.beacons))
                    content["beacon_memory"] = memory or {}
        os.makedirs(guard.slot.path("handover"), exist_ok=True)
        # Pillar may hold secrets, and jobs have them as arguments.
        replace_file(guard.slot.path("handover", f"{guard.slot.leader}.json"), handover.encode(content), 0o600)

    # Engines.

    def start_engines(self, opts, *arguments, **options):
        """Start the engines of one minion object now, or with the singletons."""
        if not self.held:
            if opts.get("engines"):
                self.engines.append((opts, arguments, options))
            return None
        self._engine_managers = {manager: asked for manager, asked in self._engine_managers.items() if _is_served(asked)}
        self._engine_managers[id(arguments[0])] = (opts, arguments, options)
        return self.guard.original("salt.engines.start_engines")(opts, *arguments, **options)

    def inherit_engines(self, opts, manager):
        """Those of a minion object that was there before the guard."""
        self._engine_managers[id(manager)] = (opts, (manager,), {})

    def _restart_engines(self):
        """Let Salt start engines again that have died. Its own loop for that ends for good when it finds none: in each process that gets
        the singletons later than its minion objects."""
        for _, arguments, _ in list(self._engine_managers.values()):
            self.guard.attempt("start engines again", arguments[0].check_children)

    def _stop_engines(self):
        for opts, arguments, options in self._engine_managers.values():
            processes = arguments[0]._process_map
            for pid, entry in list(processes.items()):
                if getattr(entry.get("tgt"), "__module__", None) == "salt.engines":
                    # Out of the map: Salt would start it again.
                    del processes[pid]
                    self._ending[pid] = (entry["Process"], time.monotonic() + ENGINE_STOP_SECONDS)
                    entry["Process"].terminate()
            if opts.get("engines"):
                self.engines.append((opts, arguments, options))
        self._engine_managers = {}

    def _reap_engines(self, now):
        for pid, (process, deadline) in list(self._ending.items()):
            if not process.is_alive():
                del self._ending[pid]
            elif now >= deadline:
                os.kill(pid, signal.SIGKILL)


def _is_served(asked):
    """Whether the minion object that asked for these engines is still there: Salt has stopped the manager of one that it left."""
    _, arguments, _ = asked
    return getattr(arguments[0], "_restart_processes", True)


def config_signature(conf_file, opts):
    """Changes whenever one of the minion's configuration files does."""
    if not conf_file:
        return None
    pattern = os.path.join(os.path.dirname(conf_file), opts.get("default_include") or "minion.d/*.conf")
    signature = []
    for path in [conf_file, *sorted(glob.glob(pattern))]:
        try:
            found = os.stat(path)
            signature.append((path, found.st_ino, found.st_mtime_ns, found.st_size))
        except OSError:
            signature.append((path, None))
    return signature
