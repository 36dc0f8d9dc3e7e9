"""Write the programs in a tree's bin/: they find their own tree, wherever it is."""

import os
import re

from .process import say

# A file that sh and Python both read. sh sees the command `:`, then finds the real directory of
# the script (a link to it, such as one through `current`, must not become part of sys.path), and
# hands over to the Python beside it. Python sees one string, then the program.
# -E -s: the caller's PYTHON* and ~/.local are not this tree's; -B: nothing is written into it.
HEADER = """\
#!/bin/sh
''':'
self=$(readlink -f -- "$0")
exec "${self%/*}/python3" -E -s -B "$self" "$@"
'''
"""
ENTRY = """\
import sys

from salt.scripts import {function}

sys.exit({function}())
"""
# salt-pip refuses to work outside Salt's own bundle, which it knows by sys.RELENV. That of Salt 3006.9 does not look
# at SALT_EXTRAS_DIR: it installs into a directory of that bundle. Where root's minion does not look for packages, nothing
# is installed.
SALT_PIP = """\
import os
import pathlib
import sys

import _sidle_extras


class Tree(type(pathlib.Path())):
    def __truediv__(self, name):
        is_extras = str(name).startswith("extras-")
        return pathlib.Path(_sidle_extras.directory()) if is_extras else super().__truediv__(name)


def minions_user():
    import salt.config

    directory = os.environ.get("SALT_CONFIG_DIR")
    file = os.path.join(directory, "minion") if directory else os.environ.get("SALT_MINION_CONFIG")
    return salt.config.minion_config(file or salt.config.DEFAULT_MINION_OPTS["conf_file"]).get("user")


def refuse_unused(words):
    path = _sidle_extras.directory()
    is_own_choice = path != _sidle_extras.default() or any("--target" in word for word in words)
    if "install" not in words or is_own_choice or _sidle_extras.is_roots_alone(path):
        return
    # Another user's minion looks there once it has left root.
    if minions_user() in (None, "", "root"):
        sys.exit(
            f"ERROR: cannot install into {path}: another user than root can write there, or above it, so that root's "
            f"minion takes no packages from there; give {path} and each directory above it to root (`chown root:`, "
            "`chmod go-w`), or name another directory with SALT_EXTRAS_DIR in the minion's unit"
        )


refuse_unused(sys.argv[1:])
os.environ["SALT_EXTRAS_DIR"] = _sidle_extras.directory()
sys.RELENV = Tree(sys.prefix)

from salt.scripts import salt_pip

sys.exit(salt_pip())
"""
# Salt's own bundle looks into itself for what salt-pip installed. A release is never written to,
# so this looks where Salt's hardened packages do; one directory per Python, as modules in C fit
# only one.
EXTRAS = """\
import os
import site
import stat
import sys


def default():
    return "/var/lib/{home}/extras-{{}}.{{}}".format(*sys.version_info)


def directory():
    return os.environ.get("SALT_EXTRAS_DIR") or default()


def is_roots(path):
    shared, parts = False, path.split(os.sep)
    for depth in range(1, len(parts) + 1):
        try:
            found = os.lstat(os.sep.join(parts[:depth]) or os.sep)
        except FileNotFoundError:
            break
        except OSError:
            return False
        shared = bool(found.st_mode & 0o022) and not stat.S_ISLNK(found.st_mode)
        if found.st_uid or (shared and not found.st_mode & stat.S_ISVTX):
            return False
    return not shared


def is_trusted(path):
    # Another one that the unit names is its author's choice, as it is for the packaged minion. salt-pip names the default to its own programs.
    if path != default() or os.geteuid() != 0:
        return True
    return is_roots_alone(path)


def is_roots_alone(path):
    return all(map(is_roots, {{os.path.abspath(path), os.path.realpath(path)}}))


def prefer():
    path = directory()
    if path in sys.path:
        return
    if is_trusted(path):
        sys.path.insert(0, path)
    else:
        # Code of another user would run with root's rights. A minion of that user looks there once it has left root.
        os.setuid = prefer_after(os.setuid)


def prefer_after(step):
    def stepped(*arguments):
        step(*arguments)
        prefer()

    return stepped


def start():
    prefer()
    # The Python of Salt's own bundle drops, as the last step of its start, what lies outside of it.
    if hasattr(sys, "RELENV"):
        site.execsitecustomize = prefer_after(site.execsitecustomize)
"""
# Read in the order of their names; this one, after the one by which that Python starts its hook.
EXTRAS_LOADER, EXTRAS_LOADER_OF_RELENV = "_sidle_extras.pth", "sidle_extras.pth"
RELENV = "relenv.pth"
PROGRAMS = {
    "salt-call": ENTRY.format(function="salt_call"),
    "salt-minion": ENTRY.format(function="salt_minion"),
    "salt-pip": SALT_PIP,
    "salt-proxy": ENTRY.format(function="salt_proxy"),
}
SYSPATHS = """\
ROOT_DIR = "/"
CONFIG_DIR = "/etc/{name}"
CACHE_DIR = "/var/cache/{name}"
SOCK_DIR = "/var/run/{name}"
LOGS_DIR = "/var/log/{name}"
PIDFILE_DIR = "/var/run"
"""
SYSPATHS_LEFT_AT_DEFAULT = [
    "SRV_ROOT_DIR", "BASE_FILE_ROOTS_DIR", "HOME_DIR", "BASE_PILLAR_ROOTS_DIR",
    "BASE_THORIUM_ROOTS_DIR", "BASE_MASTER_ROOTS_DIR", "LIB_STATE_DIR", "SPM_PARENT_PATH",
    "SPM_FORMULA_PATH", "SPM_PILLAR_PATH", "SPM_REACTOR_PATH", "SHARE_DIR",
]


