"""Copy a ready-made bundle: Salt's onedir archive, a tree that some package installed, or the file of that package."""

import os
import pathlib
import re
import shutil

from . import archives
from .archives import within
from .process import Refusal, say

# What salt-pip installs, in Salt's own bundle: a host's own, and a release would have it before what that host has now.
EXTRAS = re.compile(r"extras-3\.[0-9]+")


def copy(source, tree, scratch):
    """Fill `tree` from an archive or a directory; gives the path that the original ran from."""
    if source.is_dir():
        root = origin = source.resolve()
    elif source.is_file():
        root, origin = archives.unpack(source, scratch / "archive")
    else:
        raise Refusal(f"cannot build from {source}: there is no such file or directory",
                      "set SIDLE_SOURCE to a onedir archive, to the file of a deb or rpm, to an installed tree, or to pypi")
    say(f"copying {source}")
    copy_directory(root, tree, root, ())
    if not any((tree / "bin").glob("python3*")) and not (tree / "bin" / "python").exists():
        raise Refusal(f"cannot build from {source}: it has no bin/python3 of its own",
                      "set SIDLE_SOURCE to the directory above bin/ and lib/ of a bundle")
    refuse_borrowed_interpreter(tree, source, origin)
    name_interpreter(tree)
    return origin


def copy_directory(source, target, root, above):
    """Copy what is in `source`; links that can move stay links, the others become what they name."""
    real = os.path.realpath(source)
    if real in above:
        raise Refusal(f"cannot copy {source}: its links lead back to themselves", "remove the link")
    target.mkdir(exist_ok=True)
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        copied = target / entry.name
        if not above and EXTRAS.fullmatch(entry.name):
            say(f"warning: left out {entry.path}: salt-pip installed it on one host; `extras` of the recipe brings packages")
            continue
        if entry.is_symlink() and (link := movable(entry.path, root)) is not None:
            os.symlink(link, copied)
        elif entry.is_dir():
            copy_directory(pathlib.Path(entry.path), copied, root, (*above, real))
        elif entry.is_file():
            shutil.copyfile(entry.path, copied)
            shutil.copymode(entry.path, copied)
        elif entry.is_symlink():
            say(f"warning: left out {entry.path}: it leads to nothing")
        else:
            say(f"warning: left out {entry.path}: it is neither file, directory nor link")


def movable(link, root):
    """The text of a link that works wherever the tree is, or None if there is none."""
    names = os.path.join(os.path.dirname(link), os.readlink(link))
    lands = os.path.normpath(names)
    if not within(lands, root) or not os.path.exists(link):
        return None
    return os.path.relpath(lands, os.path.dirname(link))


def refuse_borrowed_interpreter(tree, source, origin):
    """A virtual environment runs with the host's standard library: it is no bundle."""
    settings = tree / "pyvenv.cfg"
    if not settings.exists():
        return
    for line in settings.read_text(encoding="utf-8").splitlines():
        key, _, home = (part.strip() for part in line.partition("="))
        if key == "home" and not within(os.path.realpath(home), origin):
            raise Refusal(f"cannot build from {source}: it borrows its Python from {home}",
                          "set SIDLE_SOURCE to pypi, and SIDLE_PYTHON to that Python")
    # It names the old place. Without it Python finds its library by where it is itself.
    settings.unlink()


def name_interpreter(tree):
    """Every bundle's Python is called bin/python3, whatever else it is called."""
    programs = tree / "bin"
    if (programs / "python3").exists():
        return
    named = "python" if (programs / "python").exists() else sorted(p.name for p in programs.glob("python3.*"))[0]
    os.symlink(named, programs / "python3")
