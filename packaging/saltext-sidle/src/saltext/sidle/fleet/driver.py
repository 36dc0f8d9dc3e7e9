"""
Drives a rollout on a master: takes the machine's orders, first on record and then on the bus, and tells the machine what hosts return.

Events tell sooner what happened (a host that starts, a switch that ended); only returns prove it.
"""

import logging
import time
from functools import partial

from . import acts, answers, claims, clocks, jobs, states
from .rollout import Rollout
from .states import RolloutError

log = logging.getLogger(__name__)

#: How often orders are given, seconds. Returns are heard all the time.
TICK_SECONDS = 2

#: How often offline minions of a rollout in progress are asked whether they are back: one job for all of them.
OFFLINE_SECONDS = 60

#: A job is published so often at least, also while nothing is due: a master that is away is known to be.
PROBE_SECONDS = 20

#: After a halt or an abort the driver stays for so long, to hear of what is on its way.
REST_SECONDS = 300

#: So long the answers to the end of a claim are waited for: another claim may follow.
UNCLAIM_SECONDS = 10

#: How a person resumes a rollout so that failed minions are tried once more.
AGAIN = "again=True"

#: What a person says to a driver.
COMMANDS = ("pause", "resume", "abort")

#: The orders of a rollout.
KINDS = ("install", "switch")

#: A driver that takes over accepts an epoch of a minion that is so much higher than its own, at most: each driver raises it by one. Minions allow more
#: (`EPOCH_STEP_MAXIMUM`), so that no minion's word makes an epoch that the others refuse.
EPOCH_STEP_MAX = 10_000


def drive(record, bus, records, now=time.time, announcer=None):
    """
    Drives until nothing is left to do, or until a halt has come to rest. Gives the record. `announcer`: as `announcing.Announcer`; None: nobody is told. Raises
    `RolloutError`.
    """
    driver = _Driver(record, bus, records, now, announcer)
    driver.begin()
    while True:
        while driver.goes_on():
            driver.step()
        if driver.end():
            return record


