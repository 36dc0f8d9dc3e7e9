"""
The machine of a rollout: which hosts install and switch next, and when it halts.

The driver (see `driver`, or the simulator) reports what hosts answered, and asks for the next orders. All that a rollout knows is one record, which the
driver saves as JSON *before* it sends the orders. If the driver dies after that, the record names hosts as ordered that never got their order: the next
driver asks these hosts for their status, and orders them again if they have begun nothing.

A host that lacks the release installs it first, and waits for its turn to switch then. A host counts as done when a job of its own returned with the new
release: events are hints to ask sooner.
"""

import math
import re
from typing import NamedTuple

#: What a host is in a rollout. Left out is a host that came back with another release than the one from which it was to go.
WAITING, INSTALLING, ORDERED, DONE, REFUSED, FAILED, LOST, OFFLINE, LEFT_OUT = (
    "waiting", "installing", "ordered", "done", "refused", "failed", "lost", "offline", "left out",
)  # fmt: skip

#: States in which an order is on its way.
FLYING_STATES = (INSTALLING, ORDERED)

#: States that count against a budget.
BAD_STATES = (REFUSED, FAILED, LOST)

#: States in which nobody knows what the host runs.
UNSURE_STATES = (*FLYING_STATES, LOST)

#: Why a host is refused that answers nonsense: its `cause`.
UNREADABLE = "answer"

#: A driver that takes over accepts an epoch of a host that is so much higher than its own, at most: each driver raises it by one. Hosts allow more
#: (`EPOCH_STEP_MAXIMUM`), so that no host's word makes an epoch that the others refuse.
EPOCH_STEP_MAX = 10_000

#: What a rollout is: it goes on; all waves are through, and offline hosts are taken up when they come back; the rest speaks for itself.
RUNNING, LATE, HALTED, ABORTED, ENDED = "running", "late", "halted", "aborted", "ended"

#: How often a host is ordered that knows nothing of the order: the order, or its answer, may get lost with a master.
ORDERS_MAX = 3

#: What an answer to one order says of the host, for as long as this order is on its way.
OF_ONE_ORDER = ("complaint", "scheduled", "retiring_since")

#: Of different failures so many are remembered: a fleet in which each host fails for a reason of its own needs a person long before.
FAILURES_MAX = 100


#: Which way a rollout goes: to a release, or back to what each host ran before.
SWITCH, ROLLBACK = "switch", "rollback"

#: Classes of errors that another order, or another one's command, explains: the status says how it goes on.
EXPLAINED = ("nothing-to-do", "pending", "locked")


class RolloutError(ValueError):
    """What was asked is not possible now: the message names why."""


class Orders(NamedTuple):
    """What the driver has to do now: ids that install, ids that switch, ids to ask for their status."""

    install: "list[str]"
    switch: "list[str]"
    ask: "list[str]"

    def __bool__(self):
        return bool(self.install or self.switch or self.ask)


DEFAULTS = {
    # How many hosts may switch at once: each costs its masters a sign-in, a pillar and proofs.
    "at_once": 50,
    # How many hosts are ordered to switch in a minute, at most.
    "per_minute": 100,
    # How many hosts may install at once: they share what the source can serve.
    "install_at_once": 20,
    # After so long without the release an installing host is ordered again.
    "install_seconds": 900,
    # So many hosts of a wave may be refused, fail or be lost from sight: a number, or percent of the wave.
    "budget": "2%",
    # The same of one family of operating systems, of all its hosts.
    "family_budget": "5%",
    # How long a wave is watched after its last host has ended.
    "soak_seconds": 300,
    # After so long without an answer a host is lost from sight.
    "patience_seconds": 900,
    # After so long an ordered host that knows nothing of it is ordered again: longer than the splay.
    "order_seconds": 120,
    # A host on its way is asked so often.
    "ask_seconds": 15,
    # Offline hosts are taken up for so long.
    "late_seconds": 90 * 86400,
}


