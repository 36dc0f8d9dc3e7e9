"""Find a CPython that fits a Salt version, and copy it without what a server never runs."""

import collections
import fnmatch
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess

from .process import Refusal, run, say

# The minor versions of Python 3 with which a series of Salt has run for longest, best first. Every other one that is
# here, and that the series has pins for, comes after them, the oldest first.
PREFERENCE = {"3006": (10, 11), "3007": (11, 10), "3008": (11, 12, 10)}
PREFERENCE_OF_LATER_VERSIONS = (11, 12, 10)
# Salt's pins start here.
OLDEST_MINOR = 10
# The last series whose minion cannot run on later Pythons than this one, although it has pins for them.
LAST_OF_OLD_LOOP = 3006
NEWEST_MINOR_OF_OLD_LOOP = 12

# SIDLE_PYTHON for a Python of this machine; `host:3.11`: of this minor version.
HOST = "host"
# The distribution's own. It gets fixes, and Debian compiles it with profiles of its use (PGO), which pyenv does not by default.
DISTRIBUTION = "/usr/bin"
# Where Pythons lie beside pyenv's and those of PATH.
PLACES = ["/usr/local/bin", DISTRIBUTION]

# Tests, windows, installers and headers: Salt's own bundle leaves them out as well.
UNWANTED = {
    "__pycache__", "config-*", "dist-packages", "EXTERNALLY-MANAGED", "ensurepip", "idlelib",
    "lib2to3", "pydoc_data", "site-packages", "sitecustomize.py", "test", "tests", "tkinter",
    "turtle.py", "turtledemo",
}
# Extension modules for tests, and those that want a library servers lack and Salt never imports.
UNWANTED_EXTENSIONS = {
    "_ctypes_test.*", "_test*", "_tkinter.*", "_xxtestfuzz.*", "nis.*", "ossaudiodev.*", "xxlimited*",
}
# These belong to the host's glibc: a second copy in one process is a crash.
GLIBC = re.compile(
    r"^(ld-linux.*|linux-vdso|linux-gate|lib(c|m|dl|pthread|rt|util|resolv|anl|mvec|nsl|nss_\w+))\.so"
)

# Asked of the interpreter itself. The map of its memory is the only honest answer to whether
# libpython is linked in: Debian's build variables say shared, its binary is not.
QUESTIONS = """
import json, os, sys, sysconfig
libpython = {line.split()[-1] for line in open("/proc/self/maps") if "/libpython" in line}
print(json.dumps({
    "implementation": sys.implementation.name,
    "minor": sys.version_info[1],
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "version": "%d.%d.%d" % sys.version_info[:3],
    "executable": os.path.realpath(sys.executable),
    "prefix": sys.base_prefix,
    "stdlib": sysconfig.get_path("stdlib"),
    "extensions": [p for p in sys.path if p.endswith("lib-dynload") and os.path.isdir(p)],
    "libpython": sorted(libpython),
}))
"""

# Salt asks for libcrypto by name when it starts, and a small host has none; a host that has one
# would lend a running minion a library that the host's next update replaces.
OWN_LIBRARIES = '''

def find_library(name, _of_host=find_library):
    """The bundle's own library of that name, or else the host's."""
    import glob, sys
    own = glob.glob(os.path.join(glob.escape(sys.prefix), "lib", f"lib{name}.so*"))
    return min(own) if own else _of_host(name)
'''

# Debian's Python looks for packages in the second one alone, which is apt's. That is compiled into it.
PACKAGES, PACKAGES_OF_DEBIAN = "site-packages", "dist-packages"

Python = collections.namedtuple(
    "Python", "implementation minor free_threaded version executable prefix stdlib extensions libpython"
)


def find(salt_version, wanted):
    """Give the interpreters to build from, best first: the one that was asked for, or each that is here and fits."""
    name, _, version = wanted.partition(":")
    if name != HOST:
        return [asked_for(salt_version, wanted)]
    found, others = [], []
    for minor, candidates in ordered(salt_version, asked_minors(version)):
        for candidate in candidates:
            python = describe(candidate)
            if python is None or python.implementation != "cpython" or python.minor != minor:
                continue
            reason = unfit(salt_version, python)
            if reason:
                others.append(reason)
            else:
                found.append(python)
                break
    if not found:
        seen = f": {'; '.join(dict.fromkeys(others))}" if others else ""
        raise Refusal(f"cannot find a CPython for Salt {salt_version}{seen}",
                      f"install one, {fitting(salt_version)} (python3 of the distribution, or by pyenv), or set SIDLE_PYTHON=portable")
    return found


