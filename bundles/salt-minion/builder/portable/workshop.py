"""Run configure, make and the compiler as on a host with an old C library; nothing of this machine's compiler or libraries takes part."""

import os
import pathlib
import shutil

from ..process import Refusal, run
from .toolchain import machine

# The names under which Makefiles ask for what the toolchain calls TRIPLET-NAME.
TOOLS = ("ar", "as", "g++", "gcc", "ld", "nm", "objcopy", "ranlib", "readelf", "strip")
ALIASES = {"cc": "gcc", "c++": "g++"}
# No debug information: it is large, and names the directory of the build. The rest is what distributions compile with.
C_FLAGS = "-g0 -fstack-protector-strong -D_FORTIFY_SOURCE=2"
LINKER_FLAGS = "-Wl,-z,relro -Wl,-z,now"
# What else a build asks this machine for, and the Debian package that has it.
PROGRAMS = {"make": "make", "patch": "patch", "perl": "perl"}
GENERATORS = {"autoreconf": "autoconf", "aclocal": "automake", "libtoolize": "libtool"}


class Workshop:
    """The compiler and the environment of a build; `libraries` is where headers and libraries of earlier builds are."""

    def __init__(self, toolchain, directory, libraries=None):
        self.directory = pathlib.Path(directory)
        self.libraries = libraries
        self.machine = machine()
        self.c_flags, self.linker_flags = C_FLAGS, LINKER_FLAGS
        self.programs = self.directory / "bin"
        self.programs.mkdir(parents=True)
        for name in [*TOOLS, *ALIASES]:
            os.symlink(toolchain.tool(ALIASES.get(name, name)), self.programs / name)

    def environment(self, **more):
        """The variables of a build: none of the caller's flags, and this machine's own libraries out of sight."""
        path = f"{self.programs}:{os.environ.get('PATH', os.defpath)}"
        variables = {
            "PATH": path, "HOME": str(self.directory), "TMPDIR": str(self.directory), "LC_ALL": "C.UTF-8", "TZ": "UTC",
            "CC": "gcc", "CXX": "g++", "CC_FOR_BUILD": "gcc", "AR": "ar", "RANLIB": "ranlib", "CFLAGS": f"-O2 {C_FLAGS}",
            "LDFLAGS": LINKER_FLAGS, "PKG_CONFIG": "false", "SOURCE_DATE_EPOCH": "315532800", "PYTHONHASHSEED": "0",
        }
        if self.libraries:
            variables["CPPFLAGS"] = f"-I{self.libraries}/include"
            variables["LDFLAGS"] = f"-L{self.libraries}/lib {LINKER_FLAGS}"
            # Programs that a build runs as soon as it has linked them.
            variables["LD_LIBRARY_PATH"] = f"{self.libraries}/lib"
        return {**variables, **more}

    def run(self, words, directory, descriptors=(), **variables):
        """Run one step in the directory of a source; `descriptors` stay open in it."""
        return run(words, f"cannot compile {pathlib.Path(directory).name}: {' '.join(map(str, words))[:120]}",
                   "see the lines above; report them with the line of sources.py", cwd=directory, pass_fds=descriptors,
                   env=self.environment(**variables))

    def make(self, directory, *targets, jobs=None, **variables):
        """Run make with a job for each processor."""
        return self.run(["make", f"-j{jobs or processors()}", *targets], directory, **variables)


def processors():
    """How many processes this build may keep busy."""
    return len(os.sched_getaffinity(0))


def require(programs):
    """Refuse to begin a build that would fail for want of a program."""
    missing = [name for name in programs if not shutil.which(name)]
    if missing:
        packages = " ".join(dict.fromkeys(programs[name] for name in missing))
        raise Refusal(f"cannot compile a portable Python: this machine lacks {', '.join(missing)}",
                      f"on Debian and Ubuntu: apt-get install {packages}")