def allowance(budget, hosts):
    """How many of these may go wrong: `3`, or `"5%"` (rounded down)."""
    text = str(budget).strip()
    match = re.fullmatch(r"(\d+)(%?)", text)
    if not match or (match[2] and int(match[1]) > 100):
        raise RolloutError(f"cannot read the budget {text}: a number of hosts, or percent, as in 3 or 5%")
    return hosts * int(match[1]) // 100 if match[2] else int(match[1])


def is_unsure(host):
    """Whether nobody knows what a host runs."""
    return host["state"] in UNSURE_STATES or host.get("cause") == UNREADABLE


def version(release):
    """The version of a release: a minion that does not answer is known by its grain, which has no more."""
    return release.rsplit("-", 1)[0]


def signature(family, phase, text):
    """What tells one failure from another: numbers, paths and hosts differ where the reason is the same."""
    plain = re.sub(r"0x[0-9a-f]+|/[^\s:;,)]+|\d+", "…", text or "")
    return f"{family}: {phase}: {plain}"


def new(rollout_id, plan, now, **settings):
    """The record of a rollout of this plan, before its first step."""
    settings = _checked({**DEFAULTS, **settings})
    hosts = {}
    for number, wave in enumerate(plan.waves):
        for each in wave:
            host = plan.hosts[each]
            hosts[each] = {
                "wave": number, "family": host.family, "from": host.running, "to": plan.release, "before": host.last_switch, "lacks": host.lacks,
                "state": OFFLINE if host.verdict == "offline" else WAITING,
            }  # fmt: skip
    return _record(rollout_id, SWITCH, plan.package, plan.release, settings, now, hosts, len(plan.waves))


def back(rollout_id, former, wave, now, **settings):
    """
    The record of a rollout that takes hosts of a former one (its record) back to the release that each of them ran before.

    `wave`: the wave to take back, counted from 0; None: all hosts that are done. Raises `RolloutError` where none can go back.
    """
    done = {each: host for each, host in former["hosts"].items() if host["state"] == DONE and wave in (None, host["wave"])}
    hosts = {
        each: {
            "wave": 0, "family": host["family"], "from": host["to"], "to": host["from"], "before": host["before"], "lacks": False, "state": WAITING,
        }
        for each, host in done.items()
        if host["from"]
    }  # fmt: skip
    if not hosts:
        which = "no wave" if wave is None else f"wave {wave + 1}"
        raise RolloutError(f"cannot roll back {which} of rollout {former['id']}: none of its hosts is done, and ran another release before")
    settings = _checked({**former["settings"], "soak_seconds": 0, **settings})
    record = _record(rollout_id, ROLLBACK, former["package"], former["release"], settings, now, hosts, 1)
    record["of"] = former["id"]
    return record


def _checked(settings):
    unknown = sorted(set(settings) - set(DEFAULTS))
    if unknown:
        raise RolloutError(f"no setting is called {', '.join(unknown)}: there are {', '.join(DEFAULTS)}")
    for name in ("budget", "family_budget"):
        allowance(settings[name], 1)
    for name in set(DEFAULTS) - {"budget", "family_budget"}:
        is_number = isinstance(settings[name], (int, float)) and math.isfinite(settings[name])
        if not is_number or settings[name] < (0 if name == "soak_seconds" else 1):
            raise RolloutError(f"cannot take {name}={settings[name]}: a number of at least 1")
    return settings


def _record(rollout_id, purpose, package, release, settings, now, hosts, waves):
    return {
        "schema": 1, "id": rollout_id, "status": RUNNING, "epoch": 1, "purpose": purpose, "package": package, "release": release,
        "settings": settings, "begun": now, "why": None, "wave": 0, "waves": waves, "soaking_since": None,
        "accepted": {}, "failures": {}, "untried": [], "hosts": hosts,
    }  # fmt: skip


