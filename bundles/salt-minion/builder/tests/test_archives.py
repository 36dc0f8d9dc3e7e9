"""What is unpacked of a package's file, and what is refused."""

import gzip
import io
import os
import pathlib
import shutil
import struct
import subprocess
import tarfile
import tempfile
import unittest
from unittest import mock

from builder import archives, commands, imported, rpm
from builder.process import Refusal

BUNDLE = "opt/saltstack/salt"
FILES = {f"{BUNDLE}/bin/python3.11": "python", f"{BUNDLE}/lib/python3.11/site-packages/salt/version.py": "salt", "etc/salt/minion": "host"}


def entry(name, kind=tarfile.REGTYPE, link=""):
    """A member without content."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def tar_of(files, *others):
    """The bytes of a tar file."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
        for member in others:
            tar.addfile(member)
    return written.getvalue()


def deb_of(*members):
    """The bytes of an ar archive of (name, content)."""
    parts = [b"!<arch>\n"]
    for name, data in members:
        parts += [f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode(), data, b"\n" * (len(data) % 2)]
    return b"".join(parts)


def cpio_of(members):
    """The bytes of a cpio archive of (name, mode, inode, links, content)."""
    parts = []
    for name, mode, inode, links, data in [*members, ("TRAILER!!!", 0, 0, 1, b"")]:
        fields = [inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + "".join(f"{field:08x}" for field in fields).encode() + name.encode() + b"\0"
        parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]
    return b"".join(parts)


def rpm_of(members):
    """The bytes of an rpm, as far as they are read."""
    strings = [(rpm.PAYLOAD_FORMAT, b"cpio\0"), (rpm.PAYLOAD_COMPRESSOR, b"gzip\0")]
    index = struct.pack(">IIII", strings[0][0], 6, 0, 1) + struct.pack(">IIII", strings[1][0], 6, 5, 1)
    store = b"".join(text for _, text in strings)
    signatures = rpm.HEADER_MAGIC + bytes(4) + struct.pack(">II", 0, 3) + b"abc" + bytes(5)
    header = rpm.HEADER_MAGIC + bytes(4) + struct.pack(">II", 2, len(store)) + index + store
    return rpm.MAGIC + bytes(rpm.LEAD - 4) + signatures + header + gzip.compress(cpio_of(members))


RPM_FILES = [(f"./{name}", 0o100644, 10 + number, 1, text.encode()) for number, (name, text) in enumerate(FILES.items())]


