"""Which Python a tree is built from: the best one that is here and that Salt has pins for."""

import io
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import unittest
from unittest import mock

from builder import interpreter, packages
from builder.process import Refusal


class Machine:
    """A machine with these Pythons in PATH, and nothing else; `toolbox` keeps what it is told to use."""

    def __init__(self, directory, *versions):
        self.directory = pathlib.Path(directory)
        self.distribution = f"{directory}/usr"
        for version in versions:
            self.add(version)

    def add(self, version, directory=""):
        """Put a program there that answers as this Python would; a `t` at the end: a free-threaded build."""
        minor = int(version.split(".")[1])
        path = self.directory / directory / f"python3.{minor}"
        path.parent.mkdir(exist_ok=True)
        answer = {
            "implementation": "cpython", "minor": minor, "free_threaded": version.endswith("t"),
            "version": version.rstrip("t"), "executable": str(path), "prefix": "/usr", "stdlib": "/usr/lib",
            "extensions": [], "libpython": [],
        }
        path.write_text(f"#!/bin/sh\necho '{json.dumps(answer)}'\n", encoding="utf-8")
        path.chmod(0o755)

    def find(self, salt_version, wanted=interpreter.HOST):
        """Find the interpreters for this Salt, as SIDLE_PYTHON names them, or the name of a program of this machine."""
        named = {"PATH": str(self.directory), "PYENV_ROOT": str(self.directory / "none")}
        named_program = wanted.startswith("python")
        with (mock.patch.dict(os.environ, named), mock.patch.object(interpreter, "PLACES", [self.distribution]),
              mock.patch.object(interpreter, "DISTRIBUTION", self.distribution)):
            return interpreter.find(salt_version, str(self.directory / wanted) if named_program else wanted)

    def chosen(self, salt_version, *pinned):
        """Choose for this Salt, whose sdist has pins for these Pythons."""
        toolbox = Toolbox(self.directory / "sdist")
        toolbox.path.mkdir(exist_ok=True)
        with tarfile.open(toolbox.path / f"salt-{salt_version}.tar.gz", "w:gz") as archive:
            for name in pinned:
                member = tarfile.TarInfo(f"salt-{salt_version}/requirements/static/pkg/py{name}/linux.txt")
                text = b"contextvars==2.4  # via salt\nimmutables==0.21\npyzmq==27.1.0\ntimelib==0.3.0\ncertifi==1\n"
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text))
        with mock.patch.object(packages, "say"):
            return packages.choose(salt_version, self.find(salt_version), toolbox)[0], toolbox


class Toolbox:
    """Keeps an sdist, and what it is told to use."""

    def __init__(self, path):
        self.path = path
        self.python = None

    def use(self, python):
        """Remember it."""
        self.python = python

    def kept(self, _name, _make):
        """Give the directory of the sdist."""
        return self.path


