"""The slot of this process, and the directory of its gate."""

import os
import time
from typing import NamedTuple

# What `sidle run` puts into the environment of the agent's first process.
VARIABLES = ("SIDLE_GATE", "SIDLE_LEADER", "SIDLE_ROLE")
ROLES = ("active", "standby", "draining", "closed")


class Slot(NamedTuple):
    """One process tree at the gate, named by the pid of its leader."""

    gate: str
    leader: int
    first_role: str

    @classmethod
    def taken_from(cls, environment):
        """Read the variables, and remove them: what a job starts must not act as a guard."""
        gate, leader, role = (environment.pop(name, None) for name in VARIABLES)
        return cls(gate, int(leader), role if role in ROLES else "active")

    def path(self, *names):
        """A path in the gate's directory."""
        return os.path.join(self.gate, *names)


def seconds_since_boot():
    """The clock of reports: goes on while the machine sleeps, and is the same for all processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Stat(NamedTuple):
    """What /proc/<pid>/stat says of a process."""

    # It only waits for its parent to take note of its end.
    has_ended: bool
    parent: int
    start_time: int

    @classmethod
    def of(cls, pid):
        """Read it; None: there is no such process."""
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                # The name may hold blanks and brackets; what follows its last bracket doesn't.
                fields = file.read().rpartition(")")[2].split()
                return cls(fields[0] in ("Z", "X"), int(fields[1]), int(fields[19]))
        except (OSError, ValueError, IndexError):
            return None


def start_time(pid):
    """The start of a process, as a pid alone may be another process's by now. None if nothing runs there, or nothing any more."""
    stat = Stat.of(pid)
    return None if stat is None or stat.has_ended else stat.start_time


def replace_file(path, content, mode=0o644):
    """Replace a file in one step, never through a link: the directory may have been another user's."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".tmp-{name.removesuffix('.json')}")
    try:
        os.unlink(temporary)
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
        file.write(content)
    os.rename(temporary, path)


def is_trusted(path):
    """Whether a file is of this process's user or of root: what another user has left at the gate is nobody's word."""
    return os.lstat(path).st_uid in (0, os.geteuid())
