"""A small world for the gate: masters, sockets, two minions' main processes with the guard's own code, and the supervisor's look. No files, no Salt,
no real time: each step is one that a crash, a freeze or another process may come after.

What is the guard's own: guard, gate, claims' names, decision, jobs, subscriptions, the content of reports. What is modelled: a publisher
(in order to each subscriber), a socket (what was published since the subscription, a publication a round of the loop), Salt's starting of jobs,
the directory of claims, and the supervisor's rules: `Report::behind`, `unfinished` and the roles of `src/agent/gate.rs` and `src/switch`.
"""

import collections
import json
import pathlib
import sys
import types

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from sidle_guard import claims, gate, guard, jobs, owed, report, roles, slot, subscriptions  # noqa: E402

STEP_SECONDS = 0.25
# The supervisor forgets nothing: a world that has not come to rest after so long is stuck.
LONGEST_SECONDS = 60.0
# A job that is on its way is not missing yet.
UNHEARD_SECONDS = 2.0
OLD, NEW = 100, 200


class Clock:
    """Stands in for `time` in the guard's modules."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now


class Directory:
    """The directory of claims: whoever makes a name has it."""

    def __init__(self):
        self.names = {}
        self.full = False


class FakeClaims(claims.Claims):
    """The guard's claims over that directory."""

    def __init__(self, directory, owing):
        super().__init__("claims")
        self.files = directory
        self.everybody = owing
        self.me = object()

    def take(self, claim):
        if claim in self.files.names:
            return False
        if self.files.full:
            raise OSError(28, "No space left on device")
        self.files.names[claim] = self.me
        return True

    def drop(self, claim):
        self.files.names.pop(claim, None)

    def taken(self, claim):
        return claim in self.files.names

    def prepare(self):
        pass

    def owe(self, owing):
        (self.everybody.add if owing else self.everybody.discard)(self.me)

    def others_owe(self):
        return bool(self.everybody - {self.me})

    def clean(self):
        pass


class JobProcess:
    """A job's process: `ProcessPayload(jid=…)`, which ends by itself."""

    def __init__(self, world, jid, seconds):
        self.world, self.jid, self.name = world, jid, f"ProcessPayload(jid={jid})"
        self.pid = 1
        self.ends = world.clock.now + seconds
        self.killed = False

    def is_alive(self):
        return not self.killed and self.world.clock.now < self.ends


class Minion:
    """As much of Salt's minion object as the guard looks at: one for each master."""

    def __init__(self, address):
        self.opts = {"master_uri": address, "master": address, "return": None}
        self.connected = False
        self.subprocess_list = object()


