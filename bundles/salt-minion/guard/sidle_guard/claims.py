"""Whoever makes a job's claim file has the job."""

import hashlib
import os
import time

# The other process may still hold what came an hour ago; nobody holds anything longer.
KEPT_SECONDS = 3600


def name(peer, jid):
    """The file name of a job's claim: the same in all releases, whatever the jid contains."""
    return hashlib.sha256(f"{peer}\n{jid}".encode()).hexdigest()[:32]


class Claims:
    """The directory of claims."""

    def __init__(self, directory):
        self.directory = directory

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

    def clean(self):
        """Remove claims that nobody can ask for any more."""
        oldest = time.time() - KEPT_SECONDS
        try:
            with os.scandir(self.directory) as entries:
                old = [entry.path for entry in entries if entry.stat(follow_symlinks=False).st_mtime < oldest]
            for path in old:
                os.unlink(path)
        except OSError:
            pass  # The next round does it.
