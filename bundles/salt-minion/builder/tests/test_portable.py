"""The portable Python: which one is taken, what its sources must be, and what is refused."""

import hashlib
import io
import os
import pathlib
import pprint
import re
import shutil
import tarfile
import tempfile
import time
import types
import unittest
import zipfile
from unittest import mock

from builder import packages, portable
from builder.portable import cpython, elf, libraries, sources, store, toolchain, wheels, workshop
from builder.process import Refusal

READELF = """
Program Headers:
  Type           Offset   VirtAddr           PhysAddr           FileSiz  MemSiz   Flg Align
  LOAD           0x000000 0x0000000000000000 0x0000000000000000 0x004e20 0x004e20 R E 0x200000
  LOAD           0x005d78 0x0000000000{address}d78 0x0000000000205d78 0x000710 0x000758 RW  0x200000

Dynamic section at offset 0x5d98 contains 26 entries:
 0x0000000000000001 (NEEDED)             Shared library: [libz.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
 0x000000000000001d (RUNPATH)            Library runpath: [$ORIGIN/../..:/opt/there]

Version definition section '.gnu.version_d' contains 1 entry:
  000000: Rev: 1  Flags: BASE  Index: 1  Cnt: 1  Name: GLIBC_2.99

Version needs section '.gnu.version_r' contains 1 entry:
  0x0010:   Name: GLIBC_2.2.5  Flags: none  Version: 4
  0x0020:   Name: GLIBC_2.17  Flags: none  Version: 3
  0x0030:   Name: GLIBC_PRIVATE  Flags: none  Version: 2
"""
TABLE = """
# a comment
thing 2.0-1 thing_2.0.orig.tar.gz {new}
thing 2.0-1 thing_2.0-1.debian.tar.xz {fixes}
thing 1.0-1 thing_1.0.orig.tar.gz {old}
"""


def sha256(content):
    """A SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


class Case(unittest.TestCase):
    """A test with a directory of its own."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        for module in (sources, store, wheels):
            silent = mock.patch.object(module, "say")
            silent.start()
            self.addCleanup(silent.stop)

    def refusal(self, call, *arguments):
        """The words of a refusal."""
        with self.assertRaises(Refusal) as refusal:
            call(*arguments)
        return str(refusal.exception)


class TestChoice(Case):
    """Which portable Python a release takes."""

    def minors(self, version, named):
        """The minor versions that are offered, best first."""
        return [python.minor for python in portable.offered(version, named)]

    def test_each_series_takes_the_python_that_fits_it_best(self):
        self.assertEqual(self.minors("3006.30", "portable"), [11])
        self.assertEqual(self.minors("3007.17", "portable"), [11, 13])
        self.assertEqual(self.minors("3008.5", "portable"), [13, 11])
        self.assertEqual(self.minors("3008.5", "portable:3.11"), [11])

    def test_an_unknown_one_is_refused_with_the_names_of_those_that_there_are(self):
        told = self.refusal(portable.offered, "3008.5", "portable:3.9")
        self.assertIn("cannot build from portable:3.9", told)
        self.assertIn("portable:3.11, portable:3.13", told)

    def test_a_python_on_which_this_salt_cannot_run_is_refused_before_it_is_compiled(self):
        self.assertIn("old tornado does not work", self.refusal(portable.offered, "3006.30", "portable:3.13"))

    def test_names_of_programs_are_no_names_of_portable_pythons(self):
        for text in (None, "", "host", "/opt/portable/bin/python3"):
            self.assertFalse(portable.is_named(text))
        self.assertTrue(portable.is_named("portable") and portable.is_named("portable:3.9"))

    def test_where_there_is_a_compiler_no_pin_is_left_out_for_want_of_one(self):
        pins = ["timelib==0.3.0", "pyzmq==27.1.0"]
        self.assertEqual(list(packages.adjusted(pins, 11)), ["pyzmq==27.1.0"])
        self.assertEqual(list(packages.adjusted(pins, 11, compiles=True)), pins)