class Main:
    """One main process: its loop runs a callback, reads a publication, or looks at the gate, a step at a time."""

    def __init__(self, world, leader, first_role, masters=None):
        self.world, self.leader = world, leader
        self.masters = world.masters if masters is None else masters
        self.minions = [Minion(address) for address in self.masters]
        self.sockets = {address: collections.deque() for address in world.masters}
        self.callbacks = collections.deque()
        self.processes = []
        self.alive, self.frozen = True, False
        self.blocked_until = 0.0
        self.next = 0
        self.most_at_once = 0
        self.ticked = 0.0
        self.guard = self._guard(first_role)

    def _guard(self, first_role):
        loop = types.SimpleNamespace(spawn_callback=self.callbacks.append, call_later=self._later)
        # No master's name is configured: each connected minion object is a peer.
        manager = types.SimpleNamespace(opts={"master": list(self.masters)}, io_loop=loop, minions=self.minions)
        paths = types.SimpleNamespace(refused=None, sock_dir=None, show=lambda: True, sweep=lambda _: None, loaded_signature=None,
                                      default_sock_dir=None, default_pidfile=None)
        made = guard.Guard(manager, slot.Slot("gate", self.leader, first_role), paths)
        made.originals = {"salt.minion.Minion._handle_decoded_payload": self._start, "_": None}
        made.pid, made.acts = 0, lambda: True
        made.roles_file = types.SimpleNamespace(read=lambda: self.world.roles)
        made.claims = made.gate.claims = made.gate.owed.claims = FakeClaims(self.world.directory, self.world.owing)
        made.others = types.SimpleNamespace(report=self.world.report_of, has_given_up=lambda *_: True)
        made.report_file = types.SimpleNamespace(write=self._report)
        made.job_log = types.SimpleNamespace(write=lambda *_: None)
        made.subscriptions.clock = made.missing.clock = self.world.clock.monotonic
        made.gate.log = made.jobs.log = lambda *_: None
        made.singletons = types.SimpleNamespace(follow=lambda *_: None, held=True, reported=False)
        made.proofs = types.SimpleNamespace(
            demand=lambda number, names, minions: self._prove(number, minions), proven={}, details={}, finished=0)
        told = (lambda minion: int(self.subscribed(minion.opts["master_uri"]))) if self.world.handshakes else lambda minion: None
        made.handshakes = types.SimpleNamespace(told=told, look=lambda minions: None)
        made.queues = types.SimpleNamespace(left=lambda: 0, directories=list, layout=None)
        made.announced = True
        return made

    def _later(self, seconds, act):
        """`_look` is a step of its own: what is due later is not played."""
        if seconds == 0:
            self.callbacks.append(act)

    def _prove(self, number, minions):
        self.guard.proofs.finished = number
        for name in minions:
            self.guard.proofs.proven[name] = number

    def _report(self, content, urgent):
        if self.world.deaf_reports:
            return
        text = json.dumps({"leader": self.leader, **content, "updated": self.world.clock.now})
        self.world.reports[self.leader] = json.loads(text)

    def _start(self, minion, data):
        """Salt's own handling of a job: a process, and the list of processes."""
        jid = str(data["jid"])
        self.world.began(jid, self)
        process = JobProcess(self.world, jid, self.world.job_seconds)
        self.processes.append(process)
        self.guard.jobs.add(process, minion.opts["master"], lambda _: "")

    def connect(self, address):
        """The connection stands, and the subscription if the publisher answers."""
        minion = next(minion for minion in self.minions if minion.opts["master_uri"] == address)
        minion.connected = True
        if not self.world.silent_publishers:
            self.subscribe(address)

    def subscribe(self, address):
        """The subscription stands: what is published from now on comes here."""
        self.world.subscribers[address].append(self)

    def subscribed(self, address):
        """What the transport's handshake tells."""
        return self in self.world.subscribers[address]

    def blocks(self):
        return self.world.clock.now < self.blocked_until

    def step(self):
        """One step of the loop, if it runs; each part of a round is a step of its own."""
        if not self.alive or self.frozen or self.blocks():
            return
        kind, self.next = self.next, (self.next + 1) % 3
        if kind == 0:
            before = len(self.processes)
            for _ in range(len(self.callbacks)):
                _run(self.callbacks.popleft()())
            # Nothing is read between the callbacks of one round.
            self.most_at_once = max(self.most_at_once, len(self.processes) - before)
        elif kind == 1:
            for minion in self.minions:
                self._read(minion)
        else:
            self.guard._look()
            self.guard.write_report()

    def _read(self, minion):
        """What `wraps` does with a publication that came out of the socket. After a publication that Salt needs long for, its main stands still."""
        address = minion.opts["master_uri"]
        if not self.sockets[address]:
            return
        data = self.sockets[address].popleft()
        self.guard.subscriptions.begin(address)
        self.guard.subscriptions.end(address)
        if self.guard.judge(minion, data) == gate.RUN:
            token = self.guard.note(minion, data)
            self._start(minion, data)
            self.guard.jobs.begun(token)
        if data.get("refresh"):
            self.blocked_until = self.world.clock.now + data["refresh"]

    def kill(self):
        """The end of main. Processes of jobs go on: they are the minion's only as long as it says so."""
        self.alive = False
        for address in self.sockets:
            if self in self.world.subscribers[address]:
                self.world.subscribers[address].remove(self)

    def working(self):
        """What /proc tells of it: jobs that have a process."""
        return [process.jid for process in self.processes if process.is_alive()]


def _run(started):
    if hasattr(started, "send"):
        try:
            started.send(None)
        except StopIteration:
            pass


