"""What an older release's module brings along, and which locks are read."""

import ast
import importlib.util
import json
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

from builder import extras, finish, guard, kept, layer, needs
from builder.process import Refusal
from builder.toolbox import Toolbox

HASH = "a" * 64
PYTHON = "python 3.11 linux-x86_64"


def tree(directory, name, files):
    """A tree with these files below its packages' directory."""
    site = pathlib.Path(directory) / name / "lib" / "python3.11" / "site-packages"
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text, encoding="utf-8")
    return site


class TestKept(unittest.TestCase):
    """Files, helpers and shims."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name

    def brought(self, old, new, name="zebra"):
        """What comes with a module, and the new release's directory."""
        old, new = kept.Site(tree(self.directory, "old", old)), kept.Site(tree(self.directory, "new", new))
        (_, _, file), = kept.choose(name, old, new, "salt 1")
        return kept.bring(file, old, new, {file}, "salt 1"), new.directory

    def test_helpers_come_along_all_the_way_down(self):
        """A helper's own helpers come, too; what the new release has stays as it is."""
        (helpers, shims), site = self.brought(
            {"salt/modules/zebra.py": "import salt.utils.stripes\nimport salt.utils.files\n",
             "salt/utils/stripes.py": "from salt.utils import paint\n", "salt/utils/paint.py": "", "salt/utils/files.py": "old = 1\n"},
            {"salt/utils/files.py": "new = 1\n"})
        self.assertEqual((helpers, shims), ({"salt/utils/stripes.py", "salt/utils/paint.py"}, set()))
        self.assertEqual((site / "salt/utils/files.py").read_text(encoding="utf-8"), "new = 1\n")

    def test_a_package_that_moved_gets_a_shim(self):
        """`salt.ext.tornado` is tornado's own package in a later Salt."""
        (helpers, shims), site = self.brought(
            {"salt/modules/zebra.py": "import salt.ext.tornado.ioloop\nloop = salt.ext.tornado.ioloop.IOLoop\n",
             "salt/ext/tornado/__init__.py": "", "salt/ext/tornado/ioloop.py": "class IOLoop: pass\n"},
            {"tornado/__init__.py": "", "tornado/ioloop.py": "class IOLoop: pass\n"})
        self.assertEqual((helpers, shims), (set(), {"salt.ext.tornado is tornado", "salt.ext.tornado.ioloop is tornado.ioloop"}))
        self.assertIn('sys.modules["tornado.ioloop"]', (site / "salt/ext/tornado/ioloop.py").read_text(encoding="utf-8"))

    def test_a_name_that_is_gone_refuses(self):
        """A function that only fails when it is called is seen before."""
        files = {"salt/modules/zebra.py": "import salt.utils.files\ndef go():\n    return salt.utils.files.lost()\n", "salt/utils/files.py": "def lost(): pass\n"}
        with self.assertRaisesRegex(Refusal, r"uses salt\.utils\.files\.lost, which the new release does not have"):
            self.brought(files, {"salt/utils/files.py": "from salt.utils.more import *\n", "salt/utils/more.py": "found = 1\n"})

    def test_a_module_of_the_new_release_is_never_replaced(self):
        """Only kinds that the new release lacks are taken."""
        old = kept.Site(tree(self.directory, "old", {"salt/modules/zebra.py": "", "salt/states/zebra.py": ""}))
        new = kept.Site(tree(self.directory, "new", {"salt/modules/zebra.py": ""}))
        self.assertEqual(kept.choose("zebra", old, new, "salt 1"), [("states", "zebra", "salt/states/zebra.py")])
        with self.assertRaisesRegex(Refusal, "has module zebra of its own"):
            kept.choose("module.zebra", old, new, "salt 1")

    def test_kinds_are_those_that_a_release_is_described_by(self):
        """Both lists have the same kinds and directories."""
        source = (guard.SOURCE / "sidle_release.py").read_text(encoding="utf-8")
        kinds = next(node.value for node in ast.parse(source).body if isinstance(node, ast.Assign) and node.targets[0].id == "KINDS")
        self.assertEqual(kept.FOLDERS, {kind: places[0] for kind, places in ast.literal_eval(kinds).items()})


