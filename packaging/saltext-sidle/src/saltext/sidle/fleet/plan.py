"""The plan of a rollout: for each host whether it goes, and in which wave; and if not, why not."""

import hashlib
import re
from dataclasses import dataclass, field

#: A minion that was not seen for so long is listed, and not waited for: the host is most likely gone.
GONE_DAYS = 90

#: What a host is in a plan. Only `GO` and `OFFLINE` hosts are in waves: the others need a person, or nothing.
GO, THERE, REFUSED, OFFLINE, GONE = "go", "there", "refused", "offline", "gone"

#: Marks of a release that keep a host from trying it again.
FAILED_MARKS = ("bad", "declined")


class PlanError(ValueError):
    """A plan that cannot be made: the message names what was given, and what can be given."""


@dataclass(frozen=True)
class Wanted:
    """What is rolled out, and in which waves."""

    package: str
    release: str
    #: How many hosts are the first wave, spread over the families; or their ids.
    canary: "int | list[str]" = 1
    #: The share of all hosts that has gone at the end of each wave, percent, ascending, the last one 100.
    percents: "list[int]" = field(default_factory=lambda: [10, 50, 100])
    #: A fact by whose values the waves go instead: `site`, `rack`, `family`.
    by: "str | None" = None
    #: The values of `by` in the order of their waves; those that are not named come last, in alphabetical order.
    order: "list[str]" = field(default_factory=list)
    #: Mixed into the order of the hosts: another rollout begins with other hosts.
    seed: str = ""

    def check(self):
        """Raises `PlanError` for what makes no waves."""
        if not self.release:
            raise PlanError("cannot plan without a release: name it, as in release=3007.17-1")
        if isinstance(self.canary, int) and self.canary < 0:
            raise PlanError(f"cannot begin with {self.canary} hosts: canary is a number of hosts, or a list of ids")
        rising = all(low < high for low, high in zip(self.percents, self.percents[1:], strict=False))
        if not self.by and (not self.percents or self.percents[-1] != 100 or self.percents[0] < 1 or not rising):
            raise PlanError(f"cannot make waves of {self.percents}: percents rise, and end with 100, as in [10, 50, 100]")


@dataclass
class HostPlan:
    """One host of a plan."""

    id: str
    verdict: str
    #: Each reason for the verdict, as an administrator reads it.
    why: "list[str]"
    #: What is good to know, and keeps nobody.
    notes: "list[str]"
    running: "str | None" = None
    family: str = "unknown"
    #: The number of its last switch: what ends later is of the rollout.
    last_switch: int = 0
    #: The release has to be installed there.
    lacks: bool = False
    wave: "int | None" = None


@dataclass
class Plan:
    """The hosts by id, and the ids of each wave."""

    package: str
    release: str
    hosts: "dict[str, HostPlan]"
    waves: "list[list[str]]"

    def count(self, verdict):
        """How many hosts have this verdict."""
        return sum(host.verdict == verdict for host in self.hosts.values())


def version_key(version):
    """Orders versions of Salt: 3006.9 < 3006.30 < 3007.1."""
    return [int(number) for number in re.findall(r"\d+", version.split("-")[0])]


def judge(host_id, facts, wanted, masters):
    """
    What becomes of one host. `facts`: what is known of it, with the keys

    - `status`: what `sidle.status` says of the instance; None: the host has no sidle, or nothing of the package
    - `releases`: what `sidle.list` says; `rehearsal`: what `sidle.rehearse` says, None where it was not asked
    - `family`, `unseen_days` (0: it answers), and whatever `Wanted.by` names

    `masters`: the version of each master that the host listens to.
    """
    status, family = facts.get("status"), facts.get("family") or "unknown"
    plan = HostPlan(host_id, GO, [], [], status.get("current") if status else None, family)
    unseen = facts.get("unseen_days", 0)
    if unseen >= GONE_DAYS:
        plan.verdict, plan.why = GONE, [f"not seen for {unseen} days"]
        return plan
    if unseen:
        plan.verdict, plan.why = OFFLINE, ["it does not answer: it goes when it comes back"]
        return plan
    if status is None:
        plan.verdict, plan.why = REFUSED, [f"it has no {wanted.package} under sidle: `sidle setup`, then `sidle adopt`"]
        return plan
    if status.get("current") == wanted.release and not status.get("switch"):
        plan.verdict, plan.why = THERE, [f"{wanted.release} is current"]
        return plan
    plan.last_switch = (status.get("last") or {"id": 0})["id"]
    plan.lacks = wanted.release not in status.get("installed", [])
    plan.why += _refusals(facts, wanted, masters)
    plan.notes += _notes(facts, wanted)
    if plan.why:
        plan.verdict = REFUSED
    return plan


