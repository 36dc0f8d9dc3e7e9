"""
The values in what minions say, each read by its kind: text on one line, cut at a limit; whole numbers in range; lists with a limit. What has another kind is
`Unreadable`.
"""

import re
import reprlib
from datetime import datetime, timezone

from . import names

#: A text is cut here: a record has two of each minion, and is written every few seconds.
TEXT_CHARACTERS = 300

#: A line of a log or of a queue's path, as the minion cuts it itself, and a target.
LINE_CHARACTERS = 400

#: What stands where a text was cut.
CUT = " … (cut)"

#: The largest whole number that each reader of JSON keeps.
NUMBER_MAX = 2**53

#: Writes out the beginning of a value.
BEGINNING = reprlib.Repr()
BEGINNING.maxlevel = 6
BEGINNING.maxdict = BEGINNING.maxlist = BEGINNING.maxtuple = BEGINNING.maxset = BEGINNING.maxfrozenset = 20
BEGINNING.maxstring = BEGINNING.maxlong = BEGINNING.maxother = TEXT_CHARACTERS

#: A time of day, in seconds since 1970: two centuries from now. Later ones have no date.
SECONDS_MAX = 2**33


class Unreadable(ValueError):
    """What a minion says cannot be read. The message has no word of the minion's."""

    def __init__(self, problem):
        super().__init__(f"cannot read its answer: {problem}")


def text(told, what="it", limit=TEXT_CHARACTERS):
    """Returns a text on one line, without what commands a terminal, cut at the limit with a mark."""
    if not isinstance(told, str):
        raise Unreadable(f"{what} is {_kind(told)}, and no text")
    # So much of it is looked at: white space counts once.
    words = " ".join(told[: 4 * limit].split())
    plain = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in words)
    return plain if len(plain) <= limit and len(told) <= 4 * limit else plain[: limit - len(CUT)] + CUT


def shown(said):
    """Returns the beginning of what a minion said, whatever it is: of a large return no more is written out than is shown."""
    try:
        return text(said if isinstance(said, str) else BEGINNING.repr(said))
    except ValueError:
        return f"a value of type {type(said).__name__}"


def line(told, what="it"):
    """Returns a line of a log, or a path."""
    return text(told, what, LINE_CHARACTERS)


def word(told, what):
    """Returns a word of sidle's own, as its JSON has it; a later version may have others."""
    if not isinstance(told, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", told):
        raise Unreadable(f"{what} is {_kind(told)}, and no word of sidle's")
    return told


def release(told, what):
    """Returns a release, as text."""
    if not names.is_release(told):
        raise Unreadable(f"{what} is {_kind(told)}, and no release")
    return told


def seconds_of(told, what):
    """Returns a time of sidle's JSON (`2026-11-24T09:12:00.123Z`), in whole seconds since 1970."""
    if not isinstance(told, str) or not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", told):
        raise Unreadable(f"{what} is no time")
    try:
        return int(datetime.strptime(told[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp())
    except ValueError:
        raise Unreadable(f"{what} is no time") from None


def number(told, what, most=NUMBER_MAX):
    """Returns a whole number from 0 on."""
    if not isinstance(told, int) or isinstance(told, bool):
        raise Unreadable(f"{what} is {_kind(told)}, and no number")
    if not 0 <= told <= most:
        raise Unreadable(f"{what} is out of range: 0 to {most}")
    return told


def moment(told, what):
    """Returns seconds since 1970."""
    if not isinstance(told, (int, float)) or isinstance(told, bool) or not 0 <= told <= SECONDS_MAX:
        raise Unreadable(f"{what} is {_kind(told)}, and no time")
    return told


def flag(told, what):
    """Returns True or False."""
    if not isinstance(told, bool):
        raise Unreadable(f"{what} is {_kind(told)}, and not True or False")
    return told


def listed(told, what, most):
    """Returns a list of at most so many."""
    if not isinstance(told, list):
        raise Unreadable(f"{what} is {_kind(told)}, and no list")
    if len(told) > most:
        raise Unreadable(f"{what} has {len(told)} entries, more than {most}")
    return told


def table(told, what):
    """Returns a table of values by their keys."""
    if not isinstance(told, dict):
        raise Unreadable(f"{what} is {_kind(told)}, and no table")
    return told


def optional(reader, told, what):
    """Reads what may be missing."""
    return None if told is None else reader(told, what)


def _kind(told):
    return {"str": "a text", "NoneType": "nothing", "dict": "a table", "list": "a list"}.get(type(told).__name__, type(told).__name__)
