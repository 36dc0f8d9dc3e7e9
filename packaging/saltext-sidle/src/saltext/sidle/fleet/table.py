"""A plan for the terminal: equal reasons of many hosts are one line."""

import re

from .groups import Group, some
from .verdicts import GO, GONE, OFFLINE, REFUSED, THERE

#: Up to so many hosts have a line each, unless asked otherwise.
LINES_HOSTS = 20

#: So many ids are named on a line.
NAMES = 5

#: What needs a person comes first.
ORDER = (REFUSED, GO, OFFLINE, GONE, THERE)


def table(plan, verbose=None):
    """The plan as text; `verbose`: each host has its line [default: for small plans]."""
    lines = [f"{plan.package} {plan.release}: {plan.words()}; waves of {', '.join(str(len(wave)) for wave in plan.waves) or 'nobody'}"]
    lines += [f"  {note}" for note in plan.notes]
    for each in plan.masters:
        version, minimum = ("not known" if each[key] is None else each[key] for key in ("version", "minimum_auth"))
        lines.append(f"  master {each['name']}: version {version}, minimum_auth_version {minimum}, {each['hosts']} minions")
    for values in plan.groups:
        lines += [f"  {line}" for line in Group(**values).lines(NAMES)]
    lines.append("")
    each = len(plan.hosts) <= LINES_HOSTS if verbose is None else verbose
    lines += columns(_hosts(plan) if each else _kinds(plan))
    return "\n".join(printable(line) for line in lines)


def printable(text):
    """Without what would command a terminal: hosts say what they like."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def columns(rows):
    """Lines of aligned columns; the last one is as wide as it likes."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return ["  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows]


def wave_name(plan, host):
    """The wave of a host, for people."""
    if host.wave is None:
        return ""
    return "canary" if host.wave == 0 and len(plan.waves) > 1 else str(host.wave + 1)


def _hosts(plan):
    rows = [("minion", "runs", "wave", "what becomes of it")]
    for each, host in sorted(plan.hosts.items(), key=lambda pair: (pair[1].wave is None, pair[1].wave, pair[0])):
        rows.append((each, host.running or "-", wave_name(plan, host), "; ".join([host.verdict, *host.why, *host.notes])))
    return rows


def _kinds(plan):
    """The hosts of a verdict by what they have in common; numbers and paths in a reason do not count."""
    rows = [("verdict", "hosts", "why, notes, and which hosts")]
    for verdict in ORDER:
        of_verdict = [(each, host) for each, host in plan.hosts.items() if host.verdict == verdict]
        if of_verdict and verdict in (GO, OFFLINE):
            waves = [sum(plan.hosts[each].verdict == verdict for each in wave) for wave in plan.waves]
            rows.append((verdict, str(len(of_verdict)), "by wave: " + ", ".join(map(str, waves))))
        by_text = {}
        for each, host in of_verdict:
            # A person who mends what refuses a host plans again.
            notes = [f"note: {note}" for note in host.notes] if verdict in (GO, OFFLINE) else []
            for text in [*(host.why if verdict != OFFLINE else []), *notes]:
                by_text.setdefault(signature(text), []).append((text, each))
        for found in sorted(by_text.values(), key=lambda pairs: (-len(pairs), pairs[0])):
            such = "such as " if any(text != found[0][0] for text, _ in found) else ""
            rows.append((verdict, str(len(found)), f"{such}{found[0][0]}: {some([each for _, each in found], NAMES)}"))
    return rows


def signature(text):
    """What two texts have in common that tell of the same thing on two hosts."""
    return re.sub(r"(?:/[\w.@-]+)+/?", "/", re.sub(r"\b\d+\b", "#", text))