def asked_for(salt_version, path):
    """Give the interpreter at `path`, or say why it cannot be used."""
    python = describe(path)
    if python is None or python.implementation != "cpython":
        raise Refusal(f"cannot build from {path}: it is no CPython that runs here", "name another")
    reason = unfit(salt_version, python)
    if reason:
        raise Refusal(f"cannot build from {path}: {reason}",
                      f"set SIDLE_PYTHON to another, {fitting(salt_version)}, or leave it unset")
    return python


def unfit(salt_version, python):
    """Say why this Salt cannot run on this Python; None: nothing is known against it."""
    name = f"Python {python.version}"
    if python.minor < OLDEST_MINOR:
        return f"{name} is too old: Salt's pins start at 3.{OLDEST_MINOR}"
    if python.free_threaded:
        return f"{name}, {python.executable}, is a free-threaded build, for which Salt's pins have no packages"
    if is_of_old_loop(salt_version) and python.minor > NEWEST_MINOR_OF_OLD_LOOP:
        return (f"Salt {salt_version} cannot run on {name}: its old tornado does not work with the event loop of "
                f"3.{NEWEST_MINOR_OF_OLD_LOOP + 1} and later, and the minion would never sign in")
    return None


def fitting(salt_version):
    """The Pythons that may be used, in words."""
    if is_of_old_loop(salt_version):
        return f"3.{OLDEST_MINOR} to 3.{NEWEST_MINOR_OF_OLD_LOOP}"
    return f"3.{OLDEST_MINOR} or newer"


def series(salt_version):
    """The part of a version that names its series: `3007`."""
    return salt_version.split(".")[0]


def is_of_old_loop(salt_version):
    """Whether Salt brings its own, old tornado."""
    number = re.match(r"\d+", series(salt_version))
    return bool(number) and int(number.group()) <= LAST_OF_OLD_LOOP


def asked_minors(version):
    """The minor versions of Python to look for: that of `3.11`, or each that is here."""
    if not version:
        return minors_here()
    number = re.fullmatch(r"3\.(\d+)", version)
    if not number:
        raise Refusal(f"cannot build from {HOST}:{version}: it names no minor version of Python",
                      f"set SIDLE_PYTHON to {HOST}, or to {HOST}:3.11 or the like")
    return [int(number.group(1))]


def ordered(salt_version, minors):
    """Sort minor versions, best first, with the programs of each: those that Salt prefers, of them the distribution's, come first."""
    best = PREFERENCE.get(series(salt_version), PREFERENCE_OF_LATER_VERSIONS)
    preferred = [minor for minor in best if minor in minors]
    found = {minor: programs(minor) for minor in preferred + sorted(set(minors) - set(best))}
    own = {minor: f"{DISTRIBUTION}/python3.{minor}" for minor in preferred}
    first = [(minor, [path]) for minor, path in own.items() if path in found[minor]]
    return first + list(found.items())


def minors_here():
    """Each minor version of Python 3 of which something is here, old ones left out."""
    names = [os.path.basename(path) for path in programs("*")]
    numbers = (re.fullmatch(r"python3\.(\d+)", name) for name in names)
    return sorted({int(number.group(1)) for number in numbers if number and int(number.group(1)) >= OLDEST_MINOR})