def _refusals(facts, wanted, masters):
    status, rehearsal = facts["status"], facts.get("rehearsal")
    hold, live = status.get("hold"), status.get("switch")
    if hold:
        yield f"held by {hold['by']}" + (f": {hold['reason']}" if hold["reason"] else "")
    if live and live["to"] != wanted.release:
        yield f"switch {live['id']} to {live['to']} is under way, in phase {live['phase']}"
    if not status.get("supervisor"):
        yield "no supervisor runs: `systemctl start sidle@" + status["instance"] + "`"
    for release in facts.get("releases", []):
        if release["release"] != wanted.release:
            continue
        for mark in release["marks"]:
            if mark["mark"] in FAILED_MARKS:
                yield f"{wanted.release} is marked as {mark['mark']} here" + (f": {mark['reason']}" if mark.get("reason") else "")
    if rehearsal and "error" in rehearsal and rehearsal["error"]["class"] != "nothing-to-do":
        yield rehearsal["error"]["message"]
    for master, version in sorted(masters.items()):
        if version and version_key(version) < version_key(wanted.release):
            yield f"its master {master} runs {version}, which is older than {wanted.release}: upgrade the master first"


def _notes(facts, wanted):
    status, rehearsal = facts["status"], facts.get("rehearsal") or {}
    if status.get("current") is None:
        yield "no release has worked here: there is no way back by sidle"
    if wanted.release not in status.get("installed", []):
        yield f"{wanted.release} has to be installed"
    yield from rehearsal.get("notes", [])


def make(facts, wanted, masters=None):
    """
    The plan for these hosts. `facts`: what is known of each host, by its id; `masters`: the masters of each host with their versions, by its id.
    Raises `PlanError`.
    """
    wanted.check()
    masters = masters or {}
    hosts = {each: judge(each, known, wanted, masters.get(each, {})) for each, known in sorted(facts.items())}
    going = [each for each, host in hosts.items() if host.verdict in (GO, OFFLINE)]
    going.sort(key=lambda each: hashlib.sha256(f"{wanted.seed} {each}".encode()).digest())
    waves = [wave for wave in _waves(going, hosts, facts, wanted) if wave]
    for number, wave in enumerate(waves):
        for each in wave:
            hosts[each].wave = number
    return Plan(wanted.package, wanted.release, hosts, waves)


def _waves(going, hosts, facts, wanted):
    canaries = _canaries(going, hosts, wanted)
    yield canaries
    rest = [each for each in going if each not in set(canaries)]
    if wanted.by:
        groups = {}
        for each in rest:
            groups.setdefault(str(facts[each].get(wanted.by, "unknown")), []).append(each)
        named = [name for name in wanted.order if name in groups]
        for name in [*named, *sorted(set(groups) - set(named))]:
            yield groups[name]
        return
    begun = 0
    for percent in wanted.percents:
        end = max(begun, -(-len(going) * percent // 100) - len(canaries)) if percent < 100 else len(rest)
        yield rest[begun:end]
        begun = max(begun, end)


def _canaries(going, hosts, wanted):
    online = [each for each in going if hosts[each].verdict == GO]
    if isinstance(wanted.canary, list):
        unknown = sorted(set(wanted.canary) - set(going))
        if unknown:
            raise PlanError(f"cannot begin with {', '.join(unknown)}: not among the hosts that go")
        return list(wanted.canary)
    # One host of each family after the other: what fails on a family shall fail here.
    families = {}
    for each in online:
        families.setdefault(hosts[each].family, []).append(each)
    queues = [families[name] for name in sorted(families, key=lambda name: (-len(families[name]), name))]
    chosen = []
    while len(chosen) < min(wanted.canary, len(online)):
        for queue in queues:
            if queue and len(chosen) < wanted.canary:
                chosen.append(queue.pop(0))
    return chosen
