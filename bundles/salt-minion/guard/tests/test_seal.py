"""What a rehearsal's process sees of the host: all of it, read-only, but for its scratch directory."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GUARD = pathlib.Path(__file__).resolve().parent.parent
SHARED_MEMORY = "/dev/shm"
# What a sealed process sees: its own files, whether it may write where it must not, and whether a semaphore can be made.
LOOK = """
import _multiprocessing, os, sys
sys.path.insert(0, sys.argv[1])
import sidle_rehearsal
root = sys.argv[2]
if sys.argv[3:]:
    # A kernel before 5.12 does not know it.
    sidle_rehearsal.SYS_MOUNT_SETATTR = 100_000
sealed = sidle_rehearsal.seal(root + "/scratch", root + "/etc")
open(root + "/scratch/new", "w").close()
def refused(path):
    try:
        open(path, "w").close()
    except OSError:
        return True
    return False
semaphore = _multiprocessing.SemLock(1, 1, 1, "/sidle-test-%d" % os.getpid(), True)
print("files" in sealed, open(root + "/etc/minion").read(), refused(root + "/etc/new"))
"""


class SealTest(unittest.TestCase):
    """The rehearsal works on a root anywhere, also in the shared memory that it covers for its semaphores."""

    @unittest.skipUnless(os.geteuid() == 0, "only root makes mounts")
    def test_a_root_in_shared_memory_stays_visible_and_read_only(self):
        for place, kernel in ((SHARED_MEMORY, []), (None, []), (SHARED_MEMORY, ["old"]), (None, ["old"])):
            with self.subTest(place=place, kernel=kernel), tempfile.TemporaryDirectory(dir=place) as root:
                for name in ("etc", "scratch"):
                    os.mkdir(os.path.join(root, name))
                pathlib.Path(root, "etc/minion").write_text("configured", encoding="utf-8")
                words = [sys.executable, "-B", "-c", LOOK, str(GUARD), root, *kernel]
                ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual((ended.stdout.strip(), ended.stderr), ("True configured True", ""))
                self.assertTrue(os.path.exists(os.path.join(root, "scratch/new")))


if __name__ == "__main__":
    unittest.main()
