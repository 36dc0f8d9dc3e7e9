"""The plan of a rollout: for each host whether it goes, and in which wave; and if not, why not."""

import hashlib
import logging
from collections import Counter
from dataclasses import asdict, dataclass, field, fields

from . import names
from .groups import some
from .verdicts import GO, OFFLINE, REFUSED, VERDICTS, HostPlan, is_salt, judge, sign_in_of

log = logging.getLogger(__name__)

#: The form of a plan that was written down.
SCHEMA = 1


#: So many states that differ are named for the fleet.
STATES = 10


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
    #: The version of the sign-in of the release, where a packager has changed it; None: as Salt published it.
    sign_in: "int | None" = None

    def signs_in(self):
        """Returns the version of the sign-in with which the release comes to its masters."""
        return sign_in_of(self.release) if self.sign_in is None else self.sign_in

    def check(self):
        """Raises `PlanError` for what is no release, and for what makes no waves."""
        if not self.release:
            raise PlanError("cannot plan without a release: name it, as in release=3007.17-1")
        try:
            names.package(self.package)
            names.release(self.release)
            if self.seed:
                names.rollout(self.seed)
            for minion in self.canary if isinstance(self.canary, list) else ():
                names.minion(minion)
        except names.WrongName as error:
            raise PlanError(str(error)) from None
        self._check_waves()

    def _check_waves(self):
        if not isinstance(self.canary, (int, list)) or (isinstance(self.canary, int) and self.canary < 0):
            raise PlanError(f"cannot begin with {self.canary}: canary is a number of hosts, or a list of ids, as in [web1, web2]")
        for name in ("percents", "order"):
            if not isinstance(getattr(self, name), list):
                raise PlanError(f"cannot use {name}={getattr(self, name)}: it is a list")
        if not all(isinstance(percent, int) for percent in self.percents) or not isinstance(self.sign_in, (int, type(None))):
            raise PlanError(f"cannot use percents={self.percents}, sign_in={self.sign_in}: these are numbers")
        rising = all(low < high for low, high in zip(self.percents, self.percents[1:], strict=False))
        if not self.by and (not self.percents or self.percents[-1] != 100 or self.percents[0] < 1 or not rising):
            raise PlanError(f"cannot make waves of {self.percents}: percents rise, and end with 100, as in [10, 50, 100]")


@dataclass
class Plan:
    """The hosts by id, and the ids of each wave."""

    package: str
    release: str
    hosts: "dict[str, HostPlan]"
    waves: "list[list[str]]"
    #: What was mixed into the order of the hosts.
    seed: str = ""
    #: What is about the fleet, and not about one host.
    notes: "list[str]" = field(default_factory=list)
    #: Targets that would not reach all of their minions: `groups.Group`, as values.
    groups: "list[dict]" = field(default_factory=list)
    #: The masters, each with `name`, `version`, `minimum_auth` and how many `hosts` listen to it.
    masters: "list[dict]" = field(default_factory=list)

    def count(self, verdict):
        """Returns how many hosts have this verdict."""
        return sum(host.verdict == verdict for host in self.hosts.values())

    def words(self):
        """Returns how many hosts have which verdict, in words."""
        return ", ".join(f"{self.count(verdict)} {verdict}" for verdict in VERDICTS if self.count(verdict)) or "no host"


def make(facts, wanted, masters=None):
    """
    Makes the plan for these hosts. `facts`: what is known of each host, by its id; `masters`: the masters of each host (`verdicts.Master` by name), by its
    id. Raises `PlanError`.
    """
    wanted.check()
    masters = masters or {}
    hosts = {minion: _judged(minion, known, wanted, masters.get(minion, {})) for minion, known in sorted(facts.items())}
    going = [minion for minion, host in hosts.items() if host.verdict in (GO, OFFLINE)]
    going.sort(key=lambda minion: hashlib.sha256(f"{wanted.seed} {minion}".encode()).digest())
    waves = [wave for wave in _waves(going, hosts, facts, wanted) if wave]
    for number, wave in enumerate(waves):
        for minion in wave:
            hosts[minion].wave = number
    by_master = {}
    notes = [*_highstates(hosts), *_uses(hosts)]
    for minion, own in masters.items():
        for pair in own.items():
            by_master.setdefault(pair, []).append(minion)
    plan = Plan(wanted.package, wanted.release, hosts, waves, wanted.seed, notes)
    for (name, master), ids in sorted(by_master.items(), key=lambda pair: pair[0][0]):
        plan.masters.append({"name": name, **asdict(master), "hosts": len(ids)})
        plan.notes += _order_of_master(hosts, wanted, name, master, ids)
    return plan


def _highstates(hosts):
    """Says of how many hosts the highstate is the same in both releases, and which states differ on most of them."""
    found = Counter(host.highstate for host in hosts.values() if host.highstate)
    if found:
        yield "the highstate of both releases: " + ", ".join(f"{word} on {_hosts_in_words(count)}" for word, count in sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))
    states = Counter(state for host in hosts.values() for state in set(host.differences))
    for state, count in sorted(states.items(), key=lambda pair: (-pair[1], pair[0]))[:STATES]:
        yield f"on {_hosts_in_words(count)}: {state}"
    if len(states) > STATES:
        yield f"and {len(states) - STATES} more states that differ: the hosts have them"


