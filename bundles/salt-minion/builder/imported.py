"""Copy a ready-made bundle: Salt's onedir archive, or a tree that some package installed."""

import os
import pathlib
import shutil
import tarfile

from .process import Refusal, say

# How far below the top of an archive bin/ may be: Salt's has one directory around it.
DEEPEST_ROOT = 2


def copy(source, tree, scratch):
    """Fill `tree` from an archive or a directory; gives the path that the original ran from."""
    if source.is_dir():
        root = source.resolve()
    elif source.is_file():
        root = extract(source, scratch / "archive")
    else:
        raise Refusal(f"cannot build from {source}: there is no such file or directory",
                      "set SIDLE_SOURCE to a onedir archive, to an installed tree, or to pypi")
    say(f"copying {source}")
    copy_directory(root, tree, root, ())
    if not any((tree / "bin").glob("python3*")) and not (tree / "bin" / "python").exists():
        raise Refusal(f"cannot build from {source}: it has no bin/python3 of its own",
                      "set SIDLE_SOURCE to the directory above bin/ and lib/ of a bundle")
    refuse_borrowed_interpreter(tree, root)
    name_interpreter(tree)
    return root


def extract(archive, into):
    """Unpack an archive; its root is the directory that holds bin/ and lib/."""
    into.mkdir()
    try:
        with tarfile.open(archive) as members:
            for member in members:
                # Older Pythons have no `filter` to do this; the file may come from anywhere.
                if leaves(member, into):
                    raise Refusal(f"cannot unpack {archive}: {member.name} leads out of it",
                                  "get the archive again, from a place you trust")
                members.extract(member, into, **filter_option())
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Refusal(f"cannot unpack {archive}: {error}", "get it again, and check its hash") from error
    root = into
    for _ in range(DEEPEST_ROOT):
        if not (root / "bin").is_dir():
            root = next((entry for entry in sorted(root.iterdir()) if entry.is_dir()), root)
    return root


def leaves(member, into):
    """Whether unpacking this member would touch, or make reachable, what is not in the archive."""
    place = os.path.normpath(into / member.name)
    # A parent that is a link would carry the member to wherever the link leads.
    astray = not within(place, into) or os.path.realpath(os.path.dirname(place)) != os.path.dirname(place)
    if member.issym():
        return astray or not within(os.path.normpath(os.path.join(os.path.dirname(place), member.linkname)), into)
    if member.islnk():
        return astray or not within(os.path.normpath(into / member.linkname), into)
    return (astray and place != str(into)) or member.isdev()


def within(path, directory):
    """Whether a normalised path is the directory or lies in it."""
    return path == str(directory) or path.startswith(f"{directory}/")


def filter_option():
    """The archive's own modes and links, where this Python would by default change them."""
    return {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}


def copy_directory(source, target, root, above):
    """Copy what is in `source`; links that can move stay links, the others become what they name."""
    real = os.path.realpath(source)
    if real in above:
        raise Refusal(f"cannot copy {source}: its links lead back to themselves", "remove the link")
    target.mkdir(exist_ok=True)
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        copied = target / entry.name
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


def refuse_borrowed_interpreter(tree, root):
    """A virtual environment runs with the host's standard library: it is no bundle."""
    settings = tree / "pyvenv.cfg"
    if not settings.exists():
        return
    for line in settings.read_text(encoding="utf-8").splitlines():
        key, _, home = (part.strip() for part in line.partition("="))
        if key == "home" and not within(os.path.realpath(home), root):
            raise Refusal(f"cannot build from {root}: it borrows its Python from {home}",
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
