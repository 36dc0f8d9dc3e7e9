"""The guard of one main process: it puts the parts together, and looks at the gate ten times a second."""

import collections
import inspect
import logging
import os
import time

from . import masters, options, proof
from .alarm import Alarm
from .claims import Claims
from .coroutines import finish
from .decision import DROP, RUN
from .gate import Gate
from .handshakes import MISSING, Handshakes
from .joblog import NAME as JOB_LOG
from .joblog import JobLog
from .jobs import Jobs
from .missing import Missing
from .queues import Queues
from .report import Others, ReportFile
from .roles import RolesFile, started_by_switch
from .singletons import Singletons
from .slot import seconds_since_boot, start_time
from .subscriptions import Subscriptions
from .uses import Uses, file_of

log = logging.getLogger(__name__)
POLL_SECONDS = 0.1


class Guard:
    """The state of one main process, and the answers to the wrappers."""

    def __init__(self, manager, slot, paths):
        self.pid = os.getpid()
        self.manager = manager
        self.slot = slot
        self.paths = paths
        self.opts = manager.opts
        self.loop = manager.io_loop
        self.overlap = paths.refused
        # Why this process can't be trusted beside another: a job was about to run that the gate was not asked for.
        self.bypassed = None
        self.originals = {}
        self.roles_file = RolesFile(slot.path("roles"))
        self.claims = Claims(slot.path("claims"))
        self.others = Others(slot)
        self.job_log = JobLog(slot.path(JOB_LOG))
        self.jobs = Jobs(self.job_log.write)
        self.gate = Gate(
            self.claims, self.role, self._rivals_reports, self.run, self.job_log.write, self.caught_up, self.beside_others)
        self.missing = Missing(self.gate.heard, self.gate.first, seconds_since_boot)
        # None: this Salt's transports tell nothing.
        self.handshakes = Handshakes(self.attempt)
        self.subscriptions = Subscriptions(self.gate.heard, masters.is_one_of_a_list(self.opts))
        self.singletons = Singletons(self)
        self.queues = Queues(self)
        self.proofs = proof.Proofs(self.loop, self.spawn)
        self.report_file = ReportFile(slot)
        self.described = options.Described()
        # Nothing is counted before `count_uses`.
        self.uses = Uses(slot, None)
        self.uses_off = "no guard counted since this minion started"
        # Minion objects whose start event waits; `announced`: none has to wait any more.
        self.silent = []
        self.announced = False
        # Salt's bus calls the method that it was given before this was wrapped.
        self.bus_is_captured = False
        # There may be jobs that began before this did.
        self.inherited = False
        # Jobs that were held, and are Salt's as soon as its loop has gone round.
        self._given = collections.deque()
        self.alarm = Alarm(self.loop, self._tick_late)
        self._next_tick = None
        self._announcing = set()
        self._failed = set()
        self._role = slot.first_role

    # Queries.

    def acts(self):
        """Whether this is the main process: a job's child inherits the guard, and has no part in it."""
        return os.getpid() == self.pid

    def original(self, name):
        """Salt's own function under a wrapped name."""
        return self.originals[name]

    def minions(self):
        """The connected minion objects, one per master."""
        return list(self.manager.minions)

    def hears_by(self, minion):
        """Whether this minion object's handler stands in for the manager's, which could not be wrapped."""
        return self.bus_is_captured and minion is next(iter(self.manager.minions), None)

    def schedule(self):
        """Salt's one schedule, once a minion object has made it."""
        return next((minion.schedule for minion in self.minions() if hasattr(minion, "schedule")), None)

    def roles(self):
        """The newest roles, or None."""
        return self.roles_file.read()

    def role(self):
        """The role of this process; without valid roles, its last one."""
        roles = self.roles()
        own = roles.slots.get(self.slot.leader) if roles else None
        if own:
            self._role = own.role
        return self._role

    def started_by_switch(self):
        """Whether a switch started this process, not the boot of the machine or an operator."""
        return started_by_switch(self.roles(), self.slot)

    def beside_others(self):
        """Whether the roles name another process."""
        roles = self.roles()
        return roles is not None and len(roles.slots) > 1

    def _rivals(self):
        """The other processes that take jobs; not closed ones."""
        roles = self.roles()
        slots = roles.slots.items() if roles else ()
        return [leader for leader, entry in slots if leader != self.slot.leader and entry.role != "closed"]

    def _rivals_reports(self):
        return [report for report in map(self.others.report, self._rivals()) if report]

    def caught_up(self, address):
        """Whether this process has read all that a master published before the other one listened to it."""
        return self.subscriptions.caught_up(address, self._rivals())

    def attempt(self, what, act):
        """Call `act`, whose failure must not harm the minion; a failure is logged once."""
        try:
            return act()
        except Exception:  # noqa: BLE001
            self._complain(what)
            return None

    def _complain(self, what):
        """Log the exception that is being handled, if it is the first of its kind."""
        if what not in self._failed:
            log.exception("sidle-guard: cannot %s", what)
        self._failed.add(what)

    # The loop.

    def spawn(self, start):
        """Run what `start` gives on the minion's loop: Tornado's in 3006 and 3007, asyncio's in 3008."""
        if hasattr(self.loop, "spawn_callback"):
            self.loop.spawn_callback(start)
            return
        work = start()
        if inspect.iscoroutine(work):
            task = self.loop.create_task(work)
            # The loop itself keeps no reference.
            self._tasks = getattr(self, "_tasks", set())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def begin(self):
        """Start the loop."""
        self.singletons.note_configuration()
        self._tick()
        self.alarm.begin()

    def count_uses(self, wanted):
        """Begin to count which functions are called."""
        self.uses = Uses(self.slot, file_of(self.opts) if wanted else None)
        self.uses_off = self.uses.begin()

    def _folds_uses(self):
        return bool(self.overlap) or self.singletons.held

    def _tick(self):
        if not self.acts():
            return
        self.alarm.beat()
        try:
            self.attempt("act on the roles", self._look)
            self.attempt("count what is used", lambda: self.uses.look(self._folds_uses()))
            self.attempt("write the report", self.write_report)
        finally:
            self._next_tick = self.loop.call_later(POLL_SECONDS, self._tick)

    def _tick_late(self):
        """Look now: the loop's clock was set back, and the next look would wait until it is the old time again."""
        self.loop.remove_timeout(self._next_tick)
        self._tick()

    def _leave_with_leader(self):
        """End this process if Salt's first process is gone. Salt does that itself, but as root only: an orphan would go on taking jobs."""
        if os.getuid() != 0 and self.slot.leader != os.getpid() and start_time(self.slot.leader) is None:
            log.error("sidle-guard: the first process of this minion is gone, so it ends")
            os._exit(1)

    def _look(self):
        self._leave_with_leader()
        self.jobs.look()
        role = self.role()
        roles = self.roles()
        if self.overlap:
            # Salt works without the guard, and no other process runs beside it.
            self.announced = True
            if self.paths.sock_dir:
                self.attempt("show the default paths", self.paths.show)
        else:
            self.singletons.follow(role, roles, time.monotonic())
            self.gate.look_again()
            addresses = {minion.opts.get("master_uri"): name for name, minion in self.named_minions().items()}
            self.subscriptions.look(addresses, bool(self.jobs.starting), self._rivals_reports())
            self.handshakes.look(self.minions())
            self.missing.look(role, self._rivals_reports())
            self._announce(roles)
        if self.inherited and self.jobs.all_known():
            self.inherited = False
            self.attempt("leave the default paths to others", self.paths.let_go)
        if roles and (not roles.provers or self.slot.leader in roles.provers):
            self.proofs.demand(roles.prove, self.peer_names(), self.named_minions())

    # Jobs.

    def run(self, minion, data):
        """Give a job that was held back to Salt. It is on record before it starts: the report of this very look names it, and a process
        with a job in its report is not ended."""
        self._given.append((minion, data, self.note(minion, data)))
        if len(self._given) == 1:
            self.loop.call_later(0, self._give)

    def _give(self):
        """Start one of them, and the next one in the next round of the loop. The process of each job connects to main's bus, and main takes up
        connections between two rounds: a socket holds 128 that wait, and a process that finds no room there loses its return."""
        minion, data, token = self._given.popleft()
        if self._given:
            self.loop.call_later(0, self._give)
        try:
            self.spawn(lambda: self.execute(minion, data, token))
        except Exception:  # noqa: BLE001
            self.jobs.begun(token)
            self._complain("start a job that was held")

    async def execute(self, minion, data, token):
        """Salt's own handling of a job that is ours."""
        try:
            await finish(self.original("salt.minion.Minion._handle_decoded_payload")(minion, data))
        finally:
            self.jobs.begun(token)

    def note(self, minion, data):
        """Remember a job that Salt is about to start; gives a token for `jobs.begun`."""
        return self.jobs.begin(data, self.jobs.remember(data, minion.opts.get("return")))

    def judge(self, minion, data):
        """The gate's verdict on a job that arrived; in doubt an active process runs it."""
        try:
            return self.gate.arrive(minion, data)
        except Exception:  # noqa: BLE001
            self._complain("judge a job")
            return RUN if self._role == "active" else DROP

    def suspect(self, jid):
        """Note a job that started or returned without the gate: this Salt bypasses the gate, and must not run beside another process."""
        if self.bypassed is None:
            self.bypassed = f"job {jid} was started without asking the gate: the guard does not fit this Salt"
            log.error("sidle-guard: %s", self.bypassed)
            self.attempt("write the report", self.write_report)

    def may_start(self, jid):
        """Whether the process of a job may start; a job that bypassed the gate is stopped here."""
        if self.overlap or self.gate.has_judged(jid):
            return True
        self.suspect(jid)
        if self.role() != "active":
            return False
        return not self.beside_others() or self.gate.take_unjudged(jid)

    # The start event.

    def holds_start_event(self, minion):
        """Whether a minion object must not fire its start event yet; `_announce` fires it later."""
        if self.announced or self.overlap or not self.started_by_switch():
            return False
        roles = self.roles()
        if roles and self.slot.leader in roles.announce:
            return False
        if minion not in self.silent:
            self.silent.append(minion)
        return True

    def _announce(self, roles):
        if self.announced:
            return
        if not self.started_by_switch():
            self.announced = True
        elif roles and self.slot.leader in roles.announce:
            for minion in self.silent:
                if id(minion) not in self._announcing:
                    self._announcing.add(id(minion))
                    self.spawn(lambda minion=minion: self._say_start(minion))
            self.announced = not self.silent

    async def _say_start(self, minion):
        try:
            await finish(self.original("salt.minion.Minion._fire_master_minion_start")(minion))
            self.silent.remove(minion)
        except Exception as error:  # noqa: BLE001
            log.warning("sidle-guard: cannot fire the start event yet: %s", error)
        finally:
            self._announcing.discard(id(minion))

    # The report.

    def peer_names(self):
        """The masters as the configuration names them; of a failover list, the one in use."""
        names = masters.configured(self.opts)
        return list(self.named_minions()) or names[:1] if masters.is_one_of_a_list(self.opts) else names

    def named_minions(self):
        """The connected minion objects by the names of their masters."""
        named = {}
        for minion in self.minions():
            if getattr(minion, "connected", False):
                name = getattr(minion, "_sidle_master", None) or masters.configured_name(self.opts, minion.opts)
                named[str(name or minion.opts.get("master"))] = minion
        return named

    def _peer(self, name, minion):
        """The part of the report about one master; `minion`: its connected minion object, or None."""
        address = minion.opts.get("master_uri") if minion else None
        seen = self.gate.peers.get(address)
        unheard, since = self.missing.unheard(address)
        return {
            "name": name, "address": address, "proven": self.proofs.proven.get(name),
            # While Salt begins again with a master, connections may stand already, and no subscription does.
            "subscribed": self.handshakes.told(minion) if minion else MISSING,
            "detail": self.proofs.details.get(name, "not asked" if minion else "not connected"),
            "first": seen.first if seen else None, "last": seen.last if seen else None,
            "count": seen.count if seen else 0, "rescued": list(seen.rescued) if seen else [],
            "unclaimed": self.gate.unclaimed(address), "caught_up": self.caught_up(address),
            "unheard": unheard, "unheard_since": since, "doubtful": self.missing.doubtful(address)}

    def write_report(self):
        """Write the report."""
        roles = self.roles()
        connected = self.named_minions()
        peers = []
        for name in self.peer_names():
            peers.append(self._peer(name, connected.get(name)))
        self.report_file.write({
            "wrapped": sorted(self.originals), "overlap": self.overlap or self.bypassed,
            "serial": roles.serial if roles else 0, "role": self._role, "singletons": bool(self.overlap) or self.singletons.reported,
            "announced": self.announced, "prove": self.proofs.finished, "jobs": self.jobs.alive(),
            "held": len(self.gate.held), "returning": self.jobs.returning, "peers": peers,
            # After the jobs: what one of them queues as it ends is in one of the two.
            "queued": self.queues.left(), "queues": self.queues.directories(), "queue_layout": self.queues.layout,
            "options": self.described.of(self.opts, self.paths), "uses": {"file": self.uses.path, "off": self.uses_off},
        }, urgent=self.beside_others())

    def end(self):
        """At the end of the process: remove links to its sockets."""
        if not self.acts():
            return
        self.attempt("keep the count of what is used", lambda: self.uses.close(self._folds_uses()))
        if (self.singletons.held or self.overlap) and self.paths.sock_dir:
            self.attempt("leave the default paths", self.paths.hide)
