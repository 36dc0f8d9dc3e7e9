"""
The records of rollouts: one file each, below one directory, which other masters may have a copy of.

A record is replaced as a whole. What belongs to this master alone (who drives a rollout, and what a person asks of that driver) lies elsewhere, so that a
copy of the directory with `rsync --delete` takes nothing away from a driver. A driver keeps its record in memory: a file that is lost, or that became an
older copy, is written anew; a file with a newer epoch is another driver's, and ends this one.
"""

import contextlib
import fcntl
import json
import os
import uuid

from . import names
from .states import RolloutError


class Driven(RolloutError):
    """Another runner of this master drives the rollout."""


class Superseded(RolloutError):
    """Another driver goes on with the rollout."""


class Records:
    """The records below `place`; `own` is a directory that only this master uses."""

    def __init__(self, place, own):
        self.place, self._own = place, own

    def names(self):
        """Returns the names of all rollouts."""
        if not os.path.isdir(self.place):
            return []
        return sorted(entry[: -len(".json")] for entry in os.listdir(self.place) if entry.endswith(".json"))

    def has(self, name):
        """Returns whether there is a record of this name."""
        return os.path.exists(self._path(name))

    def read(self, name):
        """Reads the record. Raises `RolloutError`."""
        path = self._path(name)
        try:
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            raise RolloutError(f"cannot find rollout {name}: `salt-run sidle.rollouts` lists them") from None
        except ValueError as error:
            raise RolloutError(f"cannot read {path}: {error}") from None

    def write(self, record):
        """Replaces the file; it is on the disk when this returns. Raises `Superseded` where the file is a newer driver's."""
        path, text = self._path(record["id"]), json.dumps(record, separators=(",", ":"), allow_nan=False)
        os.makedirs(self.place, mode=0o700, exist_ok=True)
        there = self._epoch(path, text)
        if there is True:
            return
        if there > record["epoch"]:
            raise Superseded(f"rollout {record['id']} goes on elsewhere, with epoch {there}: `salt-run sidle.show {record['id']}`")
        # Hidden, and of this process: a copy of the directory has no halves.
        new = os.path.join(self.place, f".{record['id']}.{os.getpid()}")
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        directory = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self, name):
        """Removes the record of a rollout that has not begun."""
        os.remove(self._path(name))

    @staticmethod
    def _epoch(path, text):
        """Returns True if the file has this text; else the epoch of the file, 0 where there is none, or half of one."""
        try:
            with open(path, encoding="utf-8") as file:
                there = file.read()
            return there == text or json.loads(there)["epoch"]
        except (FileNotFoundError, ValueError, KeyError):
            return 0

    @contextlib.contextmanager
    def driving(self, name):
        """Holds the lock of a rollout: one runner of a master drives it; the lock goes with its process. Raises `Driven`."""
        os.makedirs(self._own, mode=0o700, exist_ok=True)
        with open(self._path(name, "lock"), "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                who = file.read().strip() or "?"
                raise Driven(f"rollout {name} is driven by process {who} of this master: `salt-run sidle.show {name}`") from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def ask_driver(self, name, act, reason, by=None):
        """
        Leaves a command for the driver, behind those that it has not taken yet: `pause`, `resume` or `abort`, and who gives it. Gives the number of the command.
        """
        os.makedirs(self._own, mode=0o700, exist_ok=True)
        number = uuid.uuid4().hex
        with self._commands(name) as file:
            # After what a killed or full one may have left of a line.
            file.write("\n" + json.dumps([act, reason, by, number]) + "\n")
        return number

    def is_waiting(self, name, number):
        """Returns whether nobody has taken the command with this number."""
        with self._commands(name) as file:
            file.seek(0)
            return number in file.read()

    @contextlib.contextmanager
    def commands(self, name):
        """
        Yields the commands that were left for the driver, in their order: `(act, reason, by, number)` of each. The block applies them and writes the record: the
        commands are removed behind it, and stay where it fails. Whoever is killed in between leaves commands that are on record already (`driver.apply_commands`).
        """
        if not os.path.exists(self._path(name, "words")):
            yield []
            return
        with self._commands(name) as file:
            file.seek(0)
            lines = file.read().splitlines()
            commands = []
            for line in filter(None, lines):
                # Half a line is no command: whoever gave it has seen no answer.
                with contextlib.suppress(ValueError):
                    act, reason, by, *number = json.loads(line)
                    commands.append((act, reason, by, number[0] if number else None))
            yield commands
            file.truncate(0)

    @contextlib.contextmanager
    def _commands(self, name):
        """Holds the file of the commands: who writes one and who takes them wait for each other."""
        with open(self._path(name, "words"), "a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _path(self, name, kind="json"):
        try:
            # As the hosts take it: they refuse other ids.
            names.rollout(name)
        except names.WrongName as error:
            raise RolloutError(str(error)) from None
        return os.path.join(self.place if kind == "json" else self._own, f"{name}.{kind}")
