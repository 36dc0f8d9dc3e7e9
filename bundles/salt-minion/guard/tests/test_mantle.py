"""A second minion finds the first, as without sidle: Salt's own look at the default places."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from sidle_guard import mantle, paths, slot  # noqa: E402


def process_info(pid=None):
    """As Salt's `get_process_info`."""
    pid = os.getpid() if pid is None else pid
    started = slot.start_time(pid)
    return None if started is None else {"pid": pid, "name": "python3", "start_time": float(started)}


def check(path):
    """As Salt's `check_mantle_of_responsibility`."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    return found["pid"] if found == process_info(found["pid"]) else None


def claim(path):
    """As Salt's `claim_mantle_of_responsibility`."""
    if check(path) not in (None, os.getpid()):
        return False
    with open(path, "w", encoding="utf-8") as file:
        json.dump(process_info(), file)
    return True


class MantleTest(unittest.TestCase):
    """One main process at a time, and each that another minion would find."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder)
        self.pidfile = os.path.join(self.folder, "moved", "minion.pid")
        self.default = os.path.join(self.folder, "moved", "process_responsibility_minion.pid")
        self.module = types.SimpleNamespace(
            get_process_info=process_info, check_mantle_of_responsibility=check, claim_mantle_of_responsibility=claim)
        modules = unittest.mock.patch.dict(sys.modules, {"salt.utils.process": self.module})
        modules.start()
        self.addCleanup(modules.stop)

    def process(self, role, roles=()):
        """The paths of a main process of that role, and what Salt's claim of its own file gives."""
        gate = os.path.join(self.folder, "gate")
        os.makedirs(gate, exist_ok=True)
        with open(os.path.join(gate, "roles"), "w", encoding="utf-8") as file:
            file.write("\n".join(["sidle-gate 1", "serial 1", *roles, ""]))
        places = paths.Paths(slot.Slot(gate, os.getpid(), role))
        places._is_main = lambda: True
        opts = {"id": "m", "sock_dir": os.path.join(self.folder, "s"), "pidfile": self.pidfile, "user": "root",
                "conf_file": os.path.join(self.folder, "minion")}
        places.move(opts)
        mantle.wrap(self.module, places)
        return places, self.module.claim_mantle_of_responsibility(mantle.beside(opts["pidfile"]))

    def other(self):
        """Another process, which the file at the default place names."""
        child = subprocess.Popen(["sleep", "60"])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        os.makedirs(os.path.dirname(self.default), exist_ok=True)
        with open(self.default, "w", encoding="utf-8") as file:
            json.dump(process_info(child.pid), file)
        return child

    def test_a_minion_alone_is_found_from_the_moment_of_its_claim_also_where_the_site_moved_the_pid_file(self):
        places, claimed = self.process("active")
        self.assertEqual((claimed, check(self.default)), (True, os.getpid()))
        os.unlink(self.default)
        places.show()
        self.assertEqual(check(self.default), os.getpid())
        with open(self.pidfile, encoding="utf-8") as file:
            self.assertEqual(file.read(), f"{os.getpid()}\n")
        places.hide()
        self.assertFalse(os.path.exists(self.default))

    def test_beside_another_minion_it_does_not_start(self):
        child = self.other()
        with self.assertLogs("sidle_guard.mantle", "ERROR"), unittest.mock.patch.object(mantle, "ancestors", lambda pid: [pid]):
            _, claimed = self.process("active")
        self.assertEqual((claimed, check(self.default)), (False, child.pid))

    def test_beside_another_process_of_the_same_switch_it_starts_and_takes_the_place_with_the_singletons(self):
        child = self.other()
        roles = [f"slot {child.pid} active boot", f"slot {os.getpid()} standby switch"]
        with unittest.mock.patch.object(mantle, "ancestors", lambda pid: [pid]):
            places, claimed = self.process("standby", roles)
        self.assertEqual((claimed, check(self.default)), (True, child.pid), "the old process still has it")
        places.show()
        self.assertEqual(check(self.default), os.getpid())

    def test_what_a_dead_process_left_stops_nobody(self):
        child = self.other()
        child.kill()
        child.wait()
        self.assertEqual((self.process("active")[1], check(self.default)), (True, os.getpid()))

    def test_a_process_whose_parent_has_not_taken_note_of_its_end_stops_nobody(self):
        child = self.other()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # To Salt it is still there.
        self.module.check_mantle_of_responsibility = lambda path: child.pid
        self.assertEqual((self.process("active")[1], check(self.default)), (True, os.getpid()))

    def test_a_link_at_the_default_place_is_replaced_and_not_followed(self):
        victim = os.path.join(self.folder, "victim")
        pathlib.Path(victim).write_text("precious", encoding="utf-8")
        os.makedirs(os.path.dirname(self.default))
        os.symlink(victim, self.default)
        os.symlink(victim, self.pidfile)
        places, claimed = self.process("active")
        places.show()
        self.assertEqual((claimed, check(self.default)), (True, os.getpid()))
        self.assertEqual(pathlib.Path(victim).read_text(encoding="utf-8"), "precious")

    def test_a_user_who_has_the_file_but_not_its_directory_writes_into_it(self):
        self.process("active")
        before = os.stat(self.default).st_ino
        with unittest.mock.patch.object(paths, "_replace", side_effect=PermissionError):
            paths._write(self.default, "{}")
        self.assertEqual(os.stat(self.default).st_ino, before)
        self.assertEqual(pathlib.Path(self.default).read_text(encoding="utf-8"), "{}")

    def test_what_salt_writes_as_root_lies_where_its_user_can_make_no_link(self):
        gate = os.path.join(self.folder, "gate")
        given = {}
        with unittest.mock.patch.object(paths, "_owner", lambda user: (1, 1)), \
                unittest.mock.patch.object(paths, "_give", lambda path, owner: given.update({path: owner})), \
                unittest.mock.patch.object(paths.os, "fchown"):
            places, claimed = self.process("active")
        self.assertTrue(claimed)
        written = [places.pidfile, mantle.beside(places.pidfile)]
        self.assertEqual({os.path.dirname(path) for path in written}, {gate})
        self.assertIn(places.sock_dir, given)
        self.assertNotIn(gate, given)
        # What a predecessor of the same slot left, which its parent has not waited for, stops nobody.
        for path in written:
            pathlib.Path(path).write_text("left", encoding="utf-8")
        places.prepared_by = None
        places.move({"id": "m", "sock_dir": places.default_sock_dir, "user": "root"})
        self.assertFalse(any(map(os.path.exists, written)))

    def test_what_root_publishes_for_another_user_is_not_read_through_a_link(self):
        secret = os.path.join(self.folder, "secret")
        pathlib.Path(secret).write_text("secret", encoding="utf-8")
        os.makedirs(os.path.dirname(self.default))
        os.symlink(secret, self.default)
        places, _ = self.process("standby")
        os.unlink(self.default)
        os.symlink(secret, self.default)
        with unittest.mock.patch.object(paths, "_owner", lambda user: (os.getuid(), os.getgid())):
            places.keep_writable(self.default, None)
        self.assertTrue(os.path.islink(self.default), "nothing was published")
        os.unlink(self.default)
        os.mkfifo(self.default)
        places.keep_writable(self.default, None)

    def test_a_program_that_is_no_main_of_the_guards_is_salts_own(self):
        places, _ = self.process("active")
        elsewhere = os.path.join(self.folder, "elsewhere.pid")
        self.assertTrue(self.module.claim_mantle_of_responsibility(elsewhere))
        self.assertFalse(places.is_own(elsewhere))


if __name__ == "__main__":
    unittest.main()
