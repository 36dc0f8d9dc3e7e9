"""A CPython that runs on every host with an old C library, compiled once from sources and kept: SIDLE_PYTHON=portable:3.11."""

import concurrent.futures
import itertools
import pathlib
import sys

from .. import interpreter
from ..process import Refusal
from ..toolbox import TOOLS
from . import cpython, elf, libraries, sources, store, toolchain, wheels, workshop

# The C library of RHEL 7: older than that of every system that is still in use.
FLOOR = (2, 17)
NAME = "portable"
# What `portable` alone stands for, best first, by the series of Salt. The others take what Salt's own bundles take.
ORDER = {"3006": (11,), "3007": (11, 13)}
ORDER_OF_LATER_VERSIONS = (13, 11)
HERE = pathlib.Path(__file__).resolve().parent
# What each part is made by: a change in these files makes it anew.
MAKERS = {
    "libraries": ("libraries.py", "workshop.py"),
    "python": ("libraries.py", "workshop.py", "cpython.py", "training.py", "../relocate.py"),
    "wheels": ("wheels.py", "workshop.py"),
    "packages": ("toolchain.py", "../toolbox.py"),
}


def is_named(text):
    """Whether SIDLE_PYTHON asks for a portable Python."""
    return bool(text) and text.split(":")[0] == NAME


def names():
    """The portable Pythons that there are, as SIDLE_PYTHON names them."""
    return [f"{NAME}:3.{minor}" for minor in cpython.MINORS]


def offered(salt_version, named):
    """Give the Pythons that fit, best first; none of them has to be there yet."""
    minors = ORDER.get(interpreter.series(salt_version), ORDER_OF_LATER_VERSIONS)
    if named != NAME:
        if named not in names():
            raise Refusal(f"cannot build from {named}: there is no recipe for it",
                          f"set SIDLE_PYTHON to {', '.join(names())}, {NAME} (the best of these), host, or the path of a Python")
        minors = [int(named.rsplit(".", 1)[1])]
    pythons = [planned(minor) for minor in minors]
    reasons = {python.minor: interpreter.unfit(salt_version, python) for python in pythons}
    if all(reasons.values()):
        raise Refusal(f"cannot build from {named}: {next(iter(reasons.values()))}",
                      f"set SIDLE_PYTHON to {NAME}, which takes one that fits")
    return [python for python in pythons if not reasons[python.minor]]


def planned(minor):
    """A Python as it will be; until then the one that runs this program stands in for it."""
    version = sources.upstream(sources.known(f"python3.{minor}")[0])
    return interpreter.Python("cpython", minor, False, version, sys.executable, "", "", [], [])


class Builder:
    """The parts of portable trees: each is taken from the store, or made and kept there."""

    def __init__(self, toolbox):
        self.toolbox = toolbox
        self.store = store.Store((toolbox.cache or store.default_root()) / NAME)
        self.sources = sources.Sources(self.store.root / "sources", toolbox.scratch)
        self.sodium = None
        self.places = itertools.count(1)

    def python(self, planned_python):
        """Give the compiled Python; the toolbox then works with it, and with its compiler."""
        minor = planned_python.minor
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            obtained = beside.submit(self.sources.obtain, f"python3.{minor}", "libsodium", *libraries.PACKAGES)
            compiler = self.toolchain()
            source, self.sodium, *chosen = obtained.result()
        prefix, libraries_key = self.libraries(compiler, chosen)
        inputs = [*TOOLS, libraries_key, FLOOR, *described(source), *makers("python")]
        directory, key = self.store.kept(f"python3.{minor}", inputs, lambda into: self.compile_python(
            source, minor, compiler, prefix, into))
        found = interpreter.describe(str(directory / "bin" / "python3"))
        if found is None:
            raise Refusal(f"cannot run the compiled Python in {directory}", "remove this directory, and build again")
        variables = compiler.variables(self.toolbox.scratch, directory / "include" / f"python3.{minor}")
        mark = f"glibc{elf.dotted(FLOOR)}-{store.key_of([key, *makers('packages')])}"
        self.toolbox.compile_with(found.executable, variables, mark)
        return found

    def compile_python(self, source, minor, compiler, prefix, into):
        """Fill a directory with a Python. What wheels need is compiled beside it: ./configure keeps one processor busy."""
        with concurrent.futures.ThreadPoolExecutor(1) as beside:
            # Who needs it asks for it, and hears of a failure.
            beside.submit(self.sodium_archive, compiler)
            cpython.compile_one(source, minor, self.sources, self.workshop(compiler, prefix), compiler, into, self.toolbox, FLOOR)

    def toolchain(self):
        """The compiler."""
        machine = toolchain.machine()
        directory, key = self.store.kept("toolchain", [toolchain.PACKAGE, toolchain.SHA256[machine]],
                                         lambda into: toolchain.unpack(machine, into, self.toolbox))
        return toolchain.Toolchain(directory, key)

    def libraries(self, compiler, chosen):
        """The directory of the libraries that all Pythons share, and its key."""
        inputs = [compiler.key, *(word for source in chosen for word in described(source)), *makers("libraries")]
        return self.store.kept("libraries", inputs, lambda into: libraries.compile_all(
            chosen, self.sources, self.workshop(compiler), into))

    def wheels(self, pins, python):
        """A directory with the wheels that the package index lacks for the floor; None if no pin wants one."""
        version = wheels.pyzmq_version(pins)
        if not version:
            return None
        compiler = self.toolchain()
        inputs = [version, python.minor, FLOOR, compiler.key, *described(self.sodium), *makers("wheels")]
        directory, _ = self.store.kept(f"wheels-py3.{python.minor}", inputs, lambda into: wheels.make(
            version, python.minor, lambda: self.sodium_archive(compiler), self.workshop(compiler), self.toolbox, FLOOR, into))
        return directory

    def sodium_archive(self, compiler):
        """The libsodium that all wheels share."""
        inputs = [compiler.key, *described(self.sodium), *makers("wheels")]
        directory, _ = self.store.kept("libsodium", inputs, lambda into: wheels.compile_sodium(
            self.sodium, self.sources, self.workshop(compiler), into))
        return directory / wheels.SODIUM_ARCHIVE

    def workshop(self, compiler, prefix=None):
        """A place to compile in, which goes away with the build."""
        workshop.require({**workshop.PROGRAMS, **workshop.GENERATORS})
        return workshop.Workshop(compiler, self.toolbox.scratch / f"workshop-{next(self.places)}", prefix)

    def check(self, tree):
        """Refuse a tree that would not start on the floor."""
        elf.check(tree, self.toolchain().tool("readelf"), FLOOR)


def described(source):
    """What a source adds to a key."""
    return [source.package, sources.fixes_of(source), *(f"{file.name} {file.sha256}" for file in sources.files_of(source))]


def makers(part):
    """The files whose code makes a part."""
    return [HERE / name for name in MAKERS[part]]


def libraries_of(python):
    """The libraries that lie beside a portable Python's modules."""
    return sorted((pathlib.Path(python.prefix) / "lib").glob("*.so.*"))