class _Driver:
    def __init__(self, record, bus, records, now, announcer=None):
        self._record, self._bus, self._records, self._now, self._announcer = record, bus, records, now, announcer
        self._own = Rollout(record)
        self._looked = 0.0
        #: When a job was last published, and since when none can be; None: they can.
        self._published, self._away_since = now(), None
        self._clock = clocks.Clock(now)
        #: Since when nothing is ordered any more.
        self._resting_since = None
        #: Whose claims end with this driver.
        self._claimed = set(record["hosts"])

    def begin(self):
        """Takes the rollout over from whoever drove it, on record and at the hosts."""
        record, is_new = self._record, not self._records.has(self._record["id"])
        if self._bus.unchecked:
            raise RolloutError(f"cannot drive rollout {record['id']}: {self._bus.unchecked}: any minion could say of another one that it is done")
        ids = [minion for minion, host in record["hosts"].items() if host["state"] in (states.WAITING, *states.IN_FLIGHT_STATES)]
        try:
            (self._begin_new if is_new else self._take_over)(ids)
        except jobs.Away as error:
            raise RolloutError(f"cannot drive rollout {record['id']}: {error}") from None
        if record["status"] == states.LATE:
            self._claimed = set(ids)
            self._take_up_late()
        self._records.write(record)
        self._announce()

    def _begin_new(self, ids):
        record = self._record
        # Whatever happens from now on, there is a record that can be resumed or aborted.
        record.update(status=states.HALTED, why="its runner ended before it began")
        self._records.write(record)
        record.update(status=states.RUNNING, why=None)
        answered = claims.claim(self._bus, record, ids)
        # One host must not keep the others from their way back.
        if answered.refusals and not (record["purpose"] == states.ROLLBACK and answered.are_few(ids)):
            # What does not begin here leaves nothing behind.
            unclaim(self._bus, record, ids)
            self._records.remove(record["id"])
            raise claims.refused(record, answered, is_new=True)
        self._refuse(answered.refusals)

    def _take_over(self, ids):
        """
        Takes over a rollout that is on record: each driver has an epoch of its own, and hosts refuse a driver with an older copy of the record. First with the
        epoch on record, by which hosts tell that another driver went on. The next one is on record before hosts hear of it: a driver that is killed in between
        leaves no epoch at the hosts that its successor does not know.
        """
        record = self._record
        record["epoch"] = max(record["epoch"], self._records.read(record["id"])["epoch"])
        took = self._claim(ids, ids)
        # What was before counts for nobody.
        self._clock.gap()
        self._own.go_on(self._now())
        record["epoch"] += 1
        self._records.write(record)
        self._claim(took, ids)

    def _claim(self, ids, of):
        """Claims hosts for a rollout that is on record; returns those that took it. If few of all its hosts refuse, they are left out, and keep no others."""
        answered = claims.claim(self._bus, self._record, ids)
        if not answered.are_few(of):
            raise claims.refused(self._record, answered, is_new=False)
        self._refuse(answered.refusals)
        return answered.took

    def _refuse(self, refusals):
        for minion, error in refusals.items():
            self._own.refuse(self._now(), minion, "conflict", error["message"])

    def _announce(self):
        """Tells of a new state, which is on record; then notes that it was told."""
        if self._announcer is not None and states.is_untold(self._record):
            self._announcer.announce(self._record)
            self._records.write(self._record)

    def _take_up_late(self):
        """Asks the offline minions after the last wave: who is back is what there is to do."""
        if not self._own.is_too_late(self._now()):
            for minion, answer in self._bus.ask(self._offline(), "sidle.status", read=self._status).items():
                take(self._own, self._now(), minion, partial(self._judge, "status", minion, answer))
        self._own.end_if_over(self._now())

    def goes_on(self):
        """Returns whether there is something to order, or to wait for."""
        status = self._record["status"]
        if status == states.RUNNING:
            self._resting_since = None
            return True
        if status == states.LATE:
            # Nobody waits for hosts that may be gone: `sidle.resume` and `sidle.take_up` take them up.
            return bool(self._own.in_flight) or states.WAITING in self._own.counts()
        # What is on its way ends by itself; the next driver asks what became of it.
        self._resting_since = self._resting_since or self._now()
        return bool(self._own.in_flight) and self._now() - self._resting_since < REST_SECONDS

    def step(self):
        """Hears what comes within a tick, then gives orders."""
        until = time.monotonic() + TICK_SECONDS
        while (rest := until - time.monotonic()) > 0:
            for event in self._bus.events(rest):
                self._skip_gap()
                self._hear(event)
        now = self._skip_gap()
        self._apply_commands()
        if not self._takes_jobs():
            # What a person has said is on record, also while the master is away.
            self._records.write(self._record)
            self._announce()
            return
        orders = self._own.next(now)
        self._claimed.update(orders.install, orders.switch)
        # First on record, then done.
        self._records.write(self._record)
        self._announce()
        try:
            if self._record["status"] == states.ABORTED:
                cancel_waiting(self._bus, self._record, list(self._record["hosts"]))
            if self._send(orders):
                self._published = self._now()
            self._look_for_offline()
        except jobs.Away:
            self._note_outage()

    def end(self):
        """
        Ends the claims of a rollout that is over; a halted one keeps them, since it goes on after `sidle.resume`. Returns False if a person has resumed it just now.
        """
        self._apply_commands()
        self._records.write(self._record)
        if self._record["status"] == states.RUNNING:
            return False
        if self._record["status"] != states.HALTED:
            hosts = self._record["hosts"]
            unclaim(self._bus, self._record, [minion for minion in hosts if minion in self._claimed and hosts[minion]["state"] != states.OFFLINE])
        self._announce()
        if self._announcer is not None:
            # What was on its way has ended since.
            self._announcer.write(self._record)
            self._records.write(self._record)
        return True

    # --- what is heard ---------------------------------------------------------------------------------------------

    def _hear(self, event):
        if not isinstance(event, str):
            self._take(*event)
            return
        words = event.split("/")
        if words[1:2] == ["beacon"] and words[3:4] == ["sidle"]:
            self._own.poll_soon(words[2])
        elif words[1:2] == ["minion"] and words[3:4] == ["start"]:
            self._own.on_online(words[2])
            self._own.poll_soon(words[2])

    def _take(self, kind, minion, told):
        """Takes the return of a job."""
        read = self._status if kind == "status" else answers.order
        if kind in ("status", *KINDS):
            take(self._own, self._now(), minion, lambda: self._judge(kind, minion, answers.taken(read, told)))

    def _status(self, told):
        return answers.status(told, self._record["package"])

    def _judge(self, kind, minion, answer):
        if isinstance(answer, answers.Unreadable):
            raise answer
        if kind == "install":
            self._own.on_install(self._now(), minion, answer)
        elif kind == "switch":
            self._own.on_switch(self._now(), minion, jobs.explained(self._record, answer))
        elif answer.instance:
            self._own.on_status(self._now(), minion, answer.instance)

    def _apply_commands(self):
        with self._records.commands(self._record["id"]) as commands:
            apply_commands(self._own, commands, self._now())
            if commands:
                self._records.write(self._record)

    # --- what is sent ----------------------------------------------------------------------------------------------

    def _send(self, orders):
        """Sends the orders; returns whether there was anything to send."""
        self._bus.publish(orders.ask, "sidle.status", kind="status")
        for kind, some in zip(KINDS, (orders.install, orders.switch), strict=True):
            for job, ids in jobs.of(self._record, kind, some):
                self._bus.publish(ids, job.function, kwarg=job.kwarg, kind=kind)
        return bool(orders)

    def _look_for_offline(self):
        if time.monotonic() - self._looked < OFFLINE_SECONDS or self._record["status"] not in (states.RUNNING, states.LATE):
            return
        self._looked = time.monotonic()
        self._bus.publish(self._offline(), "sidle.status", kind="status")

    def _offline(self):
        return [minion for minion, host in self._record["hosts"].items() if host["state"] == states.OFFLINE]

    def _skip_gap(self):
        """Leaves out a time in which this driver could see nothing (`clocks`). Returns the time until which that is so."""
        gap, now = self._clock.gap()
        if gap:
            log.warning("rollout %s: %d s are left out: this machine or its clock stood still, or the clock was set", self._record["id"], gap)
            self._own.skip_outage(gap)
            self._published = min(now, self._published + gap)
            self._away_since = None if self._away_since is None else min(now, self._away_since + gap)
            self._resting_since = None if self._resting_since is None else self._resting_since + gap
        return now

    def _takes_jobs(self):
        """Returns whether the master takes jobs. While it does not, no minion is silent, and no time passes for the rollout."""
        if self._away_since is None and self._now() - self._published < PROBE_SECONDS:
            return True
        some = next(iter(self._own.in_flight), None) or next(iter(self._record["hosts"]))
        try:
            self._bus.publish([some], "sidle.status", kind="status")
        except jobs.Away:
            self._note_outage()
            return False
        self._published = self._now()
        if self._away_since is not None:
            self._own.skip_outage(self._published - self._away_since)
            self._away_since = None
        return True

    def _note_outage(self):
        """Notes that no job could be published since the last one."""
        now, since = self._now(), self._published if self._away_since is None else self._away_since
        self._own.skip_outage(max(0.0, now - since))
        self._away_since = now