class TestPackages(unittest.TestCase):
    """Debs and rpms."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name).resolve()
        (self.directory / "scratch").mkdir()

    def unpacked(self, content):
        """Unpack a package with this content."""
        (self.directory / "package").write_bytes(content)
        shutil.rmtree(self.directory / "scratch")
        (self.directory / "scratch").mkdir()
        return archives.unpack(self.directory / "package", self.directory / "scratch" / "archive")

    def refused(self, content, words):
        """Unpacking is refused with these words, and leaves nothing outside."""
        with self.assertRaisesRegex(Refusal, words):
            self.unpacked(content)
        self.assertEqual(sorted(entry.name for entry in self.directory.iterdir()), ["package", "scratch"])

    def test_the_bundle_of_a_deb_is_unpacked_alone(self):
        """What the package has elsewhere is not; a link to where the bundle is installed becomes a relative one."""
        tar = tar_of(FILES, entry(f"./{BUNDLE}/bin/python3", tarfile.SYMTYPE, f"/{BUNDLE}/bin/python3.11"),
                     entry("./usr/bin/salt-call", tarfile.SYMTYPE, f"/{BUNDLE}/salt-call"))
        kinds = {"": None, ".gz": ["gzip", "-c"], ".xz": ["xz", "-c"], ".bz2": ["bzip2", "-c"], ".zst": ["zstd", "-c"]}
        for suffix, command in kinds.items():
            if command and not shutil.which(command[0]):
                continue
            data = subprocess.run(command, input=tar, stdout=subprocess.PIPE, check=True).stdout if command else tar
            root, origin = self.unpacked(deb_of(("debian-binary", b"2.0\n"), ("control.tar", b"odd"), (f"data.tar{suffix}", data)))
            self.assertEqual(origin, pathlib.Path("/", BUNDLE))
            self.assertEqual(os.readlink(root / "bin/python3"), "python3.11")
            self.assertEqual((root / "bin/python3").read_text(encoding="utf-8"), "python")
            self.assertEqual(os.listdir(self.directory / "scratch/archive"), ["opt"])

    def test_salts_onedir_archive_is_unpacked_whole(self):
        """It has a directory of its own around it; one that somebody has packed again may have none, or one more."""
        link = entry("bin/python3", tarfile.SYMTYPE, "python3.11")
        for top in ("salt/", "", "./", "one/salt/"):
            files = {f"{top}bin/python3.11": "python", f"{top}lib/python3.11/site-packages/salt/version.py": "salt", f"{top}salt-minion": "#!"}
            link.name = f"{top}bin/python3"
            for mode in ("", "xz", "gz"):
                written = io.BytesIO()
                with tarfile.open(fileobj=written, mode=f"w:{mode}") as tar, tarfile.open(fileobj=io.BytesIO(tar_of(files, link))) as plain:
                    for member in plain:
                        tar.addfile(member, plain.extractfile(member) if member.isreg() else None)
                root, origin = self.unpacked(written.getvalue())
                self.assertEqual(origin, root)
                self.assertEqual((root / "bin/python3").read_text(encoding="utf-8"), "python")
                self.assertTrue((root / "salt-minion").is_file())

    def test_a_bundle_on_a_free_threaded_python_is_refused_by_name(self):
        """Such a Python names its library so: python3.13t."""
        for name, words in (("python3.13t", "lib/python3.13t, is a free-threaded build"), ("python3.13", None)):
            source, tree = self.directory / f"salt-{name}", self.directory / f"tree-{name}"
            for directory in ("bin", f"lib/{name}/site-packages/salt"):
                (source / directory).mkdir(parents=True)
            (source / "bin" / name).write_text("python", encoding="utf-8")
            if words:
                with self.assertRaisesRegex(Refusal, words):
                    imported.copy(source, tree, self.directory / "scratch")
            else:
                self.assertEqual(imported.copy(source, tree, self.directory / "scratch"), source)

    def test_a_copied_directory_of_uyunis_bundle_is_known_by_the_place_that_its_programs_name(self):
        """The wrappers know where they were installed; a link that leads there leads into the copy."""
        home, source, tree = "/usr/lib/venv-salt-minion", self.directory / "copied", self.directory / "tree"
        (source / "bin").mkdir(parents=True)
        (source / "bin/python.original").write_text("python", encoding="utf-8")
        (source / "bin/python").write_text(f'#!/bin/bash\nexec {home}/bin/python.original "$@"\n', encoding="utf-8")
        (source / "bin/salt-call").write_text(f"#!{home}/bin/python\n", encoding="utf-8")
        os.symlink(f"{home}/bin/python3.11", source / "bin/python3")
        os.symlink(f"{home}/bin/python", source / "bin/python3.11")
        os.symlink(f"{home}/bin/nothing", source / "bin/loose")
        origin = imported.copy(source, tree, self.directory / "scratch")
        self.assertEqual((origin, os.readlink(tree / "bin/python3"), os.readlink(tree / "bin/python3.11")), (pathlib.Path(home), "python3.11", "python"))
        self.assertFalse(os.path.lexists(tree / "bin/loose"))
        commands.relocate(tree, origin)
        self.assertNotIn(home, (tree / "bin/python").read_text(encoding="utf-8") + (tree / "bin/salt-call").read_text(encoding="utf-8"))

    def test_a_copy_whose_python_knows_only_its_old_place_is_refused_with_what_it_said(self):
        """A wrapper at a place that no package has."""
        (self.directory / "bin").mkdir()
        python = self.directory / "bin/python3"
        python.write_text("#!/bin/sh\nexec /nowhere/bin/python.original\n", encoding="utf-8")
        python.chmod(0o755)
        with self.assertRaisesRegex(Refusal, "its Python does not start away from its place: exit 127\n.*/nowhere/bin/python.original.*\n.*SIDLE_SOURCE"):
            imported.refuse_what_does_not_start(self.directory, "copied")
        python.write_text("#!/bin/sh\n", encoding="utf-8")
        imported.refuse_what_does_not_start(self.directory, "copied")

    def test_an_archive_that_leads_out_or_is_damaged_is_refused(self):
        """As a package is."""
        for member in (entry("../outside"), entry("salt/lib/out", tarfile.SYMTYPE, "../../../etc"), entry("salt/pipe", tarfile.FIFOTYPE)):
            self.refused(tar_of({"salt/bin/python3": ""}, member), f"{member.name} leads out of it")
        self.refused(gzip.compress(tar_of({"salt/bin/python3": "x" * 5000}))[:-30], "check its hash")
        self.refused(b"no archive at all" * 100, "check its hash")

    def test_files_of_an_rpm_with_several_names_have_their_content(self):
        """cpio keeps the content with the last name."""
        mode = 0o100755
        root, origin = self.unpacked(rpm_of([
            *RPM_FILES, (f"./{BUNDLE}/bin/first", mode, 7, 2, b""), (f"./{BUNDLE}/bin/second", mode, 7, 2, b"both"),
            (f"./{BUNDLE}/bin/python3", 0o120777, 8, 1, b"python3.11"), (f"./{BUNDLE}/empty", 0o40755, 9, 2, b"")]))
        self.assertEqual(origin, pathlib.Path("/", BUNDLE))
        self.assertEqual([(root / "bin" / name).read_text(encoding="utf-8") for name in ("first", "second", "python3")], ["both", "both", "python"])
        self.assertTrue((root / "empty").is_dir())

    def test_what_leads_out_is_refused_by_name(self):
        """Names, links and parents that are links; in a deb and in an rpm."""
        outside = self.directory / "outside"
        for member, words in [
            (entry("./../../outside"), r"\.\./outside leads out of it"),
            (entry(f"./{BUNDLE}/../../../../../outside"), "leads out of it"),
            (entry(f"/{BUNDLE}/bin/absolute"), "absolute leads out of it"),
            (entry(f"./{BUNDLE}/lib/out", tarfile.SYMTYPE, str(outside)), rf"lib/out leads out of /{BUNDLE}, to {outside}"),
            (entry(f"./{BUNDLE}/lib/out", tarfile.SYMTYPE, "../../../../etc"), f"lib/out leads out of /{BUNDLE}, to"),
            (entry(f"./{BUNDLE}/lib/out", tarfile.LNKTYPE, "./etc/salt/minion"), "lib/out leads out"),
            (entry(f"./{BUNDLE}/pipe", tarfile.FIFOTYPE), "pipe leads out"),
        ]:
            self.refused(deb_of(("debian-binary", b"2.0\n"), ("data.tar", tar_of(FILES, member))), words)
        self.refused(rpm_of([*RPM_FILES, ("./../../outside", 0o100644, 1, 1, b"x")]), "outside leads out of it")
        self.refused(rpm_of([*RPM_FILES, (f"./{BUNDLE}/out", 0o120777, 1, 1, b"/etc")]), f"out leads out of /{BUNDLE}, to /etc")

    def test_a_damaged_package_is_refused(self):
        """At whatever byte it ends."""
        deb = deb_of(("debian-binary", b"2.0\n"), ("data.tar.gz", gzip.compress(tar_of(FILES))))
        self.refused(deb[:-30], "ends in the middle of data.tar.gz")
        self.refused(deb[:100], "is damaged at byte")
        self.refused(deb[:72], "has no data.tar")
        self.refused(deb_of(("data.tar.gz", gzip.compress(tar_of(FILES))[:-30])), "gzip: .*unexpected end of file")
        whole = rpm_of(RPM_FILES)
        self.refused(whole[:50], "ends too early")
        self.refused(whole[:150], "ends too early")
        self.refused(whole[:-30], "gzip: .*unexpected end of file")
        self.refused(whole[:96] + b"x" * 200, "no header where an rpm has one")

    def test_a_package_without_such_a_bundle_is_refused(self):
        """The one with the unit, or one whose Salt runs with the host's Python."""
        self.refused(rpm_of([("./etc/salt/minion", 0o100644, 1, 1, b"x")]), "it holds no Salt with a Python of its own\n.*salt-common")
        borrowed = {"usr/lib/python3/dist-packages/salt/version.py": ""}
        self.refused(deb_of(("data.tar", tar_of(borrowed))), "its Salt runs with the Python of the host")

    def test_a_missing_program_is_named_with_its_package(self):
        """As on a minimal system."""
        with mock.patch.dict(os.environ, {"PATH": str(self.directory)}):
            self.refused(deb_of(("data.tar.zst", b"")), "compressed with zstd, which is not installed\n.*install zstd")
        self.refused(deb_of(("data.tar.br", b"")), "nothing here knows its compression, br")