class TestSources(Case):
    """Only what has the right SHA-256 is taken."""

    def setUp(self):
        super().setUp()
        self.contents = {"thing_2.0.orig.tar.gz": b"new", "thing_2.0-1.debian.tar.xz": b"fixes", "thing_1.0.orig.tar.gz": b"old"}
        table = TABLE.format(new=sha256(b"new"), fixes=sha256(b"fixes"), old=sha256(b"old"))
        changed = mock.patch.object(sources, "TABLE", table)
        changed.start()
        self.addCleanup(changed.stop)
        self.sources = sources.Sources(self.directory / "sources", self.directory / "scratch")
        self.sources._apt = types.SimpleNamespace(download=self.download, trouble="no mirror answers")
        self.mirror = {}

    def download(self, _package, file):
        """Play the mirror."""
        if file.name not in self.mirror:
            return None
        path = self.directory / "downloaded"
        path.write_bytes(self.mirror[file.name])
        return path

    def lay(self, name, content):
        """Put a file where a person would put it."""
        (self.directory / "sources").mkdir(exist_ok=True)
        (self.directory / "sources" / name).write_bytes(content)

    def test_the_preferred_version_is_fetched_with_its_fixes(self):
        self.mirror = self.contents
        self.assertEqual(self.sources.obtain("thing")[0].version, "2.0-1")
        self.assertEqual(sorted(os.listdir(self.directory / "sources")), ["thing_2.0-1.debian.tar.xz", "thing_2.0.orig.tar.gz"])

    def test_where_the_mirror_lacks_a_file_the_next_version_is_taken_and_stays_chosen(self):
        self.mirror = {"thing_1.0.orig.tar.gz": b"old", "thing_2.0.orig.tar.gz": b"new"}
        self.assertEqual(self.sources.obtain("thing")[0].version, "1.0-1")
        self.mirror = self.contents
        self.assertEqual(self.sources.obtain("thing")[0].version, "1.0-1")

    def test_files_that_a_person_put_there_need_no_network(self):
        self.lay("thing_1.0.orig.tar.gz", b"old")
        self.assertEqual(self.sources.obtain("thing")[0].version, "1.0-1")

    def test_a_file_with_other_content_is_not_taken_and_the_refusal_says_what_to_put_where(self):
        self.lay("thing_2.0.orig.tar.gz", b"forged")
        told = self.refusal(self.sources.obtain, "thing")
        for word in ("no mirror answers", "thing_2.0.orig.tar.gz", sha256(b"new"), str(self.directory / "sources"), "SIDLE_DEBIAN_MIRROR"):
            self.assertIn(word, told)

    def test_one_refusal_names_the_files_of_all_packages(self):
        changed = mock.patch.object(sources, "TABLE", sources.TABLE + f"other 1-1 other_1.orig.tar.gz {sha256(b'')}\n")
        with changed:
            told = self.refusal(self.sources.obtain, "thing", "other")
        self.assertIn("thing_2.0.orig.tar.gz", told)
        self.assertIn("other_1.orig.tar.gz", told)

    # A machine that builds no portable Python may lack it; where everything is tested it is a part of dpkg-dev.
    @unittest.skipUnless(shutil.which("patch"), "LEFT OUT: there is no program patch here; install the package patch")
    def test_fixes_are_applied_and_other_changes_of_debian_are_not(self):
        patch = "--- a/file\n+++ b/file\n@@ -1 +1 @@\n-{}\n+{}\n"
        parts = {"debian/patches/series": "CVE-2026-1.diff\nmultiarch.diff # ours\n", "debian/patches/CVE-2026-1.diff": patch.format("old", "new"),
                 "debian/patches/multiarch.diff": patch.format("new", "newest")}
        self.lay("thing.tar", archive({"thing-2.0/file": "old\n"}))
        self.lay("fixes.tar", archive(parts))
        source = sources.Source("thing", "2.0-1", sources.File("thing.tar", ""), sources.File("fixes.tar", ""))
        top = self.sources.unpack(source, self.directory / "unpacked")
        self.assertEqual((top / "file").read_text(), "new\n")

    def test_the_upstream_version_is_told_from_debians(self):
        for version, wanted in (("3.11.2-6+deb12u8", "3.11.2"), ("1:4.4.33-2", "4.4.33"), ("3.13.15-1", "3.13.15")):
            self.assertEqual(sources.upstream(sources.Source("thing", version, None, None)), wanted)


class TestTable(unittest.TestCase):
    """The table in sources.py."""

    def test_each_package_that_is_compiled_has_a_version_with_an_archive(self):
        for package in [*libraries.PACKAGES, "libsodium", *(f"python3.{minor}" for minor in cpython.MINORS)]:
            self.assertTrue(sources.known(package), package)
            for source in sources.known(package):
                for file in sources.files_of(source):
                    self.assertRegex(file.sha256, r"^[0-9a-f]{64}$")
                    self.assertTrue(file.name.startswith(f"{package}_"), file.name)
        self.assertEqual(set(libraries.PACKAGES), set(libraries.RECIPES))

    def test_the_compilers_are_known_by_their_content(self):
        for content in toolchain.SHA256.values():
            self.assertRegex(content, r"^[0-9a-f]{64}$")


