"""The role that the supervisor gives each slot: the gate's `roles` file."""

import os
from typing import NamedTuple

from .slot import ROLES

HEADER = "sidle-gate 1"
# A roles file has a few lines; a bigger one is not ours.
LARGEST_BYTES = 65536


class SlotRole(NamedTuple):
    """The role of one slot, and what started its process."""

    role: str
    origin: str


class Roles(NamedTuple):
    """One content of the file."""

    serial: int
    slots: dict
    announce: frozenset
    prove: int
    # The slots that are asked for a round trip; empty: all.
    provers: frozenset = frozenset()


def parse(text):
    """Read a roles file; ValueError: nothing in the file is valid."""
    lines = text.split("\n")
    if lines[0] != HEADER:
        raise ValueError(f"cannot read roles: the first line is not {HEADER!r}")
    serial, prove, slots, announce, provers = 0, 0, {}, set(), set()
    for line in lines[1:]:
        match line.split(" "):
            case ["serial", number]:
                serial = int(number)
            case ["slot", leader, role, origin] if role in ROLES:
                slots[int(leader)] = SlotRole(role, origin)
            case ["slot", *_]:
                raise ValueError(f"cannot read roles: {line!r}")
            case ["announce", leader]:
                announce.add(int(leader))
            case ["prove", number]:
                prove = int(number)
            case ["prover", leader]:
                provers.add(int(leader))
            case _:
                pass  # A later supervisor may write more lines.
    return Roles(serial, slots, frozenset(announce), prove, frozenset(provers))


def started_by_switch(roles, slot):
    """Whether a switch started the process of a slot, not the boot of the machine or an operator: also in idle, where it is alone from the beginning."""
    own = roles.slots.get(slot.leader) if roles else None
    return own.origin == "switch" if own else slot.first_role == "standby"


class RolesFile:
    """The newest valid content; read again once the file was replaced."""

    def __init__(self, path):
        self.path = path
        self.newest = None
        self._seen = None

    def read(self):
        """Give the newest roles; None: there never were any."""
        try:
            found = os.stat(self.path)
            signature = (found.st_ino, found.st_mtime_ns, found.st_size)
            if signature != self._seen:
                with open(self.path, encoding="utf-8") as file:
                    self.newest = parse(file.read(LARGEST_BYTES))
                self._seen = signature
        except (OSError, ValueError):
            pass  # The last role stays.
        return self.newest
