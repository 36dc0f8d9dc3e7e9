"""What the supervisor wants of each slot: the gate's `roles` file."""

import os
from typing import NamedTuple

from .slot import ROLES

HEADER = "sidle-gate 1"
# A roles file has a few lines; a bigger one is not ours.
LARGEST_BYTES = 65536


class Place(NamedTuple):
    """What one slot shall be, and how its process was started."""

    role: str
    origin: str


class Roles(NamedTuple):
    """One content of the file."""

    serial: int
    slots: dict
    announce: frozenset
    prove: int
    # Who alone is to prove; empty: every process.
    provers: frozenset = frozenset()


def parse(text):
    """Read a roles file; a ValueError means that nothing in it may be believed."""
    lines = text.split("\n")
    if lines[0] != HEADER:
        raise ValueError(f"cannot read roles: the first line is not {HEADER!r}")
    serial, prove, slots, announce, provers = 0, 0, {}, set(), set()
    for line in lines[1:]:
        match line.split(" "):
            case ["serial", number]:
                serial = int(number)
            case ["slot", leader, role, origin] if role in ROLES:
                slots[int(leader)] = Place(role, origin)
            case ["slot", *_]:
                raise ValueError(f"cannot read roles: {line!r}")
            case ["announce", leader]:
                announce.add(int(leader))
            case ["prove", number]:
                prove = int(number)
            case ["prover", leader]:
                provers.add(int(leader))
            case _:
                pass  # A later supervisor may say more.
    return Roles(serial, slots, frozenset(announce), prove, frozenset(provers))


class RolesFile:
    """The newest content that could be read; read again when the file is another one."""

    def __init__(self, path):
        self.path = path
        self.newest = None
        self._seen = None

    def read(self):
        """Look again; gives the newest roles, or None if there never were any."""
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
