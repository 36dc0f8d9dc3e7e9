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

# The minor versions of Python 3, best first. 3006 was made for 3.10 and has pins for 3.11;
# 3007 and later were made for 3.10 and 3.11 or newer.
PREFERENCE = {"3006": (10, 11), "3007": (11, 10), "3008": (11, 12, 10)}
PREFERENCE_OF_LATER_VERSIONS = (11, 12, 10)

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

Python = collections.namedtuple(
    "Python", "implementation minor version executable prefix stdlib extensions libpython"
)


def find(salt_version, wanted):
    """The interpreter to build from: the one that was asked for, or the best that is here."""
    if wanted:
        python = describe(wanted)
        if python is None or python.implementation != "cpython":
            raise Refusal(f"cannot build from {wanted}: it is no CPython that runs here", "name another")
        if python.minor < 10:
            raise Refusal(f"cannot build from Python {python.version}: Salt's pins start at 3.10",
                          "set SIDLE_PYTHON to a newer one, or leave it unset")
        return python
    minors = PREFERENCE.get(salt_version.split(".")[0], PREFERENCE_OF_LATER_VERSIONS)
    for minor in minors:
        for candidate in candidates(minor):
            python = describe(candidate)
            if python and python.implementation == "cpython" and python.minor == minor:
                say(f"building from Python {python.version}, {python.executable}")
                return python
    looked_for = " or ".join(f"3.{minor}" for minor in minors)
    raise Refusal(f"cannot find CPython {looked_for} for Salt {salt_version}",
                  "install one (python3 of the distribution, or by pyenv), or set SIDLE_PYTHON")


def candidates(minor):
    """Paths where CPython 3.<minor> usually lives, those that move best first."""
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    newest_first = sorted(
        glob.glob(f"{glob.escape(pyenv)}/versions/3.{minor}.*/bin/python3.{minor}"),
        key=lambda path: [int(n) for n in re.findall(r"\d+", path)], reverse=True,
    )
    others = [f"/usr/local/bin/python3.{minor}", f"/usr/bin/python3.{minor}", shutil.which(f"python3.{minor}")]
    return [path for path in [*newest_first, *others] if path and os.path.exists(path)]


def describe(path):
    """What the interpreter says of itself, or None if it does not run."""
    try:
        answer = subprocess.run(
            [path, "-I", "-c", QUESTIONS], check=True, capture_output=True, text=True
        ).stdout
        return Python(**json.loads(answer))
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


def copy(python, tree, toolbox):
    """Copy program, standard library, extension modules, and the libraries they are linked to."""
    say("copying the interpreter")
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
    for library in linked_libraries([tree / "bin" / name, *(stdlib / "lib-dynload").glob("*.so")], python):
        shutil.copyfile(library, tree / "lib" / soname(library, toolbox))
    forget_prefix(python, stdlib)
    with open(stdlib / "ctypes" / "util.py", "a", encoding="utf-8") as module:
        module.write(OWN_LIBRARIES)


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
