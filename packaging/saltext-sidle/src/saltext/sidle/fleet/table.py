"""A plan for the terminal: equal reasons of many hosts are one line."""

from .budgets import signature
from .groups import Group, some
from .verdicts import GO, GONE, OFFLINE, REFUSED, THERE

#: Up to so many hosts have a line each, unless asked otherwise.
LINES_HOSTS = 20

#: So many ids are named on a line.
NAMES = 5

#: What needs a person comes first.
ORDER = (REFUSED, GO, OFFLINE, GONE, THERE)


def table(plan, verbose=None):
    """Returns the plan as text; `verbose`: each host has its line [default: for small plans]."""
    lines = [f"{plan.package} {plan.release}: {plan.words()}; waves of {', '.join(str(len(wave)) for wave in plan.waves) or 'nobody'}"]
    lines += [f"  {note}" for note in plan.notes]
    for master in plan.masters:
        version, minimum = ("not known" if master[key] is None else master[key] for key in ("version", "minimum_auth"))
        lines.append(f"  master {master['name']}: version {version}, minimum_auth_version {minimum}, {master['hosts']} minions")
    for values in plan.groups:
        lines += [f"  {line}" for line in Group(**values).lines(NAMES)]
    lines.append("")
    by_host = len(plan.hosts) <= LINES_HOSTS if verbose is None else verbose
    lines += columns(_hosts(plan) if by_host else _kinds(plan))
    return "\n".join(printable(line) for line in lines)


def printable(text):
    """Removes what would command a terminal: hosts say what they like."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def columns(rows):
    """Aligns rows in columns; the last one is as wide as it likes."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return ["  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows]


def wave_name(plan, host):
    """Returns the wave of a host, for people."""
    if host.wave is None:
        return ""
    return "canary" if host.wave == 0 and len(plan.waves) > 1 else str(host.wave + 1)


def _hosts(plan):
    rows = [("minion", "runs", "wave", "what becomes of it")]
    for minion, host in sorted(plan.hosts.items(), key=lambda pair: (pair[1].wave is None, pair[1].wave, pair[0])):
        rows.append((minion, host.running or "-", wave_name(plan, host), "; ".join([host.verdict, *host.why, *host.notes])))
    return rows


def _kinds(plan):
    """Returns the hosts of a verdict by what they have in common; numbers and paths in a reason do not count."""
    rows = [("verdict", "hosts", "why, notes, and which hosts")]
    for verdict in ORDER:
        of_verdict = [(minion, host) for minion, host in plan.hosts.items() if host.verdict == verdict]
        if of_verdict and verdict in (GO, OFFLINE):
            waves = [sum(plan.hosts[minion].verdict == verdict for minion in wave) for wave in plan.waves]
            rows.append((verdict, str(len(of_verdict)), "by wave: " + ", ".join(map(str, waves))))
        by_text = {}
        for minion, host in of_verdict:
            # A person who mends what refuses a host plans again.
            notes = [f"note: {note}" for note in host.notes] if verdict in (GO, OFFLINE) else []
            for text in [*(host.why if verdict != OFFLINE else []), *notes]:
                by_text.setdefault(signature(text), []).append((text, minion))
        for found in sorted(by_text.values(), key=lambda pairs: (-len(pairs), pairs[0])):
            such = "such as " if any(text != found[0][0] for text, _ in found) else ""
            rows.append((verdict, str(len(found)), f"{such}{found[0][0]}: {some([minion for _, minion in found], NAMES)}"))
    return rows