def write(tree, paths):
    """Write what is missing of the programs, and salt-pip anew; `paths` names Salt's directories, if given."""
    programs = tree / "bin"
    write_extras(tree, paths or "salt/minion")
    # A bundle's own installs into the bundle.
    for own in (programs / "salt-pip", tree / "salt-pip"):
        if own.exists() or own.is_symlink():
            own.unlink()
            if own.parent == tree:
                os.symlink("bin/salt-pip", own)
    for name, text in PROGRAMS.items():
        if not (programs / name).exists():
            (programs / name).write_text(HEADER + text, encoding="utf-8")
            (programs / name).chmod(0o755)
    if paths:
        write_syspaths(tree, paths)


def write_extras(tree, home):
    """Let the tree's Python find what `salt-pip` installs, before its own packages."""
    for site in sorted({found.resolve() for found in tree.glob("lib*/python3*/*-packages")}):
        (site / "_sidle_extras.py").write_text(EXTRAS.format(home=home), encoding="utf-8")
        loader = EXTRAS_LOADER_OF_RELENV if (site / RELENV).exists() else EXTRAS_LOADER
        (site / loader).write_text("import _sidle_extras; _sidle_extras.start()\n", encoding="utf-8")


def write_syspaths(tree, name):
    """Compile in other default directories, as a package of that name has them."""
    left = "".join(f"{key} = None\n" for key in SYSPATHS_LEFT_AT_DEFAULT)
    for salt in sorted({found.resolve() for found in tree.glob("lib*/python3*/*-packages/salt")}):
        # A tree that some package made has its package's paths.
        if not (salt / "_syspaths.py").exists():
            (salt / "_syspaths.py").write_text(SYSPATHS.format(name=name) + left, encoding="utf-8")


def relocate(tree, origin):
    """Make the scripts of a copied tree find their Python beside them, not where they came from."""
    for script, content in scripts_that_name(origin, tree):
        text = content.decode("utf-8", "surrogateescape")
        first, _, rest = text.partition("\n")
        if re.search(r"python[0-9.]*( |$)", first):
            text = HEADER + rest
        elif re.search(r"/(ba|da)?sh( |$)", first):
            text = relocated_shell(first, rest, str(origin))
        script.write_text(text, encoding="utf-8", errors="surrogateescape")
        if str(origin) in text:
            say(f"warning: bin/{script.name} still names {origin}")


def scripts_that_name(place, tree):
    """Each script in the tree's bin/ that names `place`, and what it holds."""
    for script in sorted((tree / "bin").glob("*")):
        if script.is_symlink() or not script.is_file():
            continue
        content = script.read_bytes()
        if content.startswith(b"#!") and str(place).encode() in content:
            yield script, content


def relocated_shell(first, rest, origin):
    """A shell script that asks where it is, instead of knowing."""
    find = 'SIDLE_TREE_HOME=$(readlink -f -- "$0") && SIDLE_TREE_HOME=${SIDLE_TREE_HOME%/*/*}'
    return f"{first}\n{find}\n" + rest.replace(origin, "${SIDLE_TREE_HOME}")
