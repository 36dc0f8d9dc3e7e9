"""Unpack what a ready-made bundle comes in: Salt's onedir archive, or the file of a deb or rpm. Nothing of it is installed, and none of its scripts run."""

import collections
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import zlib

from . import rpm
from .process import Refusal, say

# How far below the top of an archive bin/ may be: Salt's has one directory around it.
DEEPEST_ROOT = 2
# A package has its bundle where Salt lies, beside a Python of its own.
SALT = re.compile(r"(.+)/lib(?:64)?/python3[^/]*/(?:site|dist)-packages/salt/version\.py")
PYTHON = re.compile(r"(.+)/bin/python3[^/]*")
DEB = b"!<arch>\n"
# An ar member: name, time, owner, group, mode, size, end.
AR_HEADER = 60
TRUSTED = "get it again, from a place you trust"

# directory: what was unpacked; origin: the path that its programs name.
Unpacked = collections.namedtuple("Unpacked", "directory origin")


def unpack(archive, into):
    """Unpack an archive or a package's file; gives the bundle's root, and where it ran before."""
    into.mkdir()
    try:
        with open(archive, "rb") as file:
            magic = file.read(len(DEB))
        if magic == DEB:
            return from_package(archive, deb_content(archive, into.parent), into)
        if magic.startswith(rpm.MAGIC):
            return from_package(archive, rpm.content(archive, into.parent, decompress), into)
        root = plain(archive, into)
        return Unpacked(root, root)
    except (tarfile.TarError, rpm.Damaged, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError) as error:
        raise Refusal(f"cannot unpack {archive}: {error}", "get it again, and check its hash") from error


def plain(archive, into):
    """Unpack all of an archive; its root is the directory that holds bin/ and lib/."""
    with tarfile.open(archive) as members:
        for member in members:
            if leaves(member, into):
                raise Refusal(f"cannot unpack {archive}: {member.name} leads out of it", TRUSTED)
            place(members, member, into)
    root = into
    for _ in range(DEEPEST_ROOT):
        if not (root / "bin").is_dir():
            root = next((entry for entry in sorted(root.iterdir()) if entry.is_dir()), root)
    return root


def from_package(package, content, into):
    """Unpack the bundle in a package, and nothing else; its links to where it is installed become relative."""
    with tarfile.open(content) as members:
        bundle = bundle_of(package, members)
        say(f"unpacking /{bundle} of {package}")
        for member in members.getmembers():
            if not under(member.name, bundle):
                continue
            if member.issym() and under(member.linkname, f"/{bundle}"):
                member.linkname = os.path.relpath(member.linkname, os.path.dirname(f"/{member.name}"))
            # A link that the package has outside of its bundle is not there to be followed.
            if leaves(member, into, into / bundle):
                to = f", to {member.linkname}" if member.linkname else ""
                raise Refusal(f"cannot unpack {package}: {member.name} leads out of /{bundle}{to}", TRUSTED)
            place(members, member, into)
    content.unlink()
    return Unpacked(into / bundle, pathlib.Path("/", bundle))


def bundle_of(package, members):
    """Where a package has Salt with a Python of its own, without the first slash; names become plain ones."""
    salts, pythons = set(), set()
    for member in members.getmembers():
        if member.name.startswith("/") or ".." in member.name.split("/"):
            raise Refusal(f"cannot unpack {package}: {member.name} leads out of it", TRUSTED)
        member.name = os.path.normpath(member.name)
        if member.islnk():
            member.linkname = os.path.normpath(member.linkname.lstrip("/"))
        if found := SALT.fullmatch(member.name):
            salts.add(found[1])
        if found := PYTHON.fullmatch(member.name):
            pythons.add(found[1])
    bundles = sorted(salts & pythons)
    if len(bundles) == 1:
        return bundles[0]
    if salts and not bundles:
        raise Refusal(f"cannot build from {package}: its Salt runs with the Python of the host", "set SIDLE_SOURCE to pypi, and SIDLE_PYTHON to that Python")
    raise Refusal(f"cannot build from {package}: it holds {len(bundles) or 'no'} Salt with a Python of its own",
                  "name the package with the files below /opt/saltstack/salt (salt-common_*.deb, salt-3*.rpm; "
                  "those of salt-minion have its unit only), or that of venv-salt-minion")


