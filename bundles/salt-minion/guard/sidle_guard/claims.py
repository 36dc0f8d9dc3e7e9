"""Whoever makes a job's claim file has the job."""

import fcntl
import hashlib
import os

from .slot import seconds_since_boot

# The other process may still hold what came an hour ago; nobody holds anything longer.
KEPT_SECONDS = 3600
SECOND = 10**9
# Beside the directory of claims: locked by a process that owes some.
OWING = ".owed"


def name(peer, jid):
    """The file name of a job's claim: the same in all releases, whatever the jid contains."""
    return hashlib.sha256(f"{peer}\n{jid}".encode()).hexdigest()[:32]


class Claims:
    """The directory of claims."""

    def __init__(self, directory):
        self.directory = directory
        self._owing = None
        self._owes = False

    def take(self, claim):
        """Whether the job is ours from now on; False: another has it. OSError: nobody can tell."""
        path = os.path.join(self.directory, claim)
        try:
            self._make(path)
        except FileExistsError:
            return False
        except FileNotFoundError:
            os.makedirs(self.directory, exist_ok=True)
            try:
                self._make(path)
            except FileExistsError:
                return False
        return True

    @staticmethod
    def _make(path):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))

    def drop(self, claim):
        """Give a claim back that was made just now."""
        try:
            os.unlink(os.path.join(self.directory, claim))
        except OSError:
            pass

    def signature(self):
        """Changes when the directory is another one: what was claimed in the old one is forgotten there."""
        try:
            found = os.stat(self.directory)
            return found.st_dev, found.st_ino
        except OSError:
            return None

    def taken(self, claim):
        """Whether somebody has the job already."""
        return os.path.exists(os.path.join(self.directory, claim))

    def prepare(self):
        """Make what `owe` needs, while there is room."""
        try:
            path = f"{self.directory}{OWING}"
            if self._owing is None or not _is_at(self._owing, path):
                lost = self._owing
                self._owing = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                if lost is not None:
                    os.close(lost)
                    self.owe(self._owes)
        except OSError:
            pass

    def owe(self, owing):
        """Say, or say no more, that jobs run here whose claims could not be made. A lock needs no room; it ends with
        this process, and the children that it forks have no part in it."""
        self._owes = owing
        try:
            if self._owing is not None:
                fcntl.lockf(self._owing, (fcntl.LOCK_EX | fcntl.LOCK_NB) if owing else fcntl.LOCK_UN)
        except OSError:
            pass

    def others_owe(self):
        """Whether another process says so: what has no claim may be running there."""
        if self._owing is None or self._owes:
            return False
        try:
            fcntl.lockf(self._owing, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        self.owe(False)
        return False

    def clean(self):
        """Remove claims that nobody can ask for any more.

        The time of day may jump by hours. So the cleaner notes in a claim's time of access when it saw it first: seconds since
        boot, below zero, where no time of day is. That needs no room, and the next cleaner goes on from there.
        """
        try:
            with os.scandir(self.directory) as entries:
                for entry in list(entries):
                    self._clean(entry, int(seconds_since_boot()))
        except OSError:
            pass  # The next round does it.

    @staticmethod
    def _clean(entry, now):
        try:
            claim = entry.stat(follow_symlinks=False)
            age = now + claim.st_atime_ns // SECOND if claim.st_atime_ns < 0 else -1
            if age < 0:
                os.utime(entry.path, ns=(-max(now, 1) * SECOND, claim.st_mtime_ns), follow_symlinks=False)
            elif age >= KEPT_SECONDS:
                os.unlink(entry.path)
        except OSError:
            pass  # It is gone, or another user's.


def _is_at(descriptor, path):
    """Whether an open file is the one of that name still."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False
