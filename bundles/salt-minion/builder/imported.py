"""Copy a ready-made bundle: Salt's onedir archive, a tree that some package installed, or the file of that package."""

import os
import pathlib
import re
import shutil

from . import archives, commands
from .archives import within
from .process import Refusal, run, say

# What salt-pip installs, in Salt's own bundle: a host's own, and a release would have it before what that host has now.
EXTRAS = re.compile(r"extras-3\.[0-9]+")
# A free-threaded Python keeps its library under a name of its own: PEP 703, "Build Configuration Changes".
FREE_THREADED_LIBRARY = "lib*/python3.*[0-9]t"
# Where Uyuni's package installs its bundle: the programs name that place, also in a copy elsewhere.
HOME_OF_UYUNIS = pathlib.Path("/usr/lib/venv-salt-minion")
# As Linux follows: path_resolution(7).
MOST_LINKS = 40


def copy(source, tree, scratch):
    """Fill `tree` from an archive or a directory; gives the path that the original ran from."""
    if source.is_dir():
        bundle = archives.Unpacked(source.resolve(), source.resolve())
    elif source.is_file():
        bundle = archives.unpack(source, scratch / "archive")
    else:
        raise Refusal(f"cannot build from {source}: there is no such file or directory",
                      "set SIDLE_SOURCE to a onedir archive, to the file of a deb or rpm, to an installed tree, or to pypi")
    say(f"copying {source}")
    bundle = at_home(bundle)
    copy_directory(bundle.directory, tree, bundle, ())
    if not any((tree / "bin").glob("python3*")) and not (tree / "bin" / "python").exists():
        raise Refusal(f"cannot build from {source}: it has no bin/python3 of its own",
                      "set SIDLE_SOURCE to the directory above bin/ and lib/ of a bundle")
    refuse_borrowed_interpreter(tree, source, bundle.origin)
    refuse_free_threaded_interpreter(tree, source)
    name_interpreter(tree)
    return bundle.origin


def at_home(bundle):
    """The same bundle, with the place that its programs name."""
    return bundle._replace(origin=HOME_OF_UYUNIS) if any(commands.scripts_that_name(HOME_OF_UYUNIS, bundle.directory)) else bundle


def copy_directory(source, target, bundle, above):
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
        if entry.is_symlink() and (link := movable(entry.path, bundle)) is not None:
            os.symlink(link, copied)
        elif entry.is_dir():
            copy_directory(pathlib.Path(entry.path), copied, bundle, (*above, real))
        elif entry.is_file():
            shutil.copyfile(entry.path, copied)
            shutil.copymode(entry.path, copied)
        elif entry.is_symlink():
            say(f"warning: left out {entry.path}: it leads to nothing")
        else:
            say(f"warning: left out {entry.path}: it is neither file, directory nor link")


def movable(link, bundle):
    """The text of a link that works wherever the tree is, or None if there is none."""
    lands = end = landing(link, bundle)
    for _ in range(MOST_LINKS):
        if os.path.islink(end):
            end = landing(end, bundle)
    if not within(lands, bundle.directory) or not os.path.exists(end):
        return None
    return os.path.relpath(lands, os.path.dirname(link))


def landing(link, bundle):
    """What a link names: where it is now, if that is in the bundle's old place."""
    named = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
    if within(named, bundle.origin):
        return os.path.normpath(bundle.directory / os.path.relpath(named, bundle.origin))
    return named


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


def refuse_free_threaded_interpreter(tree, source):
    """Salt has no packages for such a Python, and was never tried on one."""
    for library in sorted(tree.glob(FREE_THREADED_LIBRARY)):
        raise Refusal(f"cannot build from {source}: its Python, {library.relative_to(tree)}, is a free-threaded build, "
                      "for which Salt's pins have no packages",
                      "take a bundle whose Python is a usual build, or set SIDLE_SOURCE to pypi")


def refuse_what_does_not_start(tree, source):
    """A wrapper may name a place that is not here, and a Python may be for another machine."""
    run([tree / "bin" / "python3", "-E", "-s", "-S", "-B", "-c", ""], f"cannot build from {source}: its Python does not start away from its place",
        "set SIDLE_SOURCE to the package's file, or to the directory where the package installed it, on a machine that runs it", cwd="/")


def name_interpreter(tree):
    """Every bundle's Python is called bin/python3, whatever else it is called."""
    programs = tree / "bin"
    if (programs / "python3").exists():
        return
    named = "python" if (programs / "python").exists() else sorted(p.name for p in programs.glob("python3.*"))[0]
    os.symlink(named, programs / "python3")
