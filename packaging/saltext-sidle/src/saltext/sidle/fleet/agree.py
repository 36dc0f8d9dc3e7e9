"""
Whether the masters of the same minions agree: each leaves its card with minions that they all command, and compares itself with the cards of the others. A card
comes through a minion, so nothing is granted by it; what its seal does not prove is shown as such.
"""

import json
import os
import time
from dataclasses import asdict, dataclass, field
from functools import partial

import salt.utils.minions
import salt.version

from . import answers, cards, names, values
from .evidence import span
from .files import FileError, Files
from .verdicts import Master

#: So many minions are asked for one that has other masters, and so many of them carry the card.
LOOKED_AT, CARRIERS = 20, 3

#: A card that is older than this is not taken for what its master has now.
OLD_SECONDS = 7 * 86_400

#: What this master has heard of the others, for the plan.
KEPT = "masters.json"

#: Of the names that differ so many are shown; the data have all.
NAMES_SHOWN = 12

QUESTION = "sidle.masters_card"


@dataclass
class Other:
    """Another master, as its card has it."""

    name: str
    id: str
    #: The minion through which the card came.
    via: str
    #: Seconds since 1970, by the clock of the other one.
    made: float
    version: str
    minimum_auth: int
    is_sealed: bool
    differences: "list[cards.Difference]" = field(default_factory=list)


@dataclass
class Report:
    """This master, and the others."""

    id: str
    version: str
    minimum_auth: int
    others: "list[Other]"
    notes: "list[str]" = field(default_factory=list)


def place(opts):
    """Returns where this master keeps what it has heard."""
    return os.path.join(opts["cachedir"], "sidle", "masters")


# --- asking ------------------------------------------------------------------------------------------------------------------


def compare(opts, ask, records, via=None):
    """
    Leaves the card of this master with minions, and compares it with the cards that are there. `ask`: as `Bus.ask`; `via`: the minions [default: some of those
    that are connected and have other masters]. Raises `cards.CardError`.
    """
    seal, found = cards.Seal(opts), cards.own(opts, records)
    text, notes = cards.make(opts, found, seal), list(found.notes)
    told = ask(list(via) if via else _carriers(opts, ask, notes), QUESTION, [text], read=partial(_answer, seal=seal))
    report = Report(str(opts.get("id")), str(salt.version.__version__), int(opts.get("minimum_auth_version") or 0), [], notes)
    newest, has_others, ids = {}, False, {}
    for minion, answer in sorted(told.items()):
        if isinstance(answer, answers.Unreadable):
            notes.append(f"{minion}: {answer}: `salt {minion} saltutil.sync_modules` brings it the module of this extension")
            continue
        has_others |= answer["multimaster"]
        notes += [f"{minion}: the card of {name}: {error}" for name, error in answer["wrong"]]
        for name, card in answer["cards"]:
            if card.is_sealed:
                ids.setdefault(name, set()).add(card.id)
            # A sealed one before one that anybody may have written.
            if name not in newest or (card.is_sealed, card.made) > (newest[name][1].is_sealed, newest[name][1].made):
                newest[name] = (minion, card)
    for name, (minion, card) in sorted(newest.items()):
        report.others.append(_other(opts, found, seal, name, minion, card))
    _say_what_lacks(report, told, has_others)
    # The name of a master is not in its card: it is a minion's word.
    unsure = sorted(name for name, found in ids.items() if len(found) > 1)
    notes += [f"{name} is {' and '.join(sorted(ids[name]))}, by what different minions say: the plan does not use its card" for name in unsure]
    _keep(opts, [each for each in report.others if each.is_sealed and each.name not in unsure])
    return report


def _carriers(opts, ask, notes):
    """Returns minions that have other masters, too."""
    minions = salt.utils.minions.CkMinions(opts)
    # Behind an address translation nobody seems to be connected.
    some = sorted(minions.connected_ids()) or sorted(minions.check_minions("*", "glob")["minions"])
    told = ask(some[:LOOKED_AT], QUESTION, read=partial(_answer, seal=None)) if some else {}
    found = [minion for minion, answer in sorted(told.items()) if not isinstance(answer, answers.Unreadable) and answer["multimaster"]]
    if told and not found:
        unable = [minion for minion, answer in sorted(told.items()) if isinstance(answer, answers.Unreadable)]
        notes.append(
            f"{unable[0]} and {len(unable) - 1} more lack the module of this extension: `salt '*' saltutil.sync_modules`" if unable
            else f"none of {len(told)} minions has another master; name one that has: via=web17"
        )  # fmt: skip
    elif not told:
        notes.append(f"none of {len(some[:LOOKED_AT])} minions answers; name one that does: via=web17")
    return found[:CARRIERS]


def _answer(told, seal):
    """Reads what `sidle.masters_card` says."""
    if isinstance(told, str):
        raise answers.Unreadable(values.text(told, QUESTION))
    told = values.table(told, QUESTION)
    if told.get("error") is not None:
        raise answers.Unreadable(values.text(values.table(told["error"], "error").get("message"), "error: message"))
    found = {"multimaster": values.flag(told.get("multimaster"), "multimaster"), "cards": [], "wrong": []}
    for each in values.listed(told.get("cards"), "cards", answers.MASTERS_MAX) if seal else ():
        each = values.table(each, "a card")
        name = (answers.masters(each.get("master")) or ["?"])[0]
        try:
            found["cards"].append((name, cards.read(each.get("card"), seal)))
        except answers.Unreadable as error:
            found["wrong"].append((name, str(error)))
    return found


