"""
The machine of a rollout: which hosts are ordered to switch next, and when it halts.

The driver (the runner, or the simulator) reports what hosts answered, and asks for the next orders. All that a rollout knows is one record, which the
driver saves as JSON *before* it sends the orders. If the driver dies after that, the record names hosts as ordered that never got their order: the next
driver asks these hosts for their status, and orders them again if they have begun no switch.

A host counts as done when a job of its own returned with the new release: events are hints to ask sooner.
"""

import re

#: What a host is in a rollout.
WAITING, ORDERED, DONE, REFUSED, FAILED, LOST, OFFLINE = "waiting", "ordered", "done", "refused", "failed", "lost", "offline"

#: States that count against a budget.
BAD_STATES = (REFUSED, FAILED, LOST)

#: What a rollout is: it goes on; all waves are through, and offline hosts are taken up when they come back; the rest speaks for itself.
RUNNING, LATE, HALTED, ABORTED, ENDED = "running", "late", "halted", "aborted", "ended"

#: How often a host is ordered that knows nothing of the order: the order, or its answer, may get lost with a master.
ORDERS_MAX = 3

#: Of different failures so many are remembered: a fleet in which each host fails for a reason of its own needs a person long before.
FAILURES_MAX = 100


class RolloutError(ValueError):
    """What was asked is not possible now: the message names why."""