def under(name, directory):
    """Whether a name is that of the directory, or of what is below it."""
    return within(os.path.normpath(name), directory)


def leaves(member, into, root=None):
    """Whether unpacking this member would touch, or make reachable, what is not in the archive, or not below `root` in it."""
    root = root or into
    at = os.path.normpath(into / member.name)
    # A parent that is a link would carry the member to wherever the link leads.
    astray = not within(at, root) or os.path.realpath(os.path.dirname(at)) != os.path.dirname(at)
    if member.issym():
        return astray or not within(os.path.normpath(os.path.join(os.path.dirname(at), member.linkname)), root)
    if member.islnk():
        return astray or not within(os.path.normpath(into / member.linkname), root)
    return (astray and at != str(into)) or not (member.isreg() or member.isdir())


def within(path, directory):
    """Whether a normalised path is the directory or lies in it."""
    return path == str(directory) or path.startswith(f"{directory}/")


def place(members, member, into):
    """Write one member. Older Pythons have no `filter` to refuse what leads out; newer ones would change modes and links."""
    member.mode |= 0o700 if member.isdir() else 0o400
    # A file that an earlier member left there is not written through.
    if not member.isdir():
        (into / member.name).unlink(missing_ok=True)
    options = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
    members.extract(member, into, set_attrs=not member.issym(), **options)


def deb_content(package, scratch):
    """Give the plain tar file of what a deb would install."""
    size = os.path.getsize(package)
    with open(package, "rb") as file:
        file.seek(len(DEB))
        while header := file.read(AR_HEADER):
            if len(header) < AR_HEADER or header[58:] != b"`\n":
                raise Refusal(f"cannot unpack {package}: it is damaged at byte {file.tell()}", "get it again, and check its hash")
            name, length = header[:16].decode("ascii", "replace").strip().rstrip("/"), int(header[48:58])
            if file.tell() + length > size:
                raise Refusal(f"cannot unpack {package}: it ends in the middle of {name}", "get it again, and check its hash")
            if name.startswith("data.tar"):
                return decompress(package, file, length, name[len("data.tar"):].lstrip("."), scratch / "data.tar")
            file.seek(length + length % 2, os.SEEK_CUR)
    raise Refusal(f"cannot unpack {package}: it has no data.tar", "get it again, and check its hash")


# The program for each compression, and its package: Python's own modules do not know all of them.
PROGRAMS = {"": ("cat", "coreutils"), "gz": ("gzip", "gzip"), "xz": ("xz", "xz-utils, or xz"), "lzma": ("xz", "xz-utils, or xz"),
            "bz2": ("bzip2", "bzip2"), "zst": ("zstd", "zstd")}


def decompress(package, file, length, kind, into):
    """Write the next `length` bytes of an open file into another one, decompressed; gives that one's path."""
    if kind not in PROGRAMS:
        raise Refusal(f"cannot unpack {package}: nothing here knows its compression, {kind}", "unpack it with its own tools, and name the directory")
    program, owner = PROGRAMS[kind]
    if not shutil.which(program):
        raise Refusal(f"cannot unpack {package}: it is compressed with {program}, which is not installed", f"install {owner}")
    with open(into, "wb") as output:
        command = [program] if kind == "" else [program, "-dc"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE) as running:
            try:
                with running.stdin as pipe:
                    copy(file, pipe, length)
            except BrokenPipeError:
                pass  # It says why.
            said = running.stderr.read().decode("utf-8", "replace").strip()
    if running.returncode:
        raise Refusal(f"cannot unpack {package}: {said or f'{program} failed'}", "get it again, and check its hash")
    return into


def copy(file, pipe, length):
    """Copy so many bytes, or up to the end."""
    while length and (part := file.read(min(length, 1 << 20))):
        pipe.write(part)
        length -= len(part)
