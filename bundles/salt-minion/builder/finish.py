"""Compile, normalise and check a filled tree."""

import os
import shutil
import stat
import subprocess

from .process import Refusal, run, say

# Zip files, and tools that make them, know no earlier time.
FIRST_ZIP_SECOND = 315532800
# Says when and from where a package was installed; nothing reads it in a tree that never changes.
INSTALLER_RECORDS = {"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json"}
# A fixed number: what a compiler wrote before leaves traces in what it writes next (which objects
# it shares), so that the shares of the work must not depend on the machine.
COMPILERS = 4
# unchecked-hash: the tree's manifest vouches for both files, and time stamps are lost on the way.
COMPILER = """
import py_compile, sys
from importlib.util import cache_from_source
for path in filter(None, sys.stdin.read().split("\\0")):
    try:
        py_compile.compile(path, cache_from_source(path, optimization=""), path, doraise=True,
                           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    except (py_compile.PyCompileError, UnicodeError):
        print(path)
"""
# Asked of the finished tree, with an empty environment and from another directory.
QUESTIONS = """
import ctypes, hashlib, lzma, os, sqlite3, ssl, sys, zlib
import salt.minion, salt.version, zmq, msgpack, yaml, jinja2
root = os.path.realpath(sys.argv[1])
paths = [os.path.realpath(p) for p in sys.path if os.path.exists(p)]
files = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
paths += [f for f in files if "python" in f.lower()]
outside = sorted({p for p in paths if not p.startswith(root + "/") and p.startswith("/")})
print(salt.version.__version__, *outside, sep="\\n")
"""


def compile_sources(tree, part=None):
    """Make every .pyc anew, of all or of a part: no time stamps, no paths of the build, the same bytes every time."""
    say("compiling")
    sources = []
    for folder, folders, names in os.walk(part or tree):
        if "__pycache__" in folders:
            shutil.rmtree(os.path.join(folder, "__pycache__"))
            folders.remove("__pycache__")
        sources += [os.path.relpath(os.path.join(folder, name), tree) for name in names if name.endswith(".py")]
    compile_files(tree, sources)


def compile_files(tree, sources):
    """Make the .pyc of these files, named relative to the tree."""
    sources = sorted(sources)
    # The interpreter is started in the tree, with relative names: those are what .pyc files keep
    # (Python puts the real path in when it loads them).
    python = [str(tree / "bin" / "python3"), "-s", "-S", "-B", "-c", COMPILER]
    workers = [
        subprocess.Popen(
            python, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
        )
        for _ in range(COMPILERS)
    ]
    for number, worker in enumerate(workers):
        worker.stdin.write("\0".join(sources[number::COMPILERS]))
        worker.stdin.close()
    failed = []
    for worker in workers:
        with worker.stdout as told:
            failed += told.read().splitlines()
    failed.sort()
    # A list, so that every worker is waited for.
    if any([worker.wait() for worker in workers]) or len(failed) > len(sources) // 10:  # noqa: C419
        raise Refusal("cannot compile the tree's modules", f"try {python[0]} by hand")
    for name in failed:
        say(f"warning: {name} does not compile with this Python, it stays as it is")


def normalise(part, seconds, tree=None):
    """Leave only plain files, directories and links that stay inside; no modes or times of the build."""
    tree = tree or part
    for folder, folders, names in os.walk(part, topdown=False):
        for name in folders + names:
            path = os.path.join(folder, name)
            if name in INSTALLER_RECORDS and folder.endswith(".dist-info"):
                os.unlink(path)
            else:
                normalise_one(path, tree, seconds)
    normalise_one(str(part), tree, seconds)


def normalise_one(path, tree, seconds):
    """Bring one entry of the tree to its plain form."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        target = os.readlink(path)
        lands = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if os.path.isabs(target) or not lands.startswith(f"{tree}/"):
            raise Refusal(f"cannot pack {path}: its link leads out of the tree, to {target}",
                          "report this: build-tree should have resolved it")
    elif stat.S_ISREG(found.st_mode):
        if found.st_nlink > 1:
            break_hard_link(path)
        os.chmod(path, 0o755 if found.st_mode & 0o111 else 0o644)
    elif stat.S_ISDIR(found.st_mode):
        os.chmod(path, 0o755)
    else:
        raise Refusal(f"cannot pack {path}: it is neither file, directory nor link", "remove it from the source")
    os.utime(path, (seconds, seconds), follow_symlinks=False)


def break_hard_link(path):
    """Replace one name of a shared file by a copy of its own."""
    copy = path + ".sidle-copy"
    shutil.copyfile(path, copy)
    shutil.copymode(path, copy)
    os.rename(copy, path)


def check(version, tree, forbidden):
    """Refuse a tree that knows where it was built, or that runs with files of the host."""
    say("checking")
    words = [str(path).encode() for path in forbidden]
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    content = file.read()
                for word in words:
                    if word in content:
                        raise Refusal(f"cannot use the tree: {os.path.relpath(path, tree)} names {word.decode()}",
                                      "build in another directory; if that is no help, report it")
    told = run([tree / "bin" / "python3", "-E", "-s", "-B", "-c", QUESTIONS, tree],
               "cannot use the tree: Salt does not start in it", "see the lines above",
               # What this machine has in Salt's extras directory is not the tree's.
               env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "SALT_EXTRAS_DIR": str(tree / "no-extras")},
               cwd="/").splitlines()
    if told[1:]:
        raise Refusal(f"cannot use the tree: its Python reads {len(told) - 1} files elsewhere, such as {told[1]}",
                      "a tree that knows its place must be given as a directory, where it was installed")
    if told[0] != version:
        raise Refusal(f"cannot use the tree: it holds Salt {told[0]}, not {version}", "set SIDLE_VERSION to it")


def summary(tree):
    """Number of files, megabytes, and how much of that is compiled."""
    sizes = [
        (name.endswith(".pyc"), os.lstat(os.path.join(folder, name)).st_size)
        for folder, _, names in os.walk(tree) for name in names
    ]
    compiled = [size for is_compiled, size in sizes if is_compiled]
    megabytes = sum(size for _, size in sizes) / 1e6
    return (f"{len(sizes)} files, {megabytes:.0f} MB, "
            f"of which .pyc {len(compiled)} files, {sum(compiled) / 1e6:.0f} MB")
