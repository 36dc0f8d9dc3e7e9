"""
A fleet that exists only as numbers, driven by the same plan and the same rollout as a real one.

    PYTHONPATH=src python3 tests/unit/simulator.py --hosts 10000 --seed 1
    PYTHONPATH=src python3 tests/unit/simulator.py --table

Hosts install the release over their link when they are ordered, wait for their splay, and switch. Some fail, some are offline and come back, some answer
only now and then, and the master dies in mid-wave: orders and answers on their way are lost, and the record is read again. Nothing here is random but by
the seed.
"""

import argparse
import heapq
import json
import random
import time
from dataclasses import dataclass, field

from saltext.sidle.fleet import beginning, budgets, states
from saltext.sidle.fleet import plan as planning
from saltext.sidle.fleet.rollout import Rollout

#: A switch of a minion beside its old process takes so long, with its probation; measured on real Salt, seconds.
SWITCH_SECONDS = (70, 110)

#: A rollout that has not ended after so long is stuck.
END_SECONDS = 60 * 86400

FAMILIES = {"RedHat": 0.5, "Debian": 0.3, "Suse": 0.2}

OLD, NEW, PACKAGE = "3006.30-1", "3007.17-1", "salt-minion"


@dataclass
class World:
    """How the fleet is."""

    hosts: int = 10_000
    seed: int = 1
    #: The share of hosts on which the release fails, by family.
    failing: "dict[str, float]" = field(default_factory=dict)
    offline: float = 0.02
    #: Hosts that answer only every other time.
    flapping: float = 0.01
    #: The master dies so often during the rollout, with the driver, and is away for so long each time.
    deaths: int = 1
    outage_seconds: float = 1800
    splay_seconds: float = 60
    #: What a host fetches, and how fast each host's link and all of them together are, bytes and bytes a second. 0 bytes: staged before.
    bundle_bytes: float = 0
    link_bytes: float = 1_000_000
    served_bytes: float = 100_000_000
    #: How often the driver looks, seconds.
    tick_seconds: float = 5


@dataclass
class Result:
    """What became of it."""

    status: str
    why: "str | None"
    seconds: float
    counts: "dict[str, int]"
    stuck: int
    most_in_flight: int
    most_signins_minute: int
    over_budget: int
    twice: int


class Fleet:
    """The hosts, as the driver can see them."""

    def __init__(self, world):
        self.world, self.random, self.now = world, random.Random(world.seed), 0.0
        self.hosts, self.happens, self.serial = {}, [], 0
        self.fetching = 0
        self.signins, self.twice = [], 0
        #: Answers that are on their way to the master, and hosts that are back.
        self.answers, self.back = [], []
        names, weights = list(FAMILIES), list(FAMILIES.values())
        for number in range(world.hosts):
            family = self.random.choices(names, weights)[0]
            self.hosts[f"host{number:06}"] = {
                "family": family, "current": OLD, "live": None, "last": None, "number": 0, "installed": [OLD] if world.bundle_bytes else [OLD, NEW],
                "fails": self.random.random() < world.failing.get(family, 0),
                "online": self.random.random() >= world.offline, "flaps": self.random.random() < world.flapping,
            }  # fmt: skip

    def at(self, seconds, what, each):
        self.serial += 1
        heapq.heappush(self.happens, (self.now + seconds, self.serial, what, each))

    def facts(self):
        return {
            each: {
                "family": host["family"], "unseen_days": 0 if host["online"] else 1, "releases": [],
                "status": {
                    "instance": PACKAGE, "current": OLD, "installed": list(host["installed"]), "supervisor": {"version": "1"}, "hold": None,
                    "switch": None, "last": None,
                },
            }
            for each, host in self.hosts.items()
        }  # fmt: skip

    def run_to(self, now):
        while self.happens and self.happens[0][0] <= now:
            self.now, _, what, each = heapq.heappop(self.happens)
            getattr(self, "_" + what)(each)
        self.now = now

    def install(self, each):
        """A host hears of its order to install; it answers when it has fetched the release."""
        host = self.hosts[each]
        if self._hears(host) and NEW not in host["installed"]:
            self.fetching += 1
            seconds = self.world.bundle_bytes / min(self.world.link_bytes, self.world.served_bytes / self.fetching)
            self.at(seconds, "fetched", each)

    def order(self, each):
        """A host hears of its order to switch; gives its answer, None if nobody hears it."""
        host = self.hosts[each]
        if not self._hears(host):
            return None
        if host["live"]:
            return {"error": {"class": "conflict", "message": "a switch is in progress"}}
        if host["current"] == NEW:
            self.twice += 1
            return {"error": {"class": "nothing-to-do", "message": "it is current"}}
        if NEW not in host["installed"]:
            return {"error": {"class": "failed", "message": f"{NEW} is not installed"}}
        host["number"] += 1
        host["live"] = {"id": host["number"], "to": NEW, "phase": "scheduled", "failure": None}
        self.at(self.random.uniform(0, self.world.splay_seconds), "starts", each)
        return {"switch": host["number"], "pending": True}

    def status(self, each):
        """What a host says of itself, None if nobody hears it."""
        host = self.hosts[each]
        if not self._hears(host):
            return None
        return {"current": host["current"], "installed": host["installed"], "switch": host["live"], "last": host["last"]}

    def _hears(self, host):
        return host["online"] and not (host["flaps"] and self.random.random() < 0.5)

    def _fetched(self, each):
        self.fetching -= 1
        self.hosts[each]["installed"].append(NEW)
        self.answers.append(each)

    def _starts(self, each):
        host = self.hosts[each]
        host["live"]["phase"] = "proving"
        self.signins.append(self.now)
        self.at(self.random.uniform(*SWITCH_SECONDS), "ends", each)

    def _ends(self, each):
        host = self.hosts[each]
        failure = {"phase": "probation", "cause": "release", "text": f"the agent ended {host['number']} times"} if host["fails"] else None
        if not failure:
            host["current"] = NEW
        host["last"] = {"id": host["number"], "to": NEW, "result": "rolled-back" if failure else "committed", "failure": failure}
        host["live"] = None

    def _returns(self, each):
        self.hosts[each]["online"] = True
        self.back.append(each)


