"""
Drives a rollout on a master: takes the machine's orders, first on record and then on the bus, and tells the machine what hosts return.

Events tell sooner what happened (a host that starts, a switch that ended); only returns prove it.
"""

import time

from . import bus as buses
from . import jobs
from . import rollout as machine

#: How often orders are given, seconds. Returns are heard all the time.
TICK_SECONDS = 2

#: How often offline minions of a rollout in progress are asked whether they are back: one job for all of them.
OFFLINE_SECONDS = 60

#: Of the hosts that refuse a driver so many are named.
REFUSALS_SHOWN = 5


def drive(record, bus, records, now=time.time):
    """Drives until nothing is left to do, or until a halt has come to rest. Gives the record. Raises `RolloutError`."""
    driver = _Driver(record, bus, records, now)
    driver.begin()
    while driver.goes_on():
        driver.step()
    driver.end()
    return record


class _Driver:
    def __init__(self, record, bus, records, now):
        self._record, self._bus, self._records, self._now = record, bus, records, now
        self._own = machine.Rollout(record)
        self._looked = 0.0
        #: Since when no job can be published; None: they can.
        self._blind_since = None

    def begin(self):
        """Takes the rollout over from whoever drove it, on record and at the hosts."""
        record, is_new = self._record, not self._records.has(self._record["id"])
        if not is_new:
            # Each driver has an epoch of its own: hosts refuse a driver on another master that has an older copy of the record.
            record["epoch"] = max(record["epoch"], self._records.read(record["id"])["epoch"]) + 1
        ids = [each for each, host in record["hosts"].items() if host["state"] in (machine.WAITING, *machine.FLYING_STATES)]
        try:
            answers = claim(self._bus, record, ids)
        except buses.Away as error:
            raise machine.RolloutError(f"cannot drive rollout {record['id']}: {error}") from None
        refusals = [f"{each}: {answer['error']['message']}" for each, answer in sorted(answers.items()) if jobs.is_taken(answer)]
        if refusals:
            # The record stays as it was: what does not begin here leaves nothing behind.
            if is_new:
                release(self._bus, record, ids)
            more = [f"and {len(refusals) - REFUSALS_SHOWN} more"] if len(refusals) > REFUSALS_SHOWN else []
            lines = [f"cannot drive rollout {record['id']}: {len(refusals)} minions refuse it", *refusals[:REFUSALS_SHOWN], *more]
            raise machine.RolloutError("\n".join(lines))
        if not is_new:
            self._own.go_on(self._now())
        if record["status"] == machine.LATE:
            # Who is back is what there is to do.
            for each in self._bus.ask(self._offline(), "sidle.status"):
                self._own.came_back(each)
        self._records.write(record)

    def goes_on(self):
        """Whether there is something to order, or to wait for."""
        if self._own.flying:
            return True
        if self._record["status"] == machine.LATE:
            # Nobody waits for hosts that may be gone: `sidle.resume` and `sidle.take_up` take them up.
            return machine.WAITING in self._own.counts()
        return self._record["status"] == machine.RUNNING

    def step(self):
        """Hears what comes within a tick, then gives orders."""
        until = time.monotonic() + TICK_SECONDS
        while (rest := until - time.monotonic()) > 0:
            for tag, data in self._bus.events(rest):
                self._hear(tag, data)
        self._obey()
        orders = self._own.next(self._now())
        # First on record, then done.
        self._records.write(self._record)
        try:
            self._send(orders)
            self._look_for_offline()
            self._blind_since = None
        except buses.Away:
            self._is_blind()

    def end(self):
        """Ends the claims of a rollout that is over; a halted one keeps them, since it goes on after `sidle.resume`."""
        self._records.write(self._record)
        if self._record["status"] != machine.HALTED:
            release(self._bus, self._record, [each for each, host in self._record["hosts"].items() if host["state"] != machine.OFFLINE])

    # --- what is heard ---------------------------------------------------------------------------------------------

    def _hear(self, tag, data):
        answer = self._bus.returned(tag, data)
        if answer is not None:
            self._take(*answer)
            return
        words = tag.split("/")
        if words[1:2] == ["beacon"] and words[3:4] == ["sidle"]:
            self._own.hint(words[2])
        elif words[1:2] == ["minion"] and words[3:4] == ["start"]:
            self._own.came_back(words[2])
            self._own.hint(words[2])

    def _take(self, kind, each, answer):
        now = self._now()
        if kind == "install":
            self._own.installed(now, each, jobs.answer(answer))
        elif kind == "switch":
            self._own.ordered(now, each, jobs.answer(answer))
        elif kind == "status":
            status = jobs.instance(answer, self._record["package"])
            if status:
                self._own.saw(now, each, status)

    def _obey(self):
        word = self._records.word(self._record["id"])
        if word:
            obey(self._own, *word)

    # --- what is sent ----------------------------------------------------------------------------------------------

    def _send(self, orders):
        self._bus.publish(orders.ask, "sidle.status", kind="status")
        for kind, some in (("install", orders.install), ("switch", orders.switch)):
            for job, ids in jobs.of(self._record, kind, some):
                self._bus.publish(ids, job.function, kwarg=job.kwarg, kind=kind)

    def _look_for_offline(self):
        if time.monotonic() - self._looked < OFFLINE_SECONDS or self._record["status"] not in (machine.RUNNING, machine.LATE):
            return
        self._looked = time.monotonic()
        self._bus.publish(self._offline(), "sidle.status", kind="status")

    def _offline(self):
        return [each for each, host in self._record["hosts"].items() if host["state"] == machine.OFFLINE]

    def _is_blind(self):
        now = self._now()
        if self._blind_since is not None:
            self._own.was_blind(max(0.0, now - self._blind_since))
        self._blind_since = now


def claim(bus, record, ids):
    """
    Claims hosts, with the driver's epoch: each one refuses other rollouts then, and drivers of older epochs. One that does not hear of it is claimed by
    its order.
    """
    return bus.ask(ids, "sidle.claim", kwarg={"rollout": record["id"], "epoch": record["epoch"], "package": record["package"]})


def release(bus, record, ids):
    """Ends the claims. What belongs to another rollout refuses, and a host that does not hear of it ends its claim by itself."""
    try:
        bus.publish(ids, "sidle.release", kwarg={"rollout": record["id"], "package": record["package"]})
    except buses.Away:
        pass


def obey(own, act, reason):
    """What a person said to the driver."""
    if act == "abort":
        own.abort(reason)
    elif own.record["status"] in (machine.RUNNING, machine.LATE):
        own.pause(reason)