class World:
    """Everything; `run` plays one switch to its end."""

    def __init__(self, masters=1, job_seconds=1.0):
        self.clock = Clock()
        for module in (gate, jobs, owed, report, subscriptions, guard):
            module.time = self.clock
        report.seconds_since_boot = lambda: self.clock.now
        self.masters = [f"tcp://m{number}" for number in range(masters)]
        self.subscribers = {address: [] for address in self.masters}
        self.directory, self.owing = Directory(), set()
        self.reports, self.deaf_reports = {}, False
        # A publisher that stands still, or a port that swallows bytes: a connection there is no subscription.
        self.silent_publishers = False
        # Whether the guards tell of handshakes.
        self.handshakes = True
        self.job_seconds = job_seconds
        self.published, self.runs, self.excused = [], collections.Counter(), set()
        self.lost_by_end = set()
        self.roles = roles.Roles(1, {OLD: roles.SlotRole("active", "boot")}, frozenset(), 0)
        self.old = Main(self, OLD, "active")
        self.new = None
        self.phase, self.entered, self.ended = "before", self.clock.now, False
        self.caught_up_rule = None
        # Slots of older processes that only finish what they have.
        self.finishing = {}

    def report_of(self, leader):
        return self.reports.get(leader)

    def began(self, jid, main):
        self.runs[jid] += 1
        self.starter = main

    def publish(self, jid, address, refresh=0.0):
        """A master publishes to everybody who listens just now."""
        listeners = [main for main in self.subscribers[address] if main.alive]
        self.published.append(jid)
        if not listeners:
            self.excused.add(jid)
        for main in listeners:
            main.sockets[address].append({"jid": jid, "fun": "test.ping", "refresh": refresh})

    # The supervisor.

    def assign(self, slots, prove=None):
        slots = {**slots, **self.finishing}
        content = {leader: roles.SlotRole(role, "boot" if leader == OLD else "switch") for leader, role in slots.items()}
        if content != self.roles.slots or prove not in (None, self.roles.prove):
            self.roles = roles.Roles(self.roles.serial + 1, content, frozenset(), self.roles.prove if prove is None else prove)

    def enter(self, phase):
        self.phase, self.entered = phase, self.clock.now

    def waited(self):
        return self.clock.now - self.entered

    def begin(self, connects, masters=None):
        """The new process comes up beside the old one; `connects(address)`: after how many seconds it listens to a master. `masters`: those that
        its configuration names; default: all."""
        self.new = Main(self, NEW, "standby", masters)
        self.connecting = {address: self.clock.now + connects(address) for address in self.new.masters}
        self.assign({OLD: "active", NEW: "standby"}, prove=1)
        self.enter("proving")

    def connect_due(self):
        for address, at in list(self.connecting.items()):
            if self.clock.now >= at:
                del self.connecting[address]
                self.new.connect(address)

    def behind(self, mine, theirs):
        """`Report::behind`."""
        if self.caught_up_rule:
            return not self.caught_up_rule(mine, theirs)
        listening = {peer["name"] for peer in theirs["peers"] if peer["address"]}
        return any(peer["address"] and not peer["caught_up"] and (peer["name"] in listening or peer["proven"])
                   for peer in mine["peers"])

    def missing(self, theirs, ended):
        """Whether a job of the trial has not come to the new process: `unheard` of `src/switch/driver/hearing.rs`."""
        latest = max(ended, self.clock.now - UNHEARD_SECONDS)
        return any(peer["doubtful"] or (peer["unheard"] and peer["unheard_since"] <= latest) for peer in theirs["peers"])

    @staticmethod
    def unfinished(told):
        return told["jobs"] or told["held"] or told["returning"]

    def look(self, probation, needed):
        """One look of the supervisor: `needed` are the masters that the new process has to have proven."""
        mine, theirs = self.reports.get(OLD), self.reports.get(NEW)
        if self.phase in ("before", "done") or mine is None or theirs is None:
            return
        if self.phase == "proving":
            proven = {peer["name"] for peer in theirs["peers"] if subscriptions.is_proven(peer)}
            if needed <= proven:
                self.enter("handing")
        elif self.phase == "handing":
            self.assign({OLD: "draining", NEW: "active"})
            if min(mine["serial"], theirs["serial"]) >= self.roles.serial:
                self.enter("probation")
        elif self.phase == "probation":
            if self.waited() >= probation and not self.missing(theirs, self.entered + probation):
                if not self.behind(mine, {"peers": [peer for peer in theirs["peers"] if peer["address"]]}) or self.caught_up_rule:
                    self.enter("finishing-old")
        elif self.phase == "finishing-old":
            self.retire(mine, theirs)

    def retire(self, mine, theirs):
        if self.roles.slots[OLD].role != "closed":
            if not self.behind(mine, theirs):
                self.assign({OLD: "closed", NEW: "active"})
            return
        if mine["role"] != "closed" or mine["serial"] < self.roles.serial or self.unfinished(mine):
            return
        self.old.frozen = True
        told = self.reports[OLD]
        if self.unfinished(told) or self.old.working():
            self.old.frozen = False
            return
        self.end(self.old)
        self.assign({NEW: "active"})
        self.enter("done")

    def end(self, main):
        """Ends a process as the supervisor does, and remembers what it had."""
        main.kill()
        for callback in main.callbacks:
            del callback
        self.lost_by_end |= {held.jid for held in main.guard.gate.held.values()}

    # What must hold.

    def wrong(self):
        """What is wrong at the end, in words; None: nothing."""
        twice = [jid for jid, count in self.runs.items() if count > 1]
        never = [jid for jid in self.published if not self.runs[jid] and jid not in self.excused]
        if twice:
            return f"run twice: {twice}"
        if never:
            return f"lost: {never} (phase {self.phase})"
        return None
