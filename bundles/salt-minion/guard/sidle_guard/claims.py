"""Claims: the process that makes a job's claim file runs the job."""

import fcntl
import hashlib
import os

from .slot import seconds_since_boot

# No process holds a job for longer than an hour.
KEPT_SECONDS = 3600
SECOND = 10**9
# A file beside the directory of claims: locked by a process that owes claims.
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
        """Whether the job is ours from now on; False: another has it. OSError: not known."""
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
        """Remove a claim that this process has just made."""
        try:
            os.unlink(os.path.join(self.directory, claim))
        except OSError:
            pass

    def taken(self, claim):
        """Whether a process has claimed the job."""
        return os.path.exists(os.path.join(self.directory, claim))

    def prepare(self):
        """Make the file that `owe` locks, while there is space."""
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
        """Lock or unlock the file that says: jobs run here without a claim. A lock needs no disk space, and ends with this process;
        forked children do not inherit it."""
        self._owes = owing
        try:
            if self._owing is not None:
                fcntl.lockf(self._owing, (fcntl.LOCK_EX | fcntl.LOCK_NB) if owing else fcntl.LOCK_UN)
        except OSError:
            pass

    def others_owe(self):
        """Whether another process owes claims: it may run a job that has no claim."""
        if self._owing is None or self._owes:
            return False
        try:
            fcntl.lockf(self._owing, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        self.owe(False)
        return False

    def clean(self):
        """Remove claims that no process needs any more.

        The time of day may jump by hours, so ages count from the first look at a claim. Its access time keeps that moment: seconds
        since boot, negative, which no time of day is. That needs no disk space, and the next process goes on from it.
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
    """Whether the open file still has that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False
