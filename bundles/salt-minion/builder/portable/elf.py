"""What a tree's programs and libraries need of a host, as the linker's own tools tell it."""

import os
import re
from collections import namedtuple

from ..process import Refusal, run, say
from ..relocate import elf_files

Needs = namedtuple("Needs", "glibc libraries paths crooked")


def needs(told):
    """Read what `readelf -lVdW` tells of a file."""
    wanted = told.split("Version needs section", 1)[1:]
    versions = [tuple(map(int, number.split("."))) for number in re.findall(r"\bGLIBC_(\d[\d.]*)", "".join(wanted))]
    paths = [entry for found in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", told) for entry in found.split(":") if entry]
    segments = re.findall(r"^  LOAD +(0x\w+) (0x\w+) .* (0x\w+)$", told, re.MULTILINE)
    crooked = any((int(address, 16) - int(offset, 16)) % int(align, 16) for offset, address, align in segments)
    return Needs(max(versions, default=(0,)), re.findall(r"\(NEEDED\).*\[(.*)\]", told), paths, crooked)


def check(tree, readelf, floor):
    """Refuse a tree that needs a newer C library than `floor`, or that old loaders refuse."""
    faults, newest = [], (0,)
    for file in elf_files(tree):
        name = os.path.relpath(file, tree)
        found = needs(run([readelf, "-lVdW", file], f"cannot read {name}", "report this"))
        newest = max(newest, found.glibc)
        if found.glibc > floor:
            faults.append(f"{name} needs glibc {dotted(found.glibc)}")
        if found.crooked:
            faults.append(f"{name} has a segment that is not aligned, which old loaders refuse")
        faults += [f"{name} has a search path that cannot move: {path}" for path in found.paths if not path.startswith("$ORIGIN")]
    if faults:
        raise Refusal("\n    ".join([f"cannot use the tree: it would not start on glibc {dotted(floor)}", *faults]),
                      "see which package brings the file; an older version of it may fit")
    say(f"the tree starts on glibc {dotted(newest)} and later")


def dotted(version):
    """A version for people."""
    return ".".join(map(str, version))
