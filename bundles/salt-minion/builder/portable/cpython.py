"""Compile CPython, and lay it out so that it runs from wherever it is put."""

import ast
import ctypes
import fcntl
import os
import pathlib
import pprint
import re
import shutil
import sys
import zipfile

from .. import relocate
from ..process import Refusal, attempt, run, say
from .toolchain import RUNTIME

# The minor versions of Python 3 that there is a recipe for.
MINORS = (11, 13)
# Modules that every Salt program loads: as a part of the program, as distributions have them, none of them is searched, opened and linked at each start.
STATIC = {
    "_asyncio": "_asynciomodule.c", "_bisect": "_bisectmodule.c", "_contextvars": "_contextvarsmodule.c", "_csv": "_csv.c",
    "_datetime": "_datetimemodule.c", "_heapq": "_heapqmodule.c", "_json": "_json.c", "_opcode": "_opcode.c", "_pickle": "_pickle.c",
    "_posixsubprocess": "_posixsubprocess.c", "_queue": "_queuemodule.c", "_random": "_randommodule.c", "_socket": "socketmodule.c",
    "_struct": "_struct.c", "array": "arraymodule.c", "binascii": "binascii.c", "fcntl": "fcntlmodule.c", "grp": "grpmodule.c",
    "math": "mathmodule.c", "mmap": "mmapmodule.c", "resource": "resource.c", "select": "selectmodule.c", "termios": "termios.c",
    "unicodedata": "unicodedata.c",
}
# What a start of a Salt program spends its time in: compiled twice, with counters and by the counts. The other files have half of the compiler's time.
COUNTED = ("Python/ceval.o", *(f"Python/{name}.o" for name in ("bltinmodule", "errors", "gc", "getargs", "import", "marshal", "specialize")),
           *(f"Objects/{name}.o" for name in (
               "abstract", "boolobject", "bytesobject", "call", "cellobject", "classobject", "codeobject", "descrobject", "dictobject", "enumobject",
               "exceptions", "frameobject", "funcobject", "genobject", "iterobject", "listobject", "longobject", "methodobject", "moduleobject",
               "object", "obmalloc", "setobject", "sliceobject", "tupleobject", "typeobject", "unicodectype", "unicodeobject", "weakrefobject")),
           *(f"Modules/{name}.o" for name in ("_abc", "_functoolsmodule", "_io/_iomodule", "_io/bufferedio", "_io/bytesio", "_io/fileio", "_io/iobase",
                                              "_sre/sre", "gcmodule")))
# What a terminal needs, and servers lack; and what would take a library of the machine that builds.
DISABLED = ("_curses", "_curses_panel", "_dbm", "_gdbm", "_tkinter", "nis", "ossaudiodev", "readline")
# A module whose library was not found is left out by Python's own build without an error.
REQUIRED = ("_bz2", "_ctypes", "_elementtree", "_hashlib", "_lzma", "_multiprocessing", "_posixshmem", "_socket", "_sqlite3", "_ssl",
            "_uuid", "pyexpat", "zlib")
# Salt hashes passwords with it; later Pythons do not have it.
REQUIRED_UNTIL_12 = ("_crypt", "spwd")
LEFT_OUT = ("__pycache__", "ensurepip", "idlelib", "lib2to3", "test", "tests", "tkinter", "turtledemo")
# What ./configure would find out by a program that it runs, from this process's priority (`nice`), this machine's names and its /dev/shm: as it is on hosts.
ANSWERS = {"ac_cv_broken_nice": "no", "ac_cv_buggy_getaddrinfo": "no", "ac_cv_broken_sem_getvalue": "no", "ac_cv_posix_semaphores_enabled": "yes"}
# From <sys/personality.h>.
ADDR_NO_RANDOMIZE = 0x0040000
# The first number for the directory of the build while it is trained: more than this program has open.
TRAINING_DESCRIPTOR = 200
# What pip asks whether a wheel fits: the C library of this machine is newer than that of the hosts.
MANYLINUX = """\
def manylinux_compatible(major, minor, architecture):
    return (major, minor) <= {floor}
"""


