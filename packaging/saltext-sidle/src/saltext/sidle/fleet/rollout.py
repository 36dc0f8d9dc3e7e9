"""
The machine of a rollout: which minions install and switch next, and when it halts.

The driver (see `driver`, or the simulator) reports what minions answered, and asks for the next orders. All that a rollout knows is one record, which the
driver saves as JSON *before* it sends the orders. If the driver dies after that, the record names minions as ordered that never got their order: the next
driver asks these minions for their status, and orders them again if they have begun nothing.

A minion that lacks the release installs it first, and waits for its turn to switch then. A minion counts as done when a job of its own returned with the
new release: events only make the driver ask sooner.
"""

from typing import NamedTuple

from . import states
from .budgets import Budgets, try_again
from .states import DONE, INSTALLING, LATE, OFFLINE, ORDERED, REFUSED, RUNNING, WAITING, RolloutError
from .waiting import Waiting

#: How often a minion is ordered that knows nothing of the order: the order, or its answer, may get lost with a master.
ORDERS_MAX = 3

#: What an answer to one order says of the minion, for as long as this order is on its way.
OF_ONE_ORDER = ("complaint", "scheduled", "retiring_since")

#: Classes of errors that another order, or the command of another person, explains: the status says how it goes on.
EXPLAINED = ("nothing-to-do", "pending", "locked")


def version(release):
    """Returns the version of a release: the grain of a minion that does not answer has no more."""
    return release.rsplit("-", 1)[0]


class Orders(NamedTuple):
    """What the driver has to do now: ids that install, ids that switch, ids to ask for their status."""

    install: "list[str]"
    switch: "list[str]"
    ask: "list[str]"

    def __bool__(self):
        return bool(self.install or self.switch or self.ask)