def run(world, wanted=None, fleet=None, **settings):
    """Rolls the fleet, to the end or to the halt. `fleet`: one of this world that its owner watches."""
    fleet = fleet or Fleet(world)
    wanted = wanted or planning.Wanted(PACKAGE, NEW, canary=6, seed=str(world.seed))
    plan = planning.make(fleet.facts(), wanted)
    rollout = Rollout(beginning.new("simulated", plan, 0.0, order_seconds=world.splay_seconds + 60, **settings))
    for each, host in fleet.hosts.items():
        if not host["online"]:
            fleet.at(fleet.random.uniform(600, 86400), "returns", each)
    deaths = sorted(fleet.random.uniform(100, 3000) for _ in range(world.deaths))
    now, most = 0.0, 0
    while rollout.record["status"] in (states.RUNNING, states.LATE) or rollout.in_flight:
        if now > END_SECONDS:
            break
        fleet.run_to(now)
        # As the driver does every minute: who did not answer is asked again.
        fleet.back = [each for each in fleet.back if rollout.record["hosts"].get(each, {}).get("state") == states.OFFLINE]
        for each in fleet.back:
            rollout.on_online(each)
        for each in fleet.answers:
            rollout.on_install(now, each, {"code": 0})
        fleet.answers.clear()
        orders = rollout.next(now)
        most = max(most, sum(host["state"] == states.ORDERED for host in rollout.in_flight.values()))
        dies = bool(deaths) and now >= deaths[0]
        _send(fleet, rollout, orders, now, dies)
        if dies:
            deaths.pop(0)
            # What is answered meanwhile, nobody hears.
            now += world.outage_seconds
            fleet.run_to(now)
            fleet.answers.clear()
            rollout = Rollout(json.loads(json.dumps(rollout.record)))
            rollout.go_on(now)
        now = _later(now, world, fleet, rollout)
    return _result(fleet, rollout, now, most)


def _send(fleet, rollout, orders, now, dies):
    for each in orders.install:
        if not dies:
            fleet.install(each)
    for each in orders.switch:
        # It dies with half of its orders sent, and without an answer to any of them.
        if dies and fleet.random.random() < 0.5:
            continue
        answer = fleet.order(each)
        if answer is not None and not dies:
            rollout.on_switch(now, each, answer)
    for each in [] if dies else orders.ask:
        status = fleet.status(each)
        if status is not None:
            rollout.on_status(now, each, status)


def _later(now, world, fleet, rollout):
    # Nothing is on its way: on to what happens next, or to the end of the soak.
    if not rollout.in_flight and fleet.happens and rollout.record["status"] == states.LATE:
        return max(now + world.tick_seconds, fleet.happens[0][0])
    return now + world.tick_seconds


def _result(fleet, rollout, now, most):
    record = rollout.record
    minutes = {}
    for at in fleet.signins:
        minutes[int(at // 60)] = minutes.get(int(at // 60), 0) + 1
    over = 0
    for number in range(record["waves"]):
        wave = [host for host in record["hosts"].values() if host["wave"] == number]
        wrong = sum(host["state"] in states.BAD_STATES for host in wave)
        over = max(over, wrong - budgets.allowance(record["settings"]["budget"], len(wave)))
    counts = rollout.counts()
    moving = counts.get(states.ORDERED, 0) + (counts.get(states.WAITING, 0) if record["status"] in (states.RUNNING, states.LATE) else 0)
    return Result(
        record["status"], record["why"], now, counts, moving, most, max(minutes.values(), default=0), over, fleet.twice
    )


#: For the table: hosts, splay in seconds, hosts at once, bytes a second of a host's link, bytes of a bundle.
TABLE = [
    (2_000, 60, 50, 1e6, 25e6),
    (2_000, 600, 200, 1e6, 25e6),
    (10_000, 60, 50, 1e6, 25e6),
    (10_000, 60, 200, 1e6, 25e6),
    (10_000, 600, 500, 1e6, 25e6),
    (10_000, 60, 200, 1e5, 25e6),
    (10_000, 60, 200, 1e6, 0),
    (100_000, 60, 500, 1e6, 0),
    (100_000, 600, 2_000, 1e6, 0),
]


def table():
    """Lines of a Markdown table: how long a fleet takes."""
    yield "| hosts | splay | at once | link | bundle | time | sign-ins a minute, at most |"
    yield "|---|---|---|---|---|---|---|"
    for hosts, splay, at_once, link, bundle in TABLE:
        world = World(hosts=hosts, splay_seconds=splay, link_bytes=link, bundle_bytes=bundle, offline=0, deaths=0, flapping=0)
        done = run(world, at_once=at_once, per_minute=at_once, install_at_once=at_once, install_seconds=7200, soak_seconds=600)
        size = f"{bundle / 1e6:.0f} MB" if bundle else "staged"
        hours = f"{done.seconds / 3600:.1f} h"
        yield f"| {hosts} | {splay} s | {at_once} | {link / 1e6:g} MB/s | {size} | {hours} | {done.most_signins_minute} |"


def main():
    """The command."""
    parser = argparse.ArgumentParser(description="Rolls a fleet that exists only as numbers.")
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        print("\n".join(table()))
        return
    begun = time.perf_counter()
    print(run(World(hosts=given.hosts, seed=given.seed), at_once=200, per_minute=200))
    print(f"{time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