def compile_one(source, minor, sources, workshop, toolchain, prefix, toolbox, floor):
    """Fill `prefix` with bin/, lib/ and include/ of a Python."""
    say(f"compiling Python {source.version}")
    top = sources.unpack(source, workshop.directory / source.package)
    if minor == 11:
        keep_to_own_libraries(top)
        open_internals(top / "Modules" / "pyexpat.c")
    static = [f"{module} {file}" for module, file in STATIC.items()]
    (top / "Modules" / "Setup.local").write_text("\n".join(["*static*", *static, "*disabled*", *DISABLED, ""]), encoding="utf-8")
    # Modules are compiled by names of files that begin with the directory of the build.
    flags = f"{workshop.c_flags} -ffile-prefix-map={workshop.directory}=."
    workshop.run(["sh", "configure", *options(minor, workshop)], top, CFLAGS=flags, **ANSWERS)
    compile_trained(top, workshop, flags)
    lay(top, prefix, minor, workshop)
    for library in sorted((workshop.libraries / "lib").glob("*.so.*")):
        shutil.copyfile(library, prefix / "lib" / library.name, follow_symlinks=False)
    for name in RUNTIME:
        shutil.copyfile(toolchain.runtime(name), prefix / "lib" / name)
        workshop.run(["strip", "--strip-unneeded", prefix / "lib" / name], prefix)
    relocate.libraries(prefix, toolbox)
    site = prefix / "lib" / f"python3.{minor}" / "site-packages"
    site.mkdir(exist_ok=True)
    (site / "_manylinux.py").write_text(MANYLINUX.format(floor=floor), encoding="utf-8")
    check(prefix, minor, workshop)
    shutil.rmtree(top)


def compile_trained(top, workshop, flags):
    """Compile the program with counters, let it do what programs do at their start, and compile it by the counts, with its modules.

    A start of a Salt program takes 3 to 10 % less of the processor than without.
    """
    directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    held = fcntl.fcntl(directory, fcntl.F_DUPFD, TRAINING_DESCRIPTOR)
    os.close(directory)
    # A path of the same letters in every build: the program with counters names it, which moves its addresses, and objects are hashed by these.
    place = f"/proc/self/fd/{held}"
    same = {"descriptors": (held,), "PWD": place, "CFLAGS": flags}
    try:
        counters = "-fprofile-generate -fprofile-update=single"
        with open(top / "Makefile", "a", encoding="utf-8") as file:
            file.write(f"\n{' '.join(COUNTED)}: private CFLAGS_NODIST = $(CFLAGS_COUNTED)\n")
        workshop.make(top, "python", f"CFLAGS_COUNTED={counters}", f"LDFLAGS_NODIST={counters}", **same)
        # The program has run already, to compile its own modules.
        for record in list(top.rglob("*.gcda")):
            record.unlink()
        train(top, held, place)
        # What has counters is compiled anew.
        for name in COUNTED:
            (top / name).unlink(missing_ok=True)
        workshop.make(top, "CFLAGS_COUNTED=-fprofile-use -fprofile-partial-training", **same)
    finally:
        os.close(held)


def train(top, held, place):
    """Let a Python with counters run."""
    # Says that this is the directory of a build.
    (top / "pybuilddir.txt").write_text("none\n", encoding="utf-8")
    archive(top)
    variables = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONPATH": f"{place}/training.zip"}
    code = f"import ctypes, sys; sys.exit(ctypes.CDLL(None).personality({ADDR_NO_RANDOMIZE}) == -1)"
    if attempt([sys.executable, "-c", code], "cannot run this Python", "see the line above").returncode:
        say("this system lets no program have the same addresses twice: another build of this Python may have other bytes")
    run([f"{place}/python", "-s", "-S", "-B", f"{place}/training.zip"], "cannot let the compiled Python run for its profile",
        "report this: training.py must change", cwd="/", env=variables, pass_fds=(held,), preexec_fn=keep_addresses)
    (top / "pybuilddir.txt").unlink()
    if not any(top.rglob("*.gcda")):
        raise Refusal("cannot compile Python by what it does: the compiled Python has counted nothing", "report this: cpython.py must change")


def archive(top):
    """Put the standard library and the training into one file: a directory would list its files in an order of its own."""
    with zipfile.ZipFile(top / "training.zip", "w") as file:
        for path in sorted((top / "Lib").rglob("*.py")):
            name = path.relative_to(top / "Lib")
            if name.parts[0] not in LEFT_OUT:
                file.writestr(zipfile.ZipInfo(name.as_posix()), path.read_bytes())
        file.writestr(zipfile.ZipInfo("__main__.py"), pathlib.Path(__file__).with_name("training.py").read_bytes())


def keep_addresses():
    """Give the program that this process becomes the same addresses in every build, where the kernel lets it: objects are hashed by theirs."""
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)