class TestStore(Case):
    """What was made is used again as long as its inputs are the same."""

    def test_a_part_is_made_once_for_the_same_inputs(self):
        made = []
        kept = store.Store(self.directory)
        first, key = kept.kept("part", ["a", "b"], made.append)
        self.assertEqual(kept.kept("part", ["a", "b"], made.append), (first, key))
        other, _ = kept.kept("part", ["ab", ""], made.append)
        self.assertNotEqual(first, other)
        self.assertEqual(len(made), 2)

    def test_the_content_of_a_file_is_part_of_the_key(self):
        file = self.directory / "recipe.py"
        file.write_text("one")
        before = store.key_of([file])
        file.write_text("two")
        self.assertNotEqual(store.key_of([file]), before)

    def test_a_failure_leaves_nothing_that_looks_complete(self):
        kept = store.Store(self.directory)

        def fail(into):
            (into / "half").touch()
            raise Refusal("no", "help")

        self.refusal(kept.kept, "part", [], fail)
        directory, _ = kept.kept("part", [], lambda into: None)
        self.assertEqual(os.listdir(directory), [store.MARK])

    def test_parts_of_older_recipes_are_forgotten_when_nobody_has_used_them_for_long(self):
        kept = store.Store(self.directory)
        stale, recent = (kept.kept("part", [word], lambda into: None)[0] for word in ("stale", "recent"))
        long_ago = time.time() - (store.KEPT_DAYS + 1) * 86400
        os.utime(stale / store.MARK, (long_ago, long_ago))
        new, _ = kept.kept("part", ["new"], lambda into: None)
        self.assertEqual([part.is_dir() for part in (stale, recent, new)], [False, True, True])


class TestRecipes(Case):
    """What is changed in sources, and in what was built."""

    def test_openssl_looks_for_certificates_in_the_places_of_distributions(self):
        file = self.directory / "x509_def.c"
        file.write_text("#include <x>\n\nconst char *file(void)\n{\n    return X509_CERT_FILE;\n}\n\nconst char *dir(void)\n{\n    return X509_CERT_DIR;\n}\n")
        libraries.trust_host(file)
        text = file.read_text()
        for place in ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"):
            self.assertIn(f'"{place}"', text)
        self.assertLess(text.index("certificates_of_host(void)"), text.index("const char *file(void)"))
        self.assertIn('return "/etc/ssl/certs";', text)

    def test_an_openssl_that_has_changed_there_is_refused(self):
        file = self.directory / "x509_def.c"
        file.write_text("const char *file(void) { return default_file(); }\n")
        self.assertIn("not as it was", self.refusal(libraries.trust_host, file))

    def test_setup_py_stays_away_from_the_headers_of_this_machine(self):
        setup = self.directory / "setup.py"
        setup.write_text("class A:\n    def b(self):\n        if True:\n            add_dir_to_list(self.compiler.library_dirs, '/usr/local/lib')\n"
                         "            add_dir_to_list(self.compiler.include_dirs, '/usr/local/include')\n        self.add_multiarch_paths()\n")
        cpython.keep_to_own_libraries(self.directory)
        self.assertNotIn("/usr/local", setup.read_text())
        self.assertNotIn("multiarch", setup.read_text())
        compile(setup.read_text(), "setup.py", "exec")
        self.assertIn("not as it was", self.refusal(cpython.keep_to_own_libraries, self.directory))

    def test_recorded_variables_forget_the_directories_of_the_build(self):
        written = []
        for own, built in (("/c/libraries-1", "/t/w-1"), ("/another/much/longer/cache/libraries-1", "/var/tmp/of/a/build/w-1")):
            variables = {
                "A": f"-I{own}/include -O3 -Wall -g0 -ffile-prefix-map={built}=. -fstack-protector-strong -D_FORTIFY_SOURCE=2 -pipe",
                "B": f"--with-openssl={own}", "C": f"{built}/python3.11/Python-3.11.2", "D": 1,
            }
            place = types.SimpleNamespace(libraries=pathlib.Path(own), directory=pathlib.Path(built))
            written.append(cpython.without_directories(f"# generated\nbuild_time_vars = {pprint.pformat(variables)}\n", place))
        self.assertEqual(written[0], written[1])
        values = {}
        exec(written[0], values)
        cleaned = {"A": "-O3 -Wall -g0 -fstack-protector-strong -D_FORTIFY_SOURCE=2 -pipe", "B": "--with-openssl=/usr", "C": "/usr", "D": 1}
        self.assertEqual(values["build_time_vars"], cleaned)

    def test_a_missing_program_is_named_with_its_package(self):
        with mock.patch.object(workshop.shutil, "which", lambda name: None if name in ("autoreconf", "perl") else f"/usr/bin/{name}"):
            told = self.refusal(workshop.require, {**workshop.PROGRAMS, **workshop.GENERATORS})
        self.assertIn("lacks perl, autoreconf", told)
        self.assertIn("apt-get install perl autoconf", told)

    def test_an_architecture_without_a_compiler_is_refused(self):
        with mock.patch.object(toolchain.platform, "machine", lambda: "riscv64"):
            self.assertIn("for riscv64", self.refusal(toolchain.machine))


