"""What a fleet uses: the counts of all its hosts, added up by function."""

import json
import re
from dataclasses import asdict, dataclass, field

from . import answers, asking, values
from .table import columns, printable

#: The form of a file with a fleet's uses: `sidle pack --suggest-extras … --uses FILE` reads it.
SCHEMA = 1

#: A guard counts so many names at most, and no longer ones.
USES_MAX, NAME_CHARACTERS = 20_000, 120

FORMATS = ("text", "data")

#: Ids that are named where a host has no count.
NAMES = 5


class UsesError(ValueError):
    """What a fleet uses cannot be shown so: the message says what can be given."""


@dataclass
class Uses:
    """The counts of a fleet."""

    package: str
    #: Hosts with a count; and those whose count covers so many days that what is not in it is not used.
    hosts: int = 0
    enough: int = 0
    #: `{kind, name, hosts, times, last, named}`; the most widely used first. `last`: None where no day is known.
    uses: "list[dict]" = field(default_factory=list)
    #: Why hosts have no count: their ids by the reason.
    uncounted: "dict[str, list[str]]" = field(default_factory=dict)
    #: Hosts without a count that say what their configuration, highstate and log name: in `uses`, `named` is how many of them name a function.
    told: int = 0
    schema: int = SCHEMA


def read(told):
    """Reads what `sidle.uses` says of a host: its uses, or why it has none."""
    if isinstance(told, str):
        said = values.text(told, "sidle.uses")
        return {"why": "it lacks this extension: `saltutil.sync_all`" if "is not available" in said else f"sidle.uses answered: {said}"}
    known = values.table(told, "sidle.uses")
    if known.get("error") is not None:
        return {"why": values.text(values.table(known["error"], "error").get("message"), "error: message")}
    found = [values.table(each, "a use") for each in values.listed(known.get("uses"), "uses", USES_MAX)]
    if known.get("counted") is False:
        return {"why": values.text(known.get("why"), "why"), "named": [_use(each) for each in found]}
    return {"enough": values.flag(known.get("enough"), "enough"), "uses": [_use(each) for each in found]}


def _use(told):
    kind, name, last = told.get("kind"), told.get("name"), told.get("last")
    if not all(isinstance(each, str) and len(each) <= NAME_CHARACTERS and re.fullmatch(r"[\x21-\x7e]+", each) for each in (kind, name)):
        raise answers.Unreadable("the name of a use is no name")
    if last is not None and (not isinstance(last, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", last)):
        raise answers.Unreadable("the day of a use is no day")
    return kind, name, values.number(told.get("times"), "times"), last


def added(package, found, ids):
    """Adds the counts up. `found`: what each host said, by its id; `ids`: who was asked."""
    uses, sums = Uses(package), {}
    for minion in sorted(ids):
        told = found.get(minion, {"why": "it does not answer"})
        if isinstance(told, answers.Unreadable):
            told = {"why": str(told)}
        if "why" in told:
            uses.uncounted.setdefault(told["why"], []).append(minion)
            uses.told += "named" in told
            for kind, name, _, last in told.get("named", ()):
                _entry(sums, kind, name, last)["named"] += 1
            continue
        uses.hosts += 1
        uses.enough += told["enough"]
        for kind, name, times, last in told["uses"]:
            known = _entry(sums, kind, name, last)
            known["hosts"] += 1
            known["times"] += times
    uses.uses = sorted(sums.values(), key=lambda each: (-each["hosts"], -each["named"], each["kind"], each["name"]))
    return uses


def _entry(sums, kind, name, last):
    """Returns the sum of a function, with the last day on any host."""
    known = sums.setdefault((kind, name), {"kind": kind, "name": name, "hosts": 0, "times": 0, "last": last, "named": 0})
    known["last"] = max(filter(None, (known["last"], last)), default=None)
    return known


def _words(each):
    counted = [f"{each['hosts']:,} hosts, {each['times']:,} times"] if each["hosts"] else []
    named = [f"named, not counted, on {each['named']:,}"] if each["named"] else []
    return ", ".join([*counted, *named, *([f"last on {each['last']}"] if each["last"] else [])])


def text(uses):
    """Returns the counts as text."""
    lines = [f"{uses.package}: {uses.hosts:,} hosts have counted what they use, {uses.enough:,} of them on 30 days and more"]
    for why, ids in sorted(uses.uncounted.items()):
        more = f" and {len(ids) - NAMES:,} more" if len(ids) > NAMES else ""
        lines.append(f"  not counted: {', '.join(ids[:NAMES])}{more}: {why}")
    if uses.told:
        lines.append(f"  {uses.told:,} of them say what their configuration, highstate and log name: more may be used there")
    rows = [[f"{each['kind']} {each['name']}:", _words(each)] for each in uses.uses]
    return "\n".join(printable(line) for line in [*lines, *(columns(rows) if rows else [])])


def show(opts, own, target, package, form, file):
    """Asks the minions of a target, and shows what they use. `own`: the rollouts of this master."""
    if form not in FORMATS:
        raise UsesError(f"cannot give the uses in this format: formats are {' and '.join(FORMATS)}")
    if file:
        # A wrong name is refused before minions are asked.
        own.files.path(file)
    package = package or own.package
    ids = asking.resolve(opts, *target)[0]
    uses = added(package, own.ask(ids, "sidle.uses", [package], read=read), ids)
    if not file:
        return text(uses) if form == "text" else asdict(uses)
    written = own.files.write(file, (text(uses) if form == "text" else json.dumps(asdict(uses), indent=1)) + "\n")
    return f"{package}: functions used: {len(uses.uses):,}, on {uses.hosts:,} hosts; written to {written}"