def _other(opts, found, seal, name, minion, card):
    other = Other(name, card.id, minion, card.made, card.version, card.minimum_auth, card.is_sealed)
    # Digests of another key have nothing in common with those of this master.
    for section in cards.SECTIONS if card.is_sealed else ():
        if section in found.entries and section in card.sections:
            guesses = _other_keys(opts) if section == "keys" else ()
            other.differences.append(cards.compare(section, found.entries[section], card.sections[section], seal, guesses))
    return other


def _other_keys(opts):
    """Returns the ids of keys that this master has, and has not accepted."""
    found = []
    for name in ("minions_pre", "minions_rejected", "minions_denied"):
        path = os.path.join(opts["pki_dir"], name)
        found += [each for each in (os.listdir(path) if os.path.isdir(path) else ()) if names.is_minion(each)]
    return found


def _say_what_lacks(report, told, has_others):
    typed = "type `salt-run sidle.masters` on it (or have its schedule do so), then again here"
    if has_others and not report.others:
        report.notes.append(f"the other masters of {', '.join(sorted(told))} have left no card there: on each of them, {typed}")
    for other in report.others:
        age = time.time() - other.made
        if age > OLD_SECONDS:
            report.notes.append(f"the card of {other.name} is {span(age)} old: {typed}")
        if not other.is_sealed:
            report.notes.append(
                f"the card of {other.name} is not sealed with the key of this master (master.pem): the two have different keys, or a minion has changed the card; "
                "only what it says of its version is shown, and the plan does not use it"
            )


def _keep(opts, others):
    known = _kept(opts) | {each.name: {key: getattr(each, key) for key in ("made", "version", "minimum_auth")} for each in others}
    Files(place(opts)).write(KEPT, json.dumps(known))


def _kept(opts):
    if not os.path.exists(os.path.join(place(opts), KEPT)):
        return {}
    try:
        return dict(json.loads(Files(place(opts)).read(KEPT)))
    except (FileError, ValueError, TypeError):
        # The next comparison writes it anew.
        return {}


def heard(opts, now=None):
    """Returns the masters whose sealed cards this master has heard within a week, by the names that minions have for them."""
    until = (time.time() if now is None else now) - OLD_SECONDS
    return {name: Master(each["version"], each["minimum_auth"]) for name, each in _kept(opts).items() if isinstance(each, dict) and each.get("made", 0) >= until}


# --- showing -----------------------------------------------------------------------------------------------------------------


def render(opts, report):
    """Returns the report as lines of text."""
    lines = [f"This master is {report.id}: Salt {report.version}, minimum_auth_version {report.minimum_auth}."]
    for other in report.others:
        seal = "sealed" if other.is_sealed else "NOT sealed"
        lines += ["", f"{other.name} ({other.id}): its card, {seal}, is {span(max(0, time.time() - other.made))} old, and came through {other.via}"]
        same = (report.version, report.minimum_auth) == (other.version, other.minimum_auth)
        lines.append(f"  {'=' if same else '!'} Salt {other.version}, minimum_auth_version {other.minimum_auth}")
        for difference in other.differences:
            lines += _lines(opts, other, difference)
        if other.is_sealed and same and not any(other.differences):
            lines.append("  They agree.")
    return "\n".join([*lines, *(f"Note: {note}" for note in report.notes)])


def _lines(opts, other, difference):
    title = difference.section.replace("_", " ")
    if not difference:
        return [f"  = {title}: {difference.here}"]
    found = [f"  ! {title}: {difference.here} here, {difference.there} there"]
    for words, some in (
        ("only here", difference.only_here), ("on both, and not the same", difference.differs), ("only there, and known here", difference.guessed),
        ("one or more of these differ", difference.among),
    ):  # fmt: skip
        if some:
            found.append(f"      {words}: {_some(some)}")
    if difference.only_there > len(difference.guessed):
        more = difference.only_there - len(difference.guessed)
        found.append(f"      only there: {more} (`salt-run sidle.masters` on {other.name} names them)")
    return [*found, *(f"      {line}" for line in _remedy(opts, other, difference))]


def _remedy(opts, other, difference):
    keys = os.path.join(opts["pki_dir"], "minions")
    if difference.section == "keys":
        if difference.only_here or difference.differs or difference.among:
            yield f"compare, then copy: `rsync -rcni {keys}/ {other.name}:{keys}/`, without -n; or there, where they wait: `salt-key -a ID`"
        yield from [f"here: `salt-key -a {name}`, once you have compared its fingerprint: `salt-key -f {name}`" for name in difference.guessed[:1]]
    elif difference.section in ("file_roots", "pillar_roots"):
        for directory in sorted({each for some in (opts.get(difference.section) or {}).values() for each in (some if isinstance(some, list) else [some])}):
            yield f"compare, then copy without -n: `rsync -rcni --delete {directory}/ {other.name}:{directory}/`"
    elif difference.section == "rollouts":
        yield f"copy the records while no rollout runs there: `rsync -a {opts['cachedir']}/sidle/rollouts/ {other.name}:{opts['cachedir']}/sidle/rollouts/`"
    else:
        yield "compare the configuration of both masters: `salt-run config.get NAME`"


def _some(some):
    more = len(some) - NAMES_SHOWN
    return ", ".join(some[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def written(report):
    """Returns the report as data."""
    return asdict(report)