class Rollout:
    """A rollout between two saves. `record` is all there is to save; the rest follows from it."""

    def __init__(self, record):
        if record.get("schema") != 1:
            raise RolloutError(f"cannot read a record of schema {record.get('schema')}: another version of saltext-sidle wrote it")
        self.record = record
        self.settings = record["settings"]
        #: The minions with an order on its way.
        self.in_flight = {}
        self._waiting, self._budgets = Waiting(record["waves"]), Budgets(record)
        #: How many minions of each wave have not ended.
        self._open = [0] * max(1, record["waves"])
        #: When minions were ordered to switch in the last minute.
        self._recent = []
        self._done = 0
        #: Offline minions that were heard of: their status decides. Each once: who fires events without end is asked no more often.
        self._online = {}
        for minion, host in record["hosts"].items():
            self._open[host["wave"]] += host["state"] in (WAITING, *states.IN_FLIGHT_STATES)
            self._done += host["state"] == DONE
            if host["state"] == WAITING:
                self._waiting.add(minion, host)
            elif host["state"] in states.IN_FLIGHT_STATES:
                self.in_flight[minion] = host
                self._recent += [host["ordered"]] if host["state"] == ORDERED else []
            elif host["state"] in states.BAD_STATES:
                self._budgets.count(host)

    # --- what to do next -------------------------------------------------------------------------------------------

    def next(self, now):
        """Returns the orders to give now, and the minions to ask. What is ordered is on record already."""
        self._advance(now)
        ask = [minion for minion, host in self.in_flight.items() if now - host["asked"] >= self.settings["ask_seconds"]]
        for minion in ask:
            self.in_flight[minion]["asked"] = now
        online, self._online = self._online, {}
        install, switch = self._orders(now)
        return Orders(install, switch, [*ask, *online])

    def _orders(self, now):
        if self.record["status"] not in (RUNNING, LATE):
            return [], []
        self._recent = [at for at in self._recent if now - at < 60]
        hosts = self.in_flight.values()
        switching = sum(host["state"] == ORDERED and not self._waits_for_window(host, now) for host in hosts)
        installing = sum(host["state"] == INSTALLING for host in hosts)
        wave, settings = self.record["wave"], self.settings
        install = self._waiting.take(INSTALLING, wave, settings["install_at_once"] - installing)
        switch = self._waiting.take(ORDERED, wave, min(settings["at_once"] - switching, settings["per_minute"] - len(self._recent)))
        for state, minions in ((INSTALLING, install), (ORDERED, switch)):
            for minion in minions:
                self._order(minion, now, state)
        self._recent += [now] * len(switch)
        return install, switch

    def _waits_for_window(self, host, now):
        """Returns whether a minion waits for its window: then it takes no other minion's place; a minion that waits for its splay does."""
        return bool(host.get("scheduled")) and now - host["ordered"] >= self.settings["order_seconds"]

    def _order(self, minion, now, state):
        host = self.record["hosts"][minion]
        host.update(state=state, ordered=now, asked=now, answered=now, orders=host.get("orders", 0) + 1)
        for name in OF_ONE_ORDER:
            host.pop(name, None)
        self.in_flight[minion] = host

    def _order_later(self, minion):
        """Lets a minion in flight wait for its next order, as the next one of its wave."""
        host = self.in_flight.pop(minion)
        host["state"] = WAITING
        self._waiting.add(minion, host, first=True)

    def _advance(self, now):
        for minion, host in list(self.in_flight.items()):
            if now - host["answered"] >= self.settings["patience_seconds"]:
                self._end(minion, states.LOST, now, "lost", f"no answer for {int(now - host['answered'])} s")
        record, wave = self.record, self.record["wave"]
        if record["status"] == LATE:
            self.end_if_over(now)
            return
        if record["status"] != RUNNING or any(self._open[: wave + 1]):
            record["soaking_since"] = None
            return
        if record["soaking_since"] is None:
            record["soaking_since"] = now
        if now - record["soaking_since"] < self.settings["soak_seconds"]:
            return
        if wave + 1 == record["waves"]:
            record.update(soaking_since=None, status=LATE)
            self.end_if_over(now)
            return
        why = self._why_no_next_wave()
        if why:
            self._halt(why)
        else:
            record.update(soaking_since=None, wave=wave + 1)

    def _why_no_next_wave(self):
        record, wave = self.record, self.record["wave"]
        fresh = [failure for failure in record["failures"].values() if failure["cause"] == "release" and not failure["accepted"]]
        if fresh:
            return f"wave {wave + 1} found {record['release']} bad: {fresh[0]['text']} (first on {fresh[0]['hosts'][0]})"
        if not self._done and wave not in record["untried"]:
            return f"nobody runs {record['release']} yet: no host of wave {wave + 1} is done"
        return None

    def end_if_over(self, now):
        """Ends the rollout after the last wave: offline minions are waited for, but not for ever."""
        is_idle = not self.in_flight and not self._waiting
        if is_idle and (self.is_too_late(now) or not any(host["state"] == OFFLINE for host in self.record["hosts"].values())):
            self.record["status"] = states.ENDED

    def is_too_late(self, now):
        """Returns whether offline minions are not taken up any more."""
        return now - self.record["begun"] > self.settings["late_seconds"]

    # --- time in which nobody could see anything -----------------------------------------------------------------------

    def go_on(self, now):
        """Continues with another driver: minions in flight are asked at once, and their silence before does not count."""
        for host in self.in_flight.values():
            host.update(answered=now, asked=0)
        if self.record["soaking_since"] is not None:
            self.record["soaking_since"] = now

    def skip_outage(self, seconds):
        """Leaves out a time in which nobody could see anything: it was no silence of the minions, and no soak. Less than 0: the clock was set back."""
        for host in self.in_flight.values():
            host.update({key: host[key] + seconds for key in ("ordered", "answered", "retiring_since") if key in host})
            host["asked"] += min(0.0, seconds)
        self._recent = [at + min(0.0, seconds) for at in self._recent]
        if self.record["soaking_since"] is not None:
            self.record["soaking_since"] += seconds

    # --- answers ---------------------------------------------------------------------------------------------------

    def on_install(self, now, minion, answer):
        """Takes the answer to an order to install: what `sidle.install` returns."""
        host = self.in_flight.get(minion)
        if host is None or host["state"] != INSTALLING:
            return
        host["answered"] = now
        error = answer.get("error")
        if error is None or error["class"] == "nothing-to-do":
            self._has_installed(minion, host)
        elif error["class"] in EXPLAINED:
            return
        elif error["class"] == "failed" and host["orders"] < ORDERS_MAX:
            # A source that is away may come back: the minion is ordered again after a while.
            host["complaint"] = error["message"]
        else:
            self._end(minion, REFUSED, now, error["class"], error["message"], "install")

    def _has_installed(self, minion, host):
        host.update(lacks=False, orders=0)
        self._order_later(minion)

    def on_switch(self, now, minion, answer):
        """Takes the answer to an order to switch: what `sidle.switch` or `sidle.rollback` returns."""
        host = self.in_flight.get(minion)
        if host is None or host["state"] != ORDERED:
            return
        host["answered"] = now
        error = answer.get("error")
        # Another order of this rollout was first, also one that this record does not know; or the release is current: the status says so.
        if error is None or error["class"] in EXPLAINED:
            return
        if error["class"] == "conflict":
            host.update(complaint=error["message"], asked=0)
            return
        self._end(minion, REFUSED, now, error["class"], error["message"])

    def on_status(self, now, minion, status):
        """Takes the status of a minion's instance: what `sidle.status` has of it. A return proves that its process takes jobs."""
        host = self.record["hosts"].get(minion)
        if host is None:
            return
        if minion in self.in_flight:
            host["answered"] = now
            (self._on_status_installing if host["state"] == INSTALLING else self._on_status_ordered)(now, minion, host, status)
        elif host["state"] == OFFLINE:
            self._take_up(minion, now, status)
        elif states.is_unsure(host):
            live = status.get("switch")
            host["scheduled"] = states.is_scheduled(self.record, live) and live["to"] == host["to"]
            if not live and status.get("current") == host["to"]:
                host.update(state=DONE, cause=None, text=None)
                self._done += 1

    def _on_status_installing(self, now, minion, host, status):
        if host["to"] in status.get("installed", ()):
            self._has_installed(minion, host)
        else:
            name = "order_seconds" if host.get("complaint") else "install_seconds"
            self._order_again(minion, now, self.settings[name], "the release is not installed there")

    def _on_status_ordered(self, now, minion, host, status):
        live, last = status.get("switch"), status.get("last")
        if host.get("complaint") and self._is_of_another(status, host):
            self._end(minion, REFUSED, now, "conflict", host["complaint"])
        elif live:
            host["scheduled"] = states.is_scheduled(self.record, live)
            if live["phase"] == "stranded":
                self._fail(minion, now, live)
            elif live["phase"] == "finishing-old" and live["to"] == status.get("current") == host["to"]:
                self._finishes_old(minion, now, live)
        elif last is not None and last["id"] > host["before"] and last["result"] != "committed":
            self._fail(minion, now, last)
        elif status.get("current") == host["to"]:
            # What comes after this rollout is judged by its own switch.
            host["before"] = last["id"] if last else 0
            host["downtime"] = last.get("downtime") if last else None
            self._end(minion, DONE, now)
        else:
            self._order_again(minion, now, self.settings["order_seconds"], "it began no switch")

    def on_unreadable(self, now, minion, why):
        """Refuses a minion whose answer cannot be read; the others go on."""
        self.refuse(now, minion, states.UNREADABLE, why, "answer")

    def refuse(self, now, minion, cause, why, phase="order"):
        """Refuses a minion that is not through yet; the others go on."""
        host = self.record["hosts"].get(minion)
        if host is None or host["state"] not in (WAITING, OFFLINE, *states.IN_FLIGHT_STATES):
            return
        if host["state"] == WAITING:
            self._waiting.remove(minion, host)
        self.in_flight.pop(minion, None)
        if host["state"] != OFFLINE:
            self._open[host["wave"]] -= 1
        self._went_wrong(minion, REFUSED, now, cause, why, phase)

    def _finishes_old(self, minion, now, live):
        """Counts a minion as done whose old process finishes its jobs: nobody waits for the longest of them."""
        host = self.in_flight[minion]
        if now - host.setdefault("retiring_since", now) >= self.settings["order_seconds"]:
            host["before"] = live["id"]
            self._end(minion, DONE, now)

    def _order_again(self, minion, now, seconds, why):
        """Orders a minion again that has not followed its order after this time."""
        host = self.in_flight[minion]
        if now - host["ordered"] < seconds:
            return
        if host["orders"] >= ORDERS_MAX:
            self._end(minion, states.LOST, now, "lost", f"ordered {host['orders']} times, and {host.get('complaint') or why}")
        else:
            self._order_later(minion)

    def poll_soon(self, minion):
        """Asks a minion next: an event says that something has happened there."""
        if minion in self.in_flight:
            self.in_flight[minion]["asked"] = 0

    def on_online(self, minion):
        """Asks a minion that was offline and is heard of: its status decides."""
        host = self.record["hosts"].get(minion)
        if host is not None and host["state"] == OFFLINE:
            self._online[minion] = True

    def _take_up(self, minion, now, status):
        """Takes up a minion that was offline, with the wave under way or with its own: what the plan knew of it was old."""
        host, current, last = self.record["hosts"][minion], status.get("current"), status.get("last")
        if self.is_too_late(now) or self._is_of_another(status, host):
            return
        if current == host["to"] and not status.get("switch"):
            # Not by this rollout, so that it does not go back with it.
            host.update({"state": DONE, "ended": now, "from": None})
            self._done += 1
            return
        if host["from"] and current and version(current) != version(host["from"]):
            text = f"it came back with {current}, and ran {host['from']} when this was planned"
            host.update(state=states.LEFT_OUT, ended=now, text=text)
            return
        host.update({"from": current, "before": last["id"] if last else 0, "lacks": host["to"] not in status.get("installed", ()), "state": WAITING})
        self._open[host["wave"]] += 1
        self._waiting.add(minion, host)

    def _is_of_another(self, status, host):
        """Returns whether a minion does what somebody else has ordered, or belongs to another rollout."""
        live, claim = status.get("switch"), status.get("rollout")
        is_claimed = claim and (claim["id"] != self.record["id"] or claim["epoch"] > self.record["epoch"])
        return bool(is_claimed or (live and live["to"] != host["to"]))

    def _fail(self, minion, now, switch):
        # Another try is judged by its own switch.
        self.record["hosts"][minion].update(before=switch["id"], downtime=switch.get("downtime"))
        failure = switch["failure"] or {"phase": switch.get("phase", "?"), "cause": "host", "text": switch.get("result", "stranded")}
        is_refused = switch.get("result") in ("refused", "cancelled", "expired", "abandoned")
        self._end(minion, REFUSED if is_refused else states.FAILED, now, failure["cause"], failure["text"], failure["phase"])

    def _end(self, minion, state, now, cause=None, text=None, phase="order"):
        host = self.in_flight.pop(minion)
        self._open[host["wave"]] -= 1
        if state == DONE:
            host.update(state=state, ended=now)
            self._done += 1
        else:
            self._went_wrong(minion, state, now, cause, text, phase)

    def _went_wrong(self, minion, state, now, cause, text, phase):
        host = self.record["hosts"][minion]
        host.update(state=state, ended=now, cause=cause, text=text)
        self._budgets.remember(minion, host, phase)
        self._budgets.count(host)
        why = self._budgets.exceeded(host) if self.record["status"] in (RUNNING, LATE) else None
        if why:
            self._halt(why)

    def _halt(self, why):
        self.record.update(status=states.HALTED, why=why, soaking_since=None)

    # --- commands of a person ----------------------------------------------------------------------------------------

    def resume(self, again=False):
        """
        Continues after a halt: what went wrong until now is accepted, and counts no more. `again`: those that failed are tried once more.
        """
        if self.record["status"] != states.HALTED:
            raise RolloutError(f"cannot resume rollout {self.record['id']}: it is {self.record['status']}")
        for failure in self.record["failures"].values():
            failure["accepted"] = True
        if again:
            for host in self.record["hosts"].values():
                if host["state"] in states.BAD_STATES:
                    try_again(host)
            self.record["failures"] = {}
        self.record.update(status=RUNNING, why=None)
        self.__init__(self.record)
        self._budgets.accept_all()
        if not any(self._open[: self.record["wave"] + 1]):
            # A person knows what became of this wave; of one that is on its way nobody does.
            self.record["untried"].append(self.record["wave"])

    def pause(self, why):
        """Orders nobody until somebody resumes it; what is on its way ends by itself."""
        if self.record["status"] not in (RUNNING, LATE):
            raise RolloutError(f"cannot pause rollout {self.record['id']}: it is {self.record['status']}")
        self._halt(why)

    def abort(self, why):
        """Orders nobody any more; what is on its way ends by itself."""
        if self.record["status"] in (states.ENDED, states.ABORTED):
            raise RolloutError(f"cannot abort rollout {self.record['id']}: it is {self.record['status']}")
        self.record.update(status=states.ABORTED, why=why)

    def counts(self):
        """Returns how many minions are in each state."""
        found = {}
        for host in self.record["hosts"].values():
            found[host["state"]] = found.get(host["state"], 0) + 1
        return found