class Rollout:
    """A rollout between two saves. `record` is all there is to save; the rest follows from it."""

    def __init__(self, record):
        if record.get("schema") != 1:
            raise RolloutError(f"cannot read a record of schema {record.get('schema')}: another version of saltext-sidle wrote it")
        self.record = record
        self.settings = record["settings"]
        hosts = record["hosts"]
        # Of each wave: the hosts that wait for their turn to switch, and those that have to install first; the next one is the last.
        self._waiting = [[] for _ in range(max(1, record["waves"]))]
        self._lacking = [[] for _ in range(max(1, record["waves"]))]
        self._open = [0] * max(1, record["waves"])
        self._sizes = [0] * max(1, record["waves"])
        self._families = {}
        self._wrong = {}
        self.flying = {}
        self._installing = 0
        self._recent = []
        self._done = 0
        #: Offline hosts that were heard of: their status decides. Each once: who fires events without end is asked no more often.
        self._back = {}
        for each, host in hosts.items():
            self._sizes[host["wave"]] += 1
            self._families[host["family"]] = self._families.get(host["family"], 0) + 1
            if host["state"] in (WAITING, *FLYING_STATES):
                self._open[host["wave"]] += 1
            if host["state"] == WAITING:
                self._queue(host).append(each)
            elif host["state"] in FLYING_STATES:
                self.flying[each] = host
                self._installing += host["state"] == INSTALLING
                if host["state"] == ORDERED:
                    self._recent.append(host["ordered"])
            elif host["state"] in BAD_STATES:
                self._count_wrong(host)
            self._done += host["state"] == DONE
        for queue in (*self._waiting, *self._lacking):
            queue.reverse()
        self._recent.sort()

    def _queue(self, host):
        return (self._lacking if host["lacks"] else self._waiting)[host["wave"]]

    # --- what to do next -------------------------------------------------------------------------------------------

    def next(self, now):
        """The orders to give now, and the hosts to ask. What is ordered is on record already when this returns."""
        self._advance(now)
        ask = [each for each, host in self.flying.items() if now - host["asked"] >= self.settings["ask_seconds"]]
        for each in ask:
            self.flying[each]["asked"] = now
        back, self._back = self._back, {}
        install, switch = self._orders(now)
        return Orders(install, switch, [*ask, *back])

    def _orders(self, now):
        install, switch = [], []
        if self.record["status"] not in (RUNNING, LATE):
            return install, switch
        self._recent = [at for at in self._recent if now - at < 60]
        switching = sum(host["state"] == ORDERED and not self._waits_for_window(host, now) for host in self.flying.values())
        room = min(self.settings["at_once"] - switching, self.settings["per_minute"] - len(self._recent))
        install_room = self.settings["install_at_once"] - self._installing
        # What came late to an earlier wave goes first.
        waves = slice(self.record["wave"] + 1)
        for orders, limit, queues, state in (
            (install, install_room, self._lacking[waves], INSTALLING),
            (switch, room, self._waiting[waves], ORDERED),
        ):
            for queue in queues:
                while queue and len(orders) < limit:
                    orders.append(queue.pop())
                    self._order(orders[-1], now, state)
        return install, switch

    def _waits_for_window(self, host, now):
        """A host that waits for its window takes no other host's place; one that waits for its splay does."""
        return bool(host.get("scheduled")) and now - host["ordered"] >= self.settings["order_seconds"]

    def _order(self, each, now, state):
        host = self.record["hosts"][each]
        host.update(state=state, ordered=now, asked=now, answered=now, orders=host.get("orders", 0) + 1)
        for name in OF_ONE_ORDER:
            host.pop(name, None)
        self.flying[each] = host
        if state == INSTALLING:
            self._installing += 1
        else:
            self._recent.append(now)

    def _land(self, each):
        host = self.flying.pop(each)
        self._installing -= host["state"] == INSTALLING
        return host

    def _wait_again(self, each, at_once=False):
        """It is ordered again: as the next one, or after those that wait."""
        host = self._land(each)
        host["state"] = WAITING
        queue = self._queue(host)
        queue.insert(len(queue) if at_once else 0, each)

    def _advance(self, now):
        for each, host in list(self.flying.items()):
            if now - host["answered"] >= self.settings["patience_seconds"]:
                self._end(each, LOST, now, "lost", f"no answer for {int(now - host['answered'])} s")
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
        fresh = [each for each in record["failures"].values() if each["cause"] == "release" and not each["accepted"]]
        if fresh and wave + 1 < record["waves"]:
            first = fresh[0]
            self._halt(f"wave {wave + 1} found {record['release']} bad: {first['text']} (first on {first['hosts'][0]})")
            return
        if wave + 1 < record["waves"] and not self._done and wave not in record["untried"]:
            self._halt(f"nobody runs {record['release']} yet: no host of wave {wave + 1} is done")
            return
        record["soaking_since"] = None
        if wave + 1 < record["waves"]:
            record["wave"] = wave + 1
        else:
            record["status"] = LATE
            self.end_if_over(now)

    def end_if_over(self, now):
        """After the last wave: offline hosts are waited for, but not for ever."""
        is_idle = not self.flying and not any(self._waiting) and not any(self._lacking)
        if is_idle and (self.is_too_late(now) or not any(host["state"] == OFFLINE for host in self.record["hosts"].values())):
            self.record["status"] = ENDED

    def is_too_late(self, now):
        """Whether offline hosts are not taken up any more."""
        return now - self.record["begun"] > self.settings["late_seconds"]

    # --- time in which nobody could see anything -----------------------------------------------------------------------

    def go_on(self, now):
        """Another driver begins: hosts on their way are asked at once, and nobody was silent while nobody asked."""
        for host in self.flying.values():
            host.update(answered=now, asked=0)
        if self.record["soaking_since"] is not None:
            self.record["soaking_since"] = now

    def was_blind(self, seconds):
        """For so long no job could be published: this was no silence of the hosts, and no soak."""
        for host in self.flying.values():
            for key in ("ordered", "answered"):
                host[key] += seconds
        if self.record["soaking_since"] is not None:
            self.record["soaking_since"] += seconds

    # --- what was seen ---------------------------------------------------------------------------------------------

    def installed(self, now, each, answer):
        """What a host answered to its order to install: what `sidle.install` returns."""
        host = self.flying.get(each)
        if host is None or host["state"] != INSTALLING:
            return
        host["answered"] = now
        error = answer.get("error")
        if error is None or error["class"] == "nothing-to-do":
            self._has(each, host)
        elif error["class"] in EXPLAINED:
            return
        elif error["class"] == "failed" and host["orders"] < ORDERS_MAX:
            # A source that is away may come back: it is ordered again after a while.
            host["complaint"] = error["message"]
        else:
            self._end(each, REFUSED, now, error["class"], error["message"], "install")

    def _has(self, each, host):
        host.update(lacks=False, orders=0)
        self._wait_again(each, at_once=True)

    def ordered(self, now, each, answer):
        """What a host answered to its order to switch: what `sidle.switch` or `sidle.rollback` returns."""
        host = self.flying.get(each)
        if host is None or host["state"] != ORDERED:
            return
        host["answered"] = now
        error = answer.get("error")
        if error is None:
            return
        # Another order of this rollout was first, also one that this record does not know; or the release is current: the status says so.
        if error["class"] in EXPLAINED:
            return
        if error["class"] == "conflict":
            host.update(complaint=error["message"], asked=0)
            return
        self._end(each, REFUSED, now, error["class"], error["message"])

    def saw(self, now, each, status):
        """What a host says of its instance: what `sidle.status` has of it. A return is a proof that its process takes jobs."""
        host = self.record["hosts"].get(each)
        if host is None:
            return
        live, last = status.get("switch"), status.get("last")
        if each not in self.flying:
            if host["state"] == OFFLINE:
                self._take_up(each, now, status)
            elif is_unsure(host) and not live and status.get("current") == host["to"]:
                host.update(state=DONE, cause=None, text=None)
                self._done += 1
            return
        host["answered"] = now
        if host["state"] == INSTALLING:
            if host["to"] in status.get("installed", ()):
                self._has(each, host)
            else:
                name = "order_seconds" if host.get("complaint") else "install_seconds"
                self._order_again(each, now, self.settings[name], "the release is not installed there")
            return
        if host.get("complaint") and self._is_of_another(status, host):
            self._end(each, REFUSED, now, "conflict", host["complaint"])
            return
        if live:
            host["scheduled"] = bool(self.record.get("at_window")) and live["phase"] == "scheduled"
            if live["phase"] == "stranded":
                self._fail(each, now, live)
            elif live["phase"] == "finishing-old" and live["to"] == status.get("current") == host["to"]:
                self._retires(each, now, live)
            return
        is_new = last is not None and last["id"] > host["before"]
        if is_new and last["result"] != "committed":
            self._fail(each, now, last)
        elif status.get("current") == host["to"]:
            # What comes after this rollout is judged by its own switch.
            host["before"] = last["id"] if last else 0
            self._end(each, DONE, now)
        else:
            self._order_again(each, now, self.settings["order_seconds"], "it began no switch")

    def unreadable(self, now, each, why):
        """A host answers nonsense: it is refused, and the others go on."""
        host = self.record["hosts"].get(each)
        if host is None or host["state"] not in (WAITING, OFFLINE, *FLYING_STATES):
            return
        if host["state"] == WAITING:
            self._queue(host).remove(each)
        elif host["state"] in FLYING_STATES:
            self._land(each)
        if host["state"] != OFFLINE:
            self._open[host["wave"]] -= 1
        self._went_wrong(each, REFUSED, now, UNREADABLE, why, "answer")

    def _retires(self, each, now, live):
        """The release is current there, and the old process finishes its jobs: nobody waits for the longest of them."""
        host = self.flying[each]
        if now - host.setdefault("retiring_since", now) >= self.settings["order_seconds"]:
            host["before"] = live["id"]
            self._end(each, DONE, now)

    def _order_again(self, each, now, seconds, why):
        """It knows nothing of its order, after this time."""
        host = self.flying[each]
        if now - host["ordered"] < seconds:
            return
        if host["orders"] >= ORDERS_MAX:
            self._end(each, LOST, now, "lost", f"ordered {host['orders']} times, and {host.get('complaint') or why}")
        else:
            self._wait_again(each, at_once=True)

    def hint(self, each):
        """An event says that something has happened there: it is asked next."""
        if each in self.flying:
            self.flying[each]["asked"] = 0

    def came_back(self, each):
        """A host that was offline is heard of: it is asked, and its status decides."""
        host = self.record["hosts"].get(each)
        if host is not None and host["state"] == OFFLINE:
            self._back[each] = True

    def _take_up(self, each, now, status):
        """A host that was offline is there again: it goes with the wave under way, or with its own; what the plan knew of it was old."""
        host, current, last = self.record["hosts"][each], status.get("current"), status.get("last")
        if self.is_too_late(now) or self._is_of_another(status, host):
            return
        if current == host["to"] and not status.get("switch"):
            # Not by this rollout, so that it does not go back with it.
            host.update({"state": DONE, "ended": now, "from": None})
            self._done += 1
            return
        if host["from"] and current and version(current) != version(host["from"]):
            text = f"it came back with {current}, and ran {host['from']} when this was planned"
            host.update(state=LEFT_OUT, ended=now, text=text)
            return
        host.update({"from": current, "before": last["id"] if last else 0, "lacks": host["to"] not in status.get("installed", ()), "state": WAITING})
        self._open[host["wave"]] += 1
        self._queue(host).insert(0, each)

    def _is_of_another(self, status, host):
        """Whether a host does what somebody else has ordered, or belongs to somebody else."""
        live, claim = status.get("switch"), status.get("rollout")
        is_claimed = claim and (claim["id"] != self.record["id"] or claim["epoch"] > self.record["epoch"])
        return bool(is_claimed or (live and live["to"] != host["to"]))

    def _fail(self, each, now, switch):
        # Another try is judged by its own switch.
        self.record["hosts"][each]["before"] = switch["id"]
        failure = switch["failure"] or {"phase": switch.get("phase", "?"), "cause": "host", "text": switch.get("result", "stranded")}
        is_refused = switch.get("result") in ("refused", "cancelled", "expired", "abandoned")
        self._end(each, REFUSED if is_refused else FAILED, now, failure["cause"], failure["text"], failure["phase"])

    def _end(self, each, state, now, cause=None, text=None, phase="order"):
        host = self._land(each)
        self._open[host["wave"]] -= 1
        if state == DONE:
            host.update(state=state, ended=now)
            self._done += 1
        else:
            self._went_wrong(each, state, now, cause, text, phase)

    def _went_wrong(self, each, state, now, cause, text, phase):
        host = self.record["hosts"][each]
        host.update(state=state, ended=now, cause=cause, text=text)
        key = signature(host["family"], phase, text)
        known = self.record["failures"]
        if key in known:
            known[key]["count"] += 1
            known[key]["hosts"] = [*known[key]["hosts"], each][:5]
        elif len(known) < FAILURES_MAX:
            known[key] = {"cause": cause, "text": text, "hosts": [each], "count": 1, "accepted": False}
        self._count_wrong(host)
        self._judge(host)

    # --- budgets ---------------------------------------------------------------------------------------------------

    def _count_wrong(self, host):
        for key in (f"wave {host['wave'] + 1}", f"family {host['family']}"):
            self._wrong[key] = self._wrong.get(key, 0) + 1

    def _judge(self, host):
        if self.record["status"] not in (RUNNING, LATE):
            return
        wave, family = f"wave {host['wave'] + 1}", f"family {host['family']}"
        for key, budget, size in (
            (wave, self.settings["budget"], self._sizes[host["wave"]]),
            (family, self.settings["family_budget"], self._families[host["family"]]),
        ):
            allowed = allowance(budget, size)
            wrong = self._wrong[key] - self.record["accepted"].get(key, 0)
            if wrong > allowed:
                self._halt(f"{key}: {wrong} of {size} hosts went wrong, {allowed} may ({budget}); the last: {host['text']}")
                return

    def _halt(self, why):
        self.record.update(status=HALTED, why=why, soaking_since=None)

    # --- what a person says ----------------------------------------------------------------------------------------

    def resume(self, again=False):
        """
        Goes on after a halt: what went wrong until now is accepted, and counts no more. `again`: those that failed are tried once more.
        """
        if self.record["status"] != HALTED:
            raise RolloutError(f"cannot resume rollout {self.record['id']}: it is {self.record['status']}")
        for failure in self.record["failures"].values():
            failure["accepted"] = True
        if again:
            for host in self.record["hosts"].values():
                if host["state"] in BAD_STATES:
                    # A release that failed there is marked as bad: whoever says so tries it all the same.
                    if host["state"] == FAILED:
                        host["force"] = True
                    for key in ("ordered", "ended", "cause", "text", "orders"):
                        host.pop(key, None)
                    host["state"] = WAITING
            self.record["failures"] = {}
        self.record.update(status=RUNNING, why=None)
        self.__init__(self.record)
        self.record["accepted"] = dict(self._wrong)
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
        if self.record["status"] in (ENDED, ABORTED):
            raise RolloutError(f"cannot abort rollout {self.record['id']}: it is {self.record['status']}")
        self.record.update(status=ABORTED, why=why)

    def counts(self):
        """How many hosts are in each state."""
        found = {}
        for host in self.record["hosts"].values():
            found[host["state"]] = found.get(host["state"], 0) + 1
        return found