MODULE = {"name": "zebra", "kind": "states", "file": "salt/states/zebra.py", "origin": "salt 1", "licence": None, "sha256": HASH, "shims": []}
FILES = ("good/__init__.py", "good/part/deep.py", "good-1.0.dist-info/METADATA", "salt/states/zebra.py", "salt/modules/horse.py", "salt/utils/stripes.py",
         "salt/utils/hoof.py", "salt/utils/files.py", "good/__pycache__/__init__.cpython-311.pyc", "salt/utils/__pycache__/hoof.cpython-311.pyc")


class TestBase(unittest.TestCase):
    """A release that has a layer gets another one."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.site = tree(directory.name, "base", dict.fromkeys(FILES, ""))
        zebra = {**MODULE, "helpers": ["salt/utils/stripes.py"]}
        horse = {**MODULE, "name": "horse", "kind": "module", "file": "salt/modules/horse.py", "helpers": ["salt/utils/hoof.py", "salt/utils/stripes.py"]}
        files = sorted(name for name in FILES if name.startswith("good") and not name.endswith(".pyc"))
        good = {"name": "saltext-good", "version": "1.0", "sha256": HASH, "requested": True, "files": files}
        layer.write(self.site, {"extras": [good], "kept": [zebra, horse]})

    def files(self):
        """What is there below the packages' directory."""
        return sorted(str(path.relative_to(self.site)) for path in self.site.rglob("*") if path.is_file())

    def take_off(self, *keep):
        """Take the base's layer off, to keep these modules anew."""
        return [module["name"] for module in layer.take_off(self.site, layer.Request([], None, list(keep), None, "salt 2"))]

    def test_extras_go_and_kept_modules_stay(self):
        """The recipe names the extras; nobody names the kept modules again."""
        self.assertEqual(self.take_off(), ["zebra", "horse"])
        self.assertEqual(self.files(), ["salt/modules/horse.py", "salt/states/zebra.py", "salt/utils/__pycache__/hoof.cpython-311.pyc",
                                        "salt/utils/files.py", "salt/utils/hoof.py", "salt/utils/stripes.py"])
        self.assertFalse((self.site / "good").exists() or (self.site / "good-1.0.dist-info").exists())
        self.assertEqual((self.take_off(), layer.read(self.site)), ([], None), "there is no layer any more")

    def test_a_kept_module_that_is_asked_for_again_comes_anew(self):
        """Its helpers stay where another module needs them."""
        self.assertEqual(self.take_off("module.horse", "states.zebra2"), ["zebra"])
        self.assertEqual(self.files(), ["salt/states/zebra.py", "salt/utils/files.py", "salt/utils/stripes.py"])


class TestCompiled(unittest.TestCase):
    """What a layer added is compiled by the tree's Python."""

    def test_a_layer_of_one_file_is_compiled(self):
        """There are fewer files than compilers."""
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "bin").mkdir()
            (root / "bin" / "python3").symlink_to(sys.executable)
            (root / "zebra.py").write_text("STRIPES = 1\n", encoding="utf-8")
            finish.compile_files(root, ["zebra.py"])
            self.assertEqual(len(list((root / "__pycache__").glob("zebra.*.pyc"))), 1)


class TestLock(unittest.TestCase):
    """Which locks are refused, and in what words."""

    def read(self, *lines, extras_wanted=("saltext-good==1.0",)):
        """Read a lock of these lines."""
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "site-1.lock"
            path.write_text("\n".join([*lines, ""]), encoding="utf-8")
            return extras.read_lock(path, list(extras_wanted), PYTHON)

    def test_a_lock_names_each_package_with_its_hash(self):
        """A whole lock, and all ways to be none."""
        good = [extras.LOCK_HEAD, f"# {PYTHON}", "# extra saltext-good==1.0", f"saltext-good==1.0 --hash=sha256:{HASH}", f"dep==2 --hash=sha256:{HASH}"]
        self.assertEqual([package.name for package in self.read(*good)], ["saltext-good", "dep"])
        for lines, reason in [
            (["# sidle lock 2", *good[1:]], "does not begin with"),
            ([good[0], "# python 3.13 linux-x86_64", *good[2:]], "made for python 3.13"),
            ([*good[:2], *good[3:]], "differ in saltext-good==1.0"),
            ([*good[:3], good[4]], "no hash of saltext-good==1.0"),
            ([*good[:3], "saltext-good==1.0"], "line 4 is not"),
            ([*good, "--index-url https://elsewhere"], "line 6 is not"),
        ]:
            with self.assertRaisesRegex(Refusal, reason):
                self.read(*lines)

    def test_an_extra_is_one_version_and_no_option(self):
        """SIDLE_EXTRAS ends up in pip's command line."""
        for wrong in ("saltext-good", "saltext-good>=1", "--index-url==x", "a==1;b"):
            with self.assertRaises(Refusal):
                extras.wanted(wrong)