def options(minor, workshop):
    """The options of Python's ./configure."""
    words = ["--quiet", "--prefix=/usr", "--without-ensurepip", "--with-system-expat", f"--with-openssl={workshop.libraries}",
             "--with-openssl-rpath=no", "--enable-loadable-sqlite-extensions", "--without-static-libpython", "--disable-test-modules"]
    return [*words, "--with-readline=no"] if minor >= 12 else words


def keep_to_own_libraries(top):
    """Let setup.py of Python 3.11 look for headers and libraries in the compiler's places only, not in this machine's."""
    setup = top / "setup.py"
    text = setup.read_text(encoding="utf-8")
    changed, count = re.subn(r"^( +)self\.add_multiarch_paths\(\)$", r"\1pass", text, flags=re.MULTILINE)
    changed, also = re.subn(r"^( +)add_dir_to_list\(self\.compiler\.\w+_dirs, '/usr/local/\w+'\)$", r"\1pass", changed, flags=re.MULTILINE)
    if count != 1 or also != 2:
        raise Refusal("cannot compile Python: its setup.py is not as it was", "report this: cpython.py must change")
    setup.write_text(changed, encoding="utf-8")


def open_internals(module):
    """Let a module use Python's internal headers: Debian, whose fix needs them, builds this module into the program."""
    text = module.read_text(encoding="utf-8")
    if "pycore_" in text and "Py_BUILD_CORE" not in text:
        module.write_text("#define Py_BUILD_CORE_MODULE 1\n" + text, encoding="utf-8")


def lay(top, prefix, minor, workshop):
    """Copy what `make` has built; `make install` would compile each module three times, and install tests."""
    name = f"python3.{minor}"
    library, include = prefix / "lib" / name, prefix / "include" / name
    (prefix / "bin").mkdir()
    shutil.copyfile(top / "python", prefix / "bin" / name)
    (prefix / "bin" / name).chmod(0o755)
    (prefix / "bin" / "python3").symlink_to(name)
    shutil.copytree(top / "Lib", library, ignore=shutil.ignore_patterns(*LEFT_OUT))
    shutil.copytree(top / "Include", include)
    shutil.copyfile(top / "pyconfig.h", include / "pyconfig.h")
    built = top / (top / "pybuilddir.txt").read_text(encoding="utf-8").strip()
    (library / "lib-dynload").mkdir()
    for module in sorted(built.glob("*.so")):
        shutil.copyfile(module, library / "lib-dynload" / module.name)
    for record in built.glob("_sysconfigdata*.py"):
        (library / record.name).write_text(without_directories(record.read_text(encoding="utf-8"), workshop), encoding="utf-8")
    binaries = [prefix / "bin" / name, *sorted((library / "lib-dynload").iterdir())]
    workshop.run(["strip", "--strip-unneeded", *binaries], prefix)


def without_directories(text, workshop):
    """Take the directories of the build out of the recorded variables: what is compiled later on a host has its own."""
    head, _, variables = text.partition("{")
    cleaned = {name: without_directory(value, workshop) for name, value in ast.literal_eval("{" + variables).items()}
    # Lines are broken anew: the length of a directory that is gone decided where they were.
    return f"{head}{pprint.pformat(cleaned)}\n"


def without_directory(value, workshop):
    """The same for one of them."""
    if not isinstance(value, str):
        return value
    value = re.sub(r" ?-ffile-prefix-map=[^\s'\"]+", "", value)
    value = re.sub(rf"-[IL]{re.escape(str(workshop.libraries))}/\w+ ?", "", value)
    value = value.replace(f"{workshop.libraries}", "/usr")
    return re.sub(rf"{re.escape(str(workshop.directory))}(/[\w.+-]+)*", "/usr", value)


def check(prefix, minor, workshop):
    """Refuse a Python that lacks a module or that knows where it was built."""
    required = [*REQUIRED, *(REQUIRED_UNTIL_12 if minor < 13 else ())]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    workshop.run([prefix / "bin" / "python3", "-I", "-B", "-c", code, *required], prefix, LD_LIBRARY_PATH="")
    places = [str(place).encode() for place in (workshop.directory, workshop.libraries)]
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                continue
            with open(path, "rb") as file:
                content = file.read()
            if any(place in content for place in places):
                raise Refusal(f"cannot use the compiled Python: {os.path.relpath(path, prefix)} names the directory of the build",
                              "report this: cpython.py must change")