class TestInterpreter(unittest.TestCase):
    """The choice, and what is refused."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name


    def machine(self, *versions):
        """Make a machine of its own."""
        return Machine(tempfile.mkdtemp(dir=self.directory), *versions)

    def minors(self, machine, salt_version):
        """Give the minor versions that are found, best first."""
        return [python.minor for python in machine.find(salt_version)]

    def test_a_machine_with_a_new_python_alone_will_do(self):
        for minor in (13, 14, 15):
            self.assertEqual(self.minors(self.machine(f"3.{minor}.1"), "3008.5"), [minor])

    def test_the_python_that_was_tried_for_longest_comes_first_and_then_the_older(self):
        machine = self.machine("3.14.0", "3.9.18", "3.13.0", "3.11.7", "3.10.13", "3.12.1")
        self.assertEqual(self.minors(machine, "3006.30"), [10, 11, 12])
        self.assertEqual(self.minors(machine, "3007.17"), [11, 10, 12, 13, 14])
        self.assertEqual(self.minors(machine, "3008.5"), [11, 12, 10, 13, 14])

    def test_of_those_that_salt_prefers_the_distributions_own_comes_before_the_others(self):
        """pyenv's came first: the same work took a minion half as much time again."""
        machine = self.machine("3.14.0", "3.11.7", "3.10.13")
        machine.add("3.11.2", "usr")
        machine.add("3.13.5", "usr")
        versions = [python.version for python in machine.find("3006.30")]
        self.assertEqual(versions[:2], ["3.11.2", "3.10.13"])
        versions = [python.version for python in machine.find("3008.5")]
        self.assertEqual(versions[0], "3.11.2")
        self.assertLess(versions.index("3.10.13"), versions.index("3.13.5"))

    def test_a_minor_version_can_be_asked_for(self):
        machine = self.machine("3.14.0", "3.11.7", "3.10.13")
        self.assertEqual([python.version for python in machine.find("3006.30", "host:3.10")], ["3.10.13"])
        for wanted, said in (("host:3.12", "install one"), ("host:3.10.13", "names no minor version")):
            with self.assertRaises(Refusal) as refusal:
                machine.find("3006.30", wanted)
            self.assertIn(said, str(refusal.exception))

    def test_only_a_python_with_pins_is_taken(self):
        machine = self.machine("3.13.0", "3.14.0")
        python, toolbox = machine.chosen("3008.5", "3.9", "3.14")
        self.assertEqual((python.minor, toolbox.python), (14, str(machine.directory / "python3.14")))

    def test_the_help_sorts_versions_as_numbers_and_leaves_old_ones_out(self):
        machine = self.machine("3.15.2")
        with self.assertRaises(Refusal) as refusal:
            machine.chosen("3008.5", "3.9", "3.10", "3.14", "3.11")
        self.assertIn("no pins for it", str(refusal.exception))
        self.assertIn("3.10, 3.11, 3.14, or", str(refusal.exception))
        self.assertNotIn("3.9", str(refusal.exception))

    def test_backports_are_left_out_where_python_has_them_and_there_are_no_wheels(self):
        for minor, kept in ((13, ["contextvars==2.4", "immutables==0.21"]), (14, [])):
            python, toolbox = self.machine(f"3.{minor}.0").chosen("3007.17", f"3.{minor}")
            pins = packages.read_pins(toolbox.path / "salt-3007.17.tar.gz", "3007.17", python)
            self.assertEqual(pins, [*kept, "pyzmq==27.1.0", "certifi", *packages.ADDED_PINS, packages.CRYPT_PIN])

    def test_passwords_can_be_hashed_where_python_has_no_module_for_that(self):
        """`shadow.gen_password` of a tree with Python 3.13 said "Cannot hash using 'sha512' hash algorithm"."""
        self.assertEqual([minor for minor in range(10, 16) if packages.lacks_crypt(minor)], [13, 14, 15])

    def test_a_salt_that_cannot_run_there_is_refused_before_anything_is_built(self):
        for minor in (13, 14):
            for wanted in (interpreter.HOST, f"python3.{minor}"):
                with self.assertRaises(Refusal) as refusal:
                    self.machine(f"3.{minor}.0").find("3006.30", wanted)
                self.assertIn("old tornado does not work", str(refusal.exception))
                self.assertIn("3.10 to 3.12", str(refusal.exception))
        self.assertEqual(self.minors(self.machine("3.14.0"), "3007.17"), [14])

    def test_a_free_threaded_build_is_refused_by_name(self):
        for wanted in (interpreter.HOST, "python3.14"):
            with self.assertRaises(Refusal) as refusal:
                self.machine("3.14.0t").find("3008.5", wanted)
            self.assertIn("free-threaded build", str(refusal.exception))

    def test_without_a_python_the_help_names_what_to_install(self):
        with self.assertRaises(Refusal) as refusal:
            self.machine("3.9.18").find("3008.5")
        self.assertIn("install one, 3.10 or newer", str(refusal.exception))
        with self.assertRaises(Refusal) as refusal:
            self.machine("3.9.18").find("3008.5", "python3.9")
        self.assertIn("too old", str(refusal.exception))


class OwnPackages(unittest.TestCase):
    def test_packages_are_where_others_have_them_also_if_pythons_own_program_looks_elsewhere(self):
        """Debian's site.py is compiled into its Python: a change of the file would change nothing."""
        for looks_in, links in (("dist-packages", ["dist-packages"]), ("site-packages", [])):
            with tempfile.TemporaryDirectory() as directory:
                tree = pathlib.Path(directory).resolve()
                stdlib = tree / "lib/python3.11"
                stdlib.mkdir(parents=True)
                (tree / "bin").mkdir()
                program = tree / "bin/python3"
                program.write_text(f"#!/bin/sh\necho {stdlib / looks_in}\n", encoding="utf-8")
                program.chmod(0o755)
                interpreter.keep_packages_where_others_do(tree, stdlib)
                self.assertEqual([path.name for path in stdlib.iterdir() if path.is_symlink()], links)
                self.assertEqual(packages.site_directory(tree), stdlib / "site-packages")


class OwnLibraries(unittest.TestCase):
    def test_a_tree_finds_its_own_libraries_before_the_hosts(self):
        """A packed onedir failed at `import salt.crypt` on a host without a libcrypto: only trees of the index got these lines."""
        with tempfile.TemporaryDirectory() as directory:
            tree = pathlib.Path(directory)
            module = tree / "lib/python3.10/ctypes/util.py"
            module.parent.mkdir(parents=True)
            module.write_text("import os\n\n\ndef find_library(name):\n    return f'the host has {name}'\n", encoding="utf-8")
            (tree / "lib/libcrypto.so.3").touch()
            for _ in range(2):
                interpreter.prefer_own_libraries(tree)
            text, names = module.read_text(encoding="utf-8"), {}
            self.assertEqual(text.count("_of_host=find_library"), 1)
            exec(text, names)
            with mock.patch.object(sys, "prefix", str(tree)):
                self.assertEqual(names["find_library"]("crypto"), str(tree / "lib/libcrypto.so.3"))
                self.assertEqual(names["find_library"]("none"), "the host has none")


if __name__ == "__main__":
    unittest.main()