class TestWheels(Case):
    """pyzmq for an old C library."""

    def test_the_version_is_the_pinned_one(self):
        self.assertEqual(wheels.pyzmq_version(["pyyaml==6.0", "pyzmq==27.1.0"]), "27.1.0")
        self.assertIsNone(wheels.pyzmq_version(["pyyaml==6.0"]))

    def test_a_wheel_gets_another_libsodium_under_the_same_name_and_says_so(self):
        wheel = self.directory / "pyzmq-27.1.0-cp311-cp311-manylinux_2_26_x86_64.manylinux_2_28_x86_64.whl"
        tags = "Wheel-Version: 1.0\nTag: cp311-cp311-manylinux_2_26_x86_64\nTag: cp311-cp311-manylinux_2_28_x86_64\n"
        with zipfile.ZipFile(wheel, "w") as new:
            for name, text in (("zmq/a.py", "a"), ("pyzmq.libs/libsodium-1a2b.so.26.2.0", "theirs"), ("pyzmq.dist-info/WHEEL", tags),
                               ("pyzmq.dist-info/RECORD", "")):
                new.writestr(name, text)
        place = types.SimpleNamespace(machine="x86_64")
        with mock.patch.object(wheels, "linked", lambda archive, soname, workshop: f"{archive} as {soname}".encode()):
            wheels.adapt(wheel, "ours", (2, 17), place, self.directory)
        adapted = self.directory / "pyzmq-27.1.0-cp311-cp311-manylinux_2_17_x86_64.whl"
        with zipfile.ZipFile(adapted) as told:
            self.assertEqual(told.read("pyzmq.libs/libsodium-1a2b.so.26.2.0"), b"ours as libsodium-1a2b.so.26.2.0")
            self.assertEqual(re.findall(r"Tag: (.*)", told.read("pyzmq.dist-info/WHEEL").decode()), ["cp311-cp311-manylinux_2_17_x86_64"])
            record = told.read("pyzmq.dist-info/RECORD").decode()
        self.assertIn(f"zmq/a.py,sha256={wheels.record_digest(b'a')},1\n", record)
        self.assertTrue(record.endswith("pyzmq.dist-info/RECORD,,\n"))

    def test_a_wheel_without_libsodium_is_refused(self):
        wheel = self.directory / "pyzmq-1-py3-none-manylinux_2_28_x86_64.whl"
        with zipfile.ZipFile(wheel, "w") as new:
            new.writestr("pyzmq.dist-info/RECORD", "")
        place = types.SimpleNamespace(machine="x86_64")
        self.assertIn("0 files of libsodium", self.refusal(wheels.adapt, wheel, "ours", (2, 17), place, self.directory))


class TestFloor(Case):
    """What the finished tree asks of a host."""

    def test_needs_are_read_from_what_is_needed_not_from_what_is_defined(self):
        found = elf.needs(READELF.replace("{address}", "205"))
        self.assertEqual((found.glibc, found.libraries, found.crooked), ((2, 17), ["libz.so.1", "libc.so.6"], False))
        self.assertEqual(found.paths, ["$ORIGIN/../..", "/opt/there"])

    def test_a_segment_that_old_loaders_refuse_is_seen(self):
        self.assertTrue(elf.needs(READELF.replace("{address}", "206")).crooked)

    def test_a_tree_that_needs_a_newer_library_is_refused_with_the_names_of_its_files(self):
        told = READELF.replace("{address}", "205").replace("GLIBC_2.17 ", "GLIBC_2.28 ")
        with mock.patch.object(elf, "elf_files", lambda tree: [f"{tree}/lib/a.so"]), mock.patch.object(elf, "run", lambda *_: told):
            words = self.refusal(elf.check, "/tree", "readelf", (2, 17))
        self.assertIn("lib/a.so needs glibc 2.28", words)
        self.assertIn("lib/a.so has a search path that cannot move: /opt/there", words)


def archive(parts):
    """The bytes of a tar archive with these texts."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as new:
        for name, text in parts.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            new.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


if __name__ == "__main__":
    unittest.main()
