"""Targets that do not reach all of their minions: old minions cannot evaluate a target, and say nothing."""

from dataclasses import dataclass, field

from .verdicts import version_key


@dataclass
class Group:
    """A nodegroup, or another target, and whom it would not reach."""

    name: str
    #: How many minions the master expects to answer.
    expected: int
    #: Minions that answer to their ids, and not to this target, by the version of their Salt.
    lost: "dict[str, list[str]]" = field(default_factory=dict)
    #: Versions of which no minion answers to this target, though minions of other versions do.
    deaf: "list[str]" = field(default_factory=list)
    #: Minions that answer to the target, and that the master does not expect: their grains are not those in its cache.
    surplus: "list[str]" = field(default_factory=list)
    #: Minions that answer to nothing: of them nothing is known.
    silent: int = 0

    def lines(self, names=5):
        """Yields what is to be said about it; nothing if it reaches all."""
        count = sum(map(len, self.lost.values()))
        for version, ids in self.lost.items():
            because = f", because they are {version}" if version in self.deaf else f" of version {version}: their grains or pillar differ from the master's cache"
            yield f"{self.name} would not reach {some(ids, names)}{because} ({count} of {self.expected} minions in all)"
        if self.surplus:
            yield f"{self.name} would reach {some(self.surplus, names)}, too: the master's cache does not say so"
        if self.expected and self.silent == self.expected:
            yield f"{self.name}: none of its {self.expected} minions answers"
        if not self.expected and not self.surplus:
            yield f"{self.name} matches no minion"


def some(ids, names=5):
    """Returns so many of these ids, in words: `a, b and 31 more`."""
    shown, more = ids[:names], len(ids) - names
    if more <= 0:
        return ", ".join(shown[:-1]) + " and " + shown[-1] if len(shown) > 1 else "".join(shown)
    return f"{', '.join(shown)} and {more} more"


def reach(name, expected, answered, versions):
    """
    Compares a target with its answers. `expected`: the ids that the master expects; `answered`: those that answered to the target; `versions`: the version of each minion that
    answers to its id.
    """
    expected, answered = set(expected), set(answered)
    lost = {}
    for minion in sorted(expected - answered):
        if minion in versions:
            lost.setdefault(versions[minion] or "unknown", []).append(minion)
    reached = {versions.get(minion) for minion in answered}
    deaf = [version for version in lost if version not in reached and reached]
    by_version = dict(sorted(lost.items(), key=lambda pair: version_key(pair[0])))
    silent = sum(minion not in versions and minion not in answered for minion in expected)
    return Group(name, len(expected), by_version, sorted(deaf, key=version_key), sorted(answered - expected), silent)