def _uses(hosts):
    """Says what hosts use of what the release lacks: on how many, and when last."""
    found = {}
    for host in hosts.values():
        for kind, name, last in host.uses:
            found.setdefault((kind, name), []).append(last)
    for (kind, name), days in sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:STATES]:
        yield f"used, and not in the release ({kind}): {name}: {_hosts_in_words(len(days))}, last on {max(days)}"
    if len(found) > STATES:
        yield f"and {len(found) - STATES} more functions that are used: the hosts have them"


def _hosts_in_words(count):
    return "1 host" if count == 1 else f"{count} hosts"


def _judged(minion, known, wanted, masters):
    try:
        return judge(minion, known, wanted, masters)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        # What no reader of `answers` has found: the others are planned all the same.
        log.error("%s: %s: %s", minion, type(error).__name__, error)
        return HostPlan(minion, REFUSED).becomes(REFUSED, [("answer", f"cannot read its answer: {type(error).__name__}")])


def _order_of_master(hosts, wanted, name, master, ids):
    """Says in which order to relax, upgrade and tighten a master, if sign-ins of several versions meet there."""
    minimum, signs_in = master.minimum_auth, wanted.signs_in()
    if minimum is None or not is_salt(wanted.package):
        return
    found = [sign_in_of(hosts[minion].running) for minion in ids if hosts[minion].running and hosts[minion].wave is not None]
    locked = [version for version in found if version < minimum]
    if locked:
        yield (
            f"{len(locked)} minions cannot sign in at master {name} again: its minimum_auth_version is {minimum}, their releases sign in with "
            f"an older version. Relax it (minimum_auth_version: {min(locked)}), upgrade, then tighten it"
        )
    elif minimum < signs_in:
        behind = sum(version < signs_in for version in found)
        back = f"; for {behind} minions that closes the way back" if behind else ""
        yield f"after the rollout tighten master {name}: minimum_auth_version: {signs_in} (it is {minimum}){back}"


def write(plan):
    """Returns a plan as values, to be kept as JSON: `read` gives the same plan, with the same waves."""
    hosts = {minion: {key: value for key, value in asdict(host).items() if key != "id"} for minion, host in plan.hosts.items()}
    return {"schema": SCHEMA, **{part.name: getattr(plan, part.name) for part in fields(plan)}, "hosts": hosts}


def read(values):
    """Reads the plan that `write` gave. Raises `PlanError` for what is no plan, or of another schema, or not in itself consistent."""
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        found = values.get("schema") if isinstance(values, dict) else type(values).__name__
        raise PlanError(f"cannot read the plan: its schema is {found}, not {SCHEMA}: plan again with this version of the extension")
    try:
        hosts = {minion: HostPlan(id=minion, **host) for minion, host in values["hosts"].items()}
        plan = Plan(**{part.name: values[part.name] for part in fields(Plan) if part.name != "hosts"}, hosts=hosts)
        in_waves = sorted((minion, number) for number, wave in enumerate(plan.waves) for minion in wave)
        going = sorted((minion, host.wave) for minion, host in hosts.items() if host.verdict in (GO, OFFLINE))
    except (KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"cannot read the plan: {type(error).__name__}: {error}") from None
    if in_waves != going or any(host.verdict not in VERDICTS for host in hosts.values()) or not all(map(names.is_minion, hosts)):
        raise PlanError("cannot read the plan: its waves are not the hosts that go")
    return plan


def renewed(old, now):
    """
    Renews an earlier plan: its waves, for what is so today. `now`: a plan of today for the hosts of these waves. Hosts that do not go any more are in no
    wave. Raises `PlanError` if the first wave is empty: then the next one, which is larger, would be the first to try the release.
    """
    going = {minion for minion, host in now.hosts.items() if host.wave is not None}
    kept = [[minion for minion in wave if minion in going] for wave in old.waves]
    left_out = [minion for wave in old.waves for minion in wave if minion not in going]
    if old.waves and not any(now.hosts[minion].verdict == GO for minion in kept[0]):
        first = old.waves[0][0]
        why = "; ".join(now.hosts[first].why) if first in now.hosts else "it has no accepted key"
        raise PlanError(f"cannot use the plan: nobody of its first wave goes now ({first}: {why}): plan again")
    now.waves = [wave for wave in kept if wave]
    for number, wave in enumerate(now.waves):
        for minion in wave:
            now.hosts[minion].wave = number
    if left_out:
        now.notes.append(f"in the plan, but do not go any more: {some(left_out)}")
    return now


def _waves(going, hosts, facts, wanted):
    canaries = _canaries(going, hosts, wanted)
    yield canaries
    rest = [minion for minion in going if minion not in set(canaries)]
    if wanted.by:
        groups = {}
        for minion in rest:
            groups.setdefault(str(facts[minion].get(wanted.by, "unknown")), []).append(minion)
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
    online = [minion for minion in going if hosts[minion].verdict == GO]
    if isinstance(wanted.canary, list):
        unknown = sorted(set(wanted.canary) - set(going))
        if unknown:
            raise PlanError(f"cannot begin with {', '.join(unknown)}: not among the hosts that go")
        if wanted.canary and not set(wanted.canary) & set(online):
            raise PlanError(f"cannot begin with {', '.join(wanted.canary)}: none of them answers")
        return list(wanted.canary)
    # One host of each family after the other: what fails on a family shall fail here.
    families = {}
    for minion in online:
        families.setdefault(hosts[minion].family, []).append(minion)
    queues = [families[name] for name in sorted(families, key=lambda name: (-len(families[name]), name))]
    chosen = []
    while len(chosen) < min(wanted.canary, len(online)):
        for queue in queues:
            if queue and len(chosen) < wanted.canary:
                chosen.append(queue.pop(0))
    return chosen