class TestResolved(unittest.TestCase):
    """What is locked beside a tree."""

    def lock(self, pin, *chosen):
        """Lock an extra beside a tree with six 1.16.0, for which pip chooses these packages; give the lock."""
        with tempfile.TemporaryDirectory() as directory:
            scratch = pathlib.Path(directory)
            archive = {"url": "https://index/x.whl", "archive_info": {"hashes": {"sha256": HASH}}}
            report = {"install": [{"metadata": {"name": name, "version": version}, "download_info": archive} for name, version in chosen]}

            def pip_of(*_):
                (scratch / "report.json").write_text(json.dumps(report), encoding="utf-8")
                return types.SimpleNamespace(returncode=0)

            own = {"six": email_of("Name: six\nVersion: 1.16.0\n")}
            toolbox = types.SimpleNamespace(scratch=scratch, pip_of=pip_of)
            with unittest.mock.patch.multiple(extras, packages_of=lambda *_: own, python_of=lambda _: PYTHON):
                extras.lock(scratch, [pin], scratch / "lock", toolbox)
            return (scratch / "lock").read_text(encoding="utf-8")

    def test_what_a_lock_cannot_have_is_refused_with_what_helps(self):
        """The lock was written, and no pack took it."""
        self.assertIn("good==1.8.0 --hash", self.lock("Good==1.8.0", ("good", "1.8.0")))
        for pin, chosen, reason in [
            ("good==1.8", [("good", "1.8.0")], r'spells this version 1\.8\.0\n  help: write "good==1\.8\.0"'),
            ("six==1.16", [], r"has six 1\.16\.0 of its own\n  help: leave it out$"),
            ("six==1.17", [], r"has six 1\.16\.0 of its own, which an extra may not change"),
        ]:
            with self.assertRaisesRegex(Refusal, reason):
                self.lock(pin, *chosen)


def email_of(text):
    """Metadata of a package."""
    return extras.email.parser.Parser().parsestr(text)


@unittest.skipUnless(importlib.util.find_spec("pip"), "this Python has no pip")
class TestNeeds(unittest.TestCase):
    """What was locked beside one tree may not fit another."""

    def check(self, added, **there):
        """Check the package `added`, which a tree has beside those of `there`: name to lines of metadata."""
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / "bin").mkdir()
            (root / "bin" / "python3").symlink_to(sys.executable)
            for name, lines in {**there, "added": ["1", *(f"Requires-Dist: {need}" for need in added)]}.items():
                info = root / "site" / f"{name}-{lines[0]}.dist-info"
                info.mkdir(parents=True)
                text = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {lines[0]}", *lines[1:]]
                (info / "METADATA").write_text("\n".join([*text, "", ""]), encoding="utf-8")
            toolbox = Toolbox(root, None)
            toolbox._directory = pathlib.Path(importlib.util.find_spec("pip").origin).parent.parent
            needs.refuse_unmet(root, root / "site", ["added"], toolbox, "lock it anew")

    def test_what_an_extra_needs_is_there_and_fits(self):
        """Markers count for the tree's Python, and extras of a need for the package that has them."""
        self.check(["six>=1", "gone; python_version < '3'", "other; extra == 'tests'"], six=["1.16.0"])
        socks = ["2", "Provides-Extra: socks", "Requires-Dist: pysocks>=1.5; extra == 'socks'", "Requires-Dist: never"]
        self.check(["requests[socks]"], requests=socks, pysocks=["1.7"])
        for need, reason in [("six>=2", "the extra added 1: it needs six>=2, and the release has six 1.16.0"), ("gone", "the release does not have it")]:
            with self.assertRaisesRegex(Refusal, reason):
                self.check([need], six=["1.16.0"])
        with self.assertRaisesRegex(Refusal, "requests 2: it needs pysocks>=1.5, and the release does not have it"):
            self.check(["requests[socks]"], requests=socks)
