"""Where salt-pip installs, and where it refuses to."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from builder import commands

STRANGER = 65534
CONFIG = """\
import os

DEFAULT_MINION_OPTS = {"conf_file": "/nonexistent"}


def minion_config(file):
    return {"user": os.environ.get("TEST_USER", "root")}
"""
SCRIPTS = """\
import os


def salt_pip():
    print("pip installs into " + os.environ["SALT_EXTRAS_DIR"])
"""


@unittest.skipUnless(os.geteuid() == 0, "makes directories of two users")
class TestSaltPip(unittest.TestCase):
    """The program that a release has, with a Salt that only says where it would install."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)
        home = os.path.relpath(self.place / "home", "/var/lib")
        (self.place / "_sidle_extras.py").write_text(commands.EXTRAS.format(home=home), encoding="utf-8")
        (self.place / "salt-pip.py").write_text(commands.SALT_PIP, encoding="utf-8")
        (self.place / "salt").mkdir()
        for name, text in (("__init__", ""), ("config", CONFIG), ("scripts", SCRIPTS)):
            (self.place / "salt" / f"{name}.py").write_text(text, encoding="utf-8")
        (self.place / "home").mkdir()

    def ran(self, *words, **variables):
        """The program's end with these arguments and variables."""
        environment = {"PATH": os.environ["PATH"], **variables}
        command = [sys.executable, "-B", str(self.place / "salt-pip.py"), *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def test_installs_where_root_alone_can_write(self):
        """The usual host."""
        ran = self.ran("install", "x")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertIn("home/extras-", ran.stdout)

    def test_refuses_where_roots_minion_does_not_look(self):
        """Upstream's scripts give the directory to the user salt: pip said that it succeeded, and root's minion found nothing."""
        os.chown(self.place / "home", STRANGER, -1)
        for variables in ({}, {"TEST_USER": ""}):
            ran = self.ran("install", "x", **variables)
            self.assertEqual((ran.returncode, ran.stdout), (1, ""))
            for part in ("cannot install into ", "home/extras-", "chown root:", "SALT_EXTRAS_DIR"):
                self.assertIn(part, ran.stderr)

    def test_installs_what_is_used_or_was_chosen(self):
        """A minion of another user, other verbs, another directory."""
        os.chown(self.place / "home", STRANGER, -1)
        named = str(self.place / "home" / "named")
        for words, variables in (
            (["install", "x"], {"TEST_USER": "salt"}),
            (["list"], {}),
            (["install", f"--target={named}", "x"], {}),
            (["install", "x"], {"SALT_EXTRAS_DIR": named}),
        ):
            ran = self.ran(*words, **variables)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""), words)


if __name__ == "__main__":
    unittest.main()
