"""Keep what took minutes to make, under a key of all that it was made from."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import time

from ..process import Refusal, say

# A key that nothing has asked for in this time belongs to an older recipe.
KEPT_DAYS = 60
# Its last change is the last use of the directory.
MARK = ".used"


class Store:
    """A directory of finished parts; several builds may share it."""

    def __init__(self, root):
        self.root = root

    def kept(self, name, inputs, make):
        """Give the directory of a part and its key; `make(directory)` fills the directory when it is not there."""
        key = key_of(inputs)
        directory = self.root / f"{name}-{key}"
        self.root.mkdir(parents=True, exist_ok=True)
        # Who wants a part that another build makes just now waits for it.
        with open(self.root / f".lock-{name}", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not directory.is_dir():
                partial = self.root / f".making-{name}"
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir()
                make(partial)
                # Only what is complete gets the name.
                partial.rename(directory)
                self.forget_old(name)
        (directory / MARK).touch()
        return directory, key

    def forget_old(self, name):
        """Remove the parts of this name that older recipes made and that nobody uses any more."""
        for old in self.root.glob(f"{name}-*/{MARK}"):
            if time.time() - old.stat().st_mtime > KEPT_DAYS * 86400:
                say(f"forgetting {old.parent.name}: unused for {KEPT_DAYS} days")
                shutil.rmtree(old.parent, ignore_errors=True)


def key_of(inputs):
    """A short name for texts and for the contents of files."""
    digest = hashlib.sha256()
    for entry in inputs:
        content = entry.read_bytes() if isinstance(entry, pathlib.Path) else str(entry).encode()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:16]


def default_root():
    """Where parts are kept for a build that names no SIDLE_CACHE."""
    cache = os.environ.get("XDG_CACHE_HOME")
    if not cache and not os.environ.get("HOME"):
        raise Refusal("cannot keep a portable Python: neither SIDLE_CACHE nor HOME is set",
                      "set SIDLE_CACHE to a directory for it (2 GB)")
    return pathlib.Path(cache or os.path.join(os.environ["HOME"], ".cache")) / "sidle" / "build"