def programs(minor):
    """Give the paths of `python3.<minor>`: pyenv's, the newest first, then those of the usual directories and of PATH."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    newest_first = sorted(
        glob.glob(f"{glob.escape(pyenv)}/versions/3.{minor}.*/bin/python3.{minor}"),
        key=lambda path: [int(n) for n in re.findall(r"\d+", path)], reverse=True,
    )
    places = [*PLACES, *os.environ.get("PATH", os.defpath).split(":")]
    others = [path for place in places if place for path in glob.glob(f"{glob.escape(place)}/python3.{minor}")]
    return list(dict.fromkeys(path for path in [*newest_first, *others] if os.path.exists(path)))


def describe(path):
    """What the interpreter says of itself, or None if it does not run."""
    try:
        answer = subprocess.run(
            [path, "-I", "-c", QUESTIONS], check=True, capture_output=True, text=True
        ).stdout
        return Python(**json.loads(answer))
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


def copy(python, tree, toolbox, own_libraries=()):
    """Copy program, standard library, extension modules, and their libraries: `own_libraries`, or what they are linked to."""
    say(f"copying Python {python.version}, {python.executable}")
    name = f"python3.{python.minor}"
    stdlib = tree / "lib" / name
    (tree / "bin").mkdir()
    shutil.copyfile(python.executable, tree / "bin" / name)
    os.chmod(tree / "bin" / name, 0o755)
    os.symlink(name, tree / "bin" / "python3")
    # Debian names some modules twice, by links; one of them leads to /etc. Copies do no harm.
    shutil.copytree(python.stdlib, stdlib, ignore=unwanted, dirs_exist_ok=True)
    for directory in python.extensions:
        shutil.copytree(directory, stdlib / "lib-dynload", ignore=unwanted, dirs_exist_ok=True)
    programs = [tree / "bin" / name, *(stdlib / "lib-dynload").glob("*.so")]
    for library in own_libraries or linked_libraries(programs, python):
        shutil.copyfile(library, tree / "lib" / soname(library, toolbox))
    forget_prefix(python, stdlib)
    keep_packages_where_others_do(tree, stdlib)
    prefer_own_libraries(tree)


def keep_packages_where_others_do(tree, stdlib):
    """Let a tree have its packages where people and programs look for them: for Debian's Python, a link leads there."""
    if packages_path(tree).name == PACKAGES_OF_DEBIAN:
        (stdlib / PACKAGES).mkdir()
        (stdlib / PACKAGES_OF_DEBIAN).symlink_to(PACKAGES)


def packages_path(tree):
    """Where the tree's own Python looks for packages, as it says itself."""
    told = run([tree / "bin" / "python3", "-I", "-S", "-c", "import site; print(site.getsitepackages()[-1])"],
               "cannot run the copied interpreter", "build on the system that the interpreter came from")
    return pathlib.Path(told.strip())


def prefer_own_libraries(tree):
    """Let the tree's Python find its own libraries by their names, before the host's."""
    for module in sorted(tree.glob("lib*/python3*/ctypes/util.py")):
        text = module.read_text(encoding="utf-8")
        if OWN_LIBRARIES not in text:
            module.write_text(text + OWN_LIBRARIES, encoding="utf-8")


def unwanted(directory, names):
    """For copytree: what of `names` stays behind."""
    patterns = UNWANTED_EXTENSIONS if directory.endswith("lib-dynload") else UNWANTED
    return {name for pattern in patterns for name in fnmatch.filter(names, pattern)}


def linked_libraries(programs, python):
    """Files of the host that `programs` are linked to, without those of glibc."""
    environment = dict(os.environ, LC_ALL="C")
    # The copy has lost the directory that its libpython is found in.
    environment["LD_LIBRARY_PATH"] = ":".join(os.path.dirname(path) for path in python.libpython)
    told = run(["ldd", *programs], "cannot read what the interpreter is linked to",
               "install ldd (libc-bin)", env=environment)
    missing = sorted(set(re.findall(r"^\s+(\S+) => not found", told, re.MULTILINE)))
    if missing:
        raise Refusal(f"cannot copy {python.executable}: this machine lacks {', '.join(missing)}",
                      "install the package that has them, or set SIDLE_PYTHON to another interpreter")
    found = dict(re.findall(r"^\s+(\S+) => (/\S+) \(", told, re.MULTILINE))
    return [pathlib.Path(path) for name, path in sorted(found.items()) if not GLIBC.match(name)]


def soname(library, toolbox):
    """The name under which programs ask for a library; its file often has a longer one."""
    return toolbox.patchelf("--print-soname", library.resolve()) or library.name


def forget_prefix(python, stdlib):
    """Take the builder's own directories out of the recorded build variables."""
    if python.prefix == "/usr":
        return
    for record in stdlib.glob("_sysconfigdata*.py"):
        text = record.read_text(encoding="utf-8")
        record.write_text(text.replace(python.prefix, "/usr"), encoding="utf-8")