def cancel_waiting(bus, record, ids):
    """Cancels the switches that wait for their windows; a host that waits all the same says so, and is told again. Raises `jobs.Away`."""
    hosts = record["hosts"]
    # Also that of a host which was lost meanwhile: its window opens all the same.
    scheduled = [minion for minion in ids if states.is_unsure(hosts[minion]) and hosts[minion].get("scheduled")]
    bus.publish(scheduled, "sidle.cancel", kwarg={"package": record["package"]})
    for minion in scheduled:
        hosts[minion]["scheduled"] = False


def unclaim(bus, record, ids):
    """
    Ends the claims; after an abort, also the switches that wait for their windows. What belongs to another rollout refuses, and a host that does not hear
    of it ends its claim by itself.
    """
    try:
        if record["status"] == states.ABORTED:
            if record.get("at_window"):
                # Its driver may have ended before it heard which of them wait.
                ask_unsure(bus.ask, record)
            cancel_waiting(bus, record, ids)
        bus.ask(ids, "sidle.unclaim", kwarg={"rollout": record["id"], "package": record["package"]}, seconds=UNCLAIM_SECONDS)
    except jobs.Away:
        pass


def apply_commands(own, commands, now, of=COMMANDS):
    """Applies what people said to the driver (`Records.commands`), of these acts. What is on record as applied is not applied once more."""
    applied = own.record.get("applied", ())
    for act, reason, by, number in commands:
        if act in of and number not in applied:
            _apply_command(own, act, reason, by, now)
    if commands:
        own.record["applied"] = [number for *_, number in commands if number]


def _apply_command(own, act, reason, by, now):
    if own.record["status"] in (states.ENDED, states.ABORTED):
        return
    if act == "abort":
        own.abort(reason)
    elif act == "resume" and own.record["status"] == states.HALTED:
        own.resume(again=reason == AGAIN)
    elif act == "pause" and own.record["status"] in (states.RUNNING, states.LATE):
        own.pause(reason)
    else:
        return
    acts.note(own.record, now, act, by, reason)


def take(own, now, minion, judge):
    """Judges what a minion says: nonsense refuses the minion, and ends no runner."""
    try:
        judge()
    except answers.Unreadable as error:
        log.warning("%s: %s", minion, error)
        own.on_unreadable(now, minion, str(error))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        # What no reader of `answers` has found.
        log.exception("%s: what it says cannot be judged", minion)
        own.on_unreadable(now, minion, f"cannot read its answer: {type(error).__name__}")


def look(ask, record, ids, judge, now=time.time):
    """
    Asks these hosts for their status (`ask`: as `Bus.ask`), and judges what minion one says, by `judge(own, id, instance)`; `own` is the rollout of this
    record.
    """
    own = Rollout(record)

    def judged(minion, answer):
        if isinstance(answer, answers.Unreadable):
            raise answer
        if answer.instance:
            judge(own, minion, answer.instance)

    for minion, answer in ask(ids, "sidle.status", read=partial(answers.status, package=record["package"])).items():
        take(own, now(), minion, partial(judged, minion, answer))


def ask_unsure(ask, record, now=time.time):
    """Asks those of whom nobody knows what they run."""
    unsure = [minion for minion, host in record["hosts"].items() if states.is_unsure(host)]
    look(ask, record, unsure, lambda own, minion, instance: own.on_status(now(), minion, instance), now)


def take_newest_epoch(ask, record, now=time.time):
    """Gives the record the newest epoch of this rollout that its minions know: a copy of the record may be older."""
    own_epoch = record["epoch"]

    def judge(_, __, instance):
        claim = instance["rollout"]
        if not claim or claim["id"] != record["id"]:
            return
        if claim["epoch"] > own_epoch + EPOCH_STEP_MAX:
            raise answers.Unreadable(f"its rollout has epoch {claim['epoch']}, and this record {own_epoch}: no driver can have reached that")
        record["epoch"] = max(record["epoch"], claim["epoch"])

    look(ask, record, list(record["hosts"]), judge, now)