DEFAULTS = {
    # How many hosts may be on their way at once: each costs its masters a sign-in, a pillar and proofs.
    "at_once": 50,
    # How many hosts are ordered in a minute, at most.
    "per_minute": 100,
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


def signature(family, phase, text):
    """What tells one failure from another: numbers, paths and hosts differ where the reason is the same."""
    plain = re.sub(r"0x[0-9a-f]+|/[^\s:;,)]+|\d+", "…", text or "")
    return f"{family}: {phase}: {plain}"


def new(rollout_id, plan, now, **settings):
    """The record of a rollout of this plan, before its first step."""
    unknown = sorted(set(settings) - set(DEFAULTS))
    if unknown:
        raise RolloutError(f"no setting is called {', '.join(unknown)}: there are {', '.join(DEFAULTS)}")
    settings = {**DEFAULTS, **settings}
    for name in ("budget", "family_budget"):
        allowance(settings[name], 1)
    for name in set(DEFAULTS) - {"budget", "family_budget"}:
        if not isinstance(settings[name], (int, float)) or settings[name] < (0 if name == "soak_seconds" else 1):
            raise RolloutError(f"cannot take {name}={settings[name]}: a number of at least 1")
    hosts = {}
    for number, wave in enumerate(plan.waves):
        for each in wave:
            host = plan.hosts[each]
            hosts[each] = {
                "wave": number, "family": host.family, "from": host.running, "before": host.last_switch, "lacks": host.lacks,
                "state": OFFLINE if host.verdict == "offline" else WAITING,
            }  # fmt: skip
    return {
        "schema": 1, "id": rollout_id, "epoch": 1, "package": plan.package, "release": plan.release,
        "settings": settings, "begun": now, "status": RUNNING, "why": None, "wave": 0, "waves": len(plan.waves), "soaking_since": None,
        "accepted": {}, "failures": {}, "hosts": hosts,
    }  # fmt: skip


class Rollout:
    """A rollout between two saves. `record` is all there is to save; the rest follows from it."""

    def __init__(self, record):
        if record.get("schema") != 1:
            raise RolloutError(f"cannot read a record of schema {record.get('schema')}: a newer saltext-sidle wrote it")
        self.record = record
        self.settings = record["settings"]
        hosts = record["hosts"]
        self._waiting = [[] for _ in range(max(1, record["waves"]))]
        self._open = [0] * max(1, record["waves"])
        self._sizes = [0] * max(1, record["waves"])
        self._families = {}
        self._wrong = {}
        self.flying = {}
        self._recent = []
        for each, host in hosts.items():
            self._sizes[host["wave"]] += 1
            self._families[host["family"]] = self._families.get(host["family"], 0) + 1
            if host["state"] in (WAITING, ORDERED):
                self._open[host["wave"]] += 1
            if host["state"] == WAITING:
                self._waiting[host["wave"]].append(each)
            elif host["state"] == ORDERED:
                self.flying[each] = host
                self._recent.append(host["ordered"])
            elif host["state"] in BAD_STATES:
                self._count_wrong(host)
        for queue in self._waiting:
            queue.reverse()
        self._recent.sort()

    # --- what to do next -------------------------------------------------------------------------------------------

    def next(self, now):
        """
        The ids to order now, and the ids to ask how they are. Those to be ordered are on record already when this returns.
        """
        self._advance(now)
        ask = [each for each, host in self.flying.items() if now - host["asked"] >= self.settings["ask_seconds"]]
        for each in ask:
            self.flying[each]["asked"] = now
        return self._orders(now), ask

    def _orders(self, now):
        if self.record["status"] not in (RUNNING, LATE):
            return []
        self._recent = [at for at in self._recent if now - at < 60]
        room = min(self.settings["at_once"] - len(self.flying), self.settings["per_minute"] - len(self._recent))
        ordered = []
        # What came late to an earlier wave goes first.
        for queue in self._waiting[: self.record["wave"] + 1]:
            while queue and len(ordered) < room:
                each = queue.pop()
                host = self.record["hosts"][each]
                host.update(state=ORDERED, ordered=now, asked=now, answered=now, orders=host.get("orders", 0) + 1)
                self.flying[each] = host
                self._recent.append(now)
                ordered.append(each)
        return ordered

    def _advance(self, now):
        for each, host in list(self.flying.items()):
            if now - host["answered"] >= self.settings["patience_seconds"]:
                self._end(each, LOST, now, "lost", f"no answer for {int(now - host['answered'])} s")
        record, wave = self.record, self.record["wave"]
        if record["status"] == LATE:
            offline = any(host["state"] == OFFLINE for host in record["hosts"].values())
            if not self.flying and not any(self._waiting) and (not offline or now - record["begun"] > self.settings["late_seconds"]):
                record["status"] = ENDED
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
        record["soaking_since"] = None
        if wave + 1 < record["waves"]:
            record["wave"] = wave + 1
        else:
            record["status"] = LATE
            self._advance(now)

    # --- what was seen ---------------------------------------------------------------------------------------------

    def ordered(self, now, each, answer):
        """What a host answered to its order: what `sidle.switch` returns."""
        host = self.flying.get(each)
        if host is None:
            return
        host["answered"] = now
        error = answer.get("error")
        if error is None:
            return
        # Another order of this rollout was first, or the release is current: the status says so.
        if error["class"] in ("nothing-to-do", "pending", "locked") or (error["class"] == "conflict" and host["orders"] > 1):
            return
        self._end(each, REFUSED, now, error["class"], error["message"])

    def saw(self, now, each, status):
        """What a host says of its instance: what `sidle.status` has of it. A return is a proof that its process takes jobs."""
        host = self.record["hosts"].get(each)
        if host is None:
            return
        if each not in self.flying:
            if host["state"] == OFFLINE:
                self.came_back(each)
            return
        host["answered"] = now
        live, last = status.get("switch"), status.get("last")
        if live:
            if live["phase"] == "stranded":
                self._fail(each, now, live)
            return
        is_new = last is not None and last["id"] > host["before"]
        if is_new and last["result"] != "committed":
            self._fail(each, now, last)
        elif status.get("current") == self.record["release"]:
            self._end(each, DONE, now)
        elif now - host["ordered"] >= self.settings["order_seconds"]:
            # It knows nothing of the order.
            if host["orders"] >= ORDERS_MAX:
                self._end(each, LOST, now, "lost", f"ordered {host['orders']} times, and it began no switch")
                return
            del self.flying[each]
            host["state"] = WAITING
            self._waiting[host["wave"]].append(each)

    def came_back(self, each):
        """A host that was offline is there again: it goes with the wave under way, or with its own."""
        host = self.record["hosts"].get(each)
        if host is None or host["state"] != OFFLINE:
            return
        host["state"] = WAITING
        self._open[host["wave"]] += 1
        self._waiting[host["wave"]].insert(0, each)

    def _fail(self, each, now, switch):
        # Another try is judged by its own switch.
        self.record["hosts"][each]["before"] = switch["id"]
        failure = switch["failure"] or {"phase": switch.get("phase", "?"), "cause": "host", "text": switch.get("result", "stranded")}
        is_refused = switch.get("result") in ("refused", "cancelled", "expired", "abandoned")
        self._end(each, REFUSED if is_refused else FAILED, now, failure["cause"], failure["text"], failure["phase"])

    def _end(self, each, state, now, cause=None, text=None, phase="order"):
        host = self.flying.pop(each)
        host.update(state=state, ended=now)
        self._open[host["wave"]] -= 1
        if state == DONE:
            return
        host.update(cause=cause, text=text)
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
                    for key in ("ordered", "ended", "cause", "text", "orders"):
                        host.pop(key, None)
                    host["state"] = WAITING
            self.record["failures"] = {}
        self.record.update(status=RUNNING, why=None)
        self.__init__(self.record)
        self.record["accepted"] = dict(self._wrong)

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
