"""Put Salt and its pinned packages into a tree, out of wheels."""

import concurrent.futures
import hashlib
import os
import re
import shutil
import tarfile
import zipfile

from . import interpreter
from .interpreter import OLDEST_MINOR
from .process import Refusal, say

# timelib has no wheels; Salt only uses it to read dates in free text.
PINS_THAT_NEED_A_COMPILER = {"timelib"}
# Backports of what Python has had since 3.7. From this minor version on there are no wheels of them.
BACKPORTS = {"contextvars", "immutables"}
FIRST_MINOR_WITHOUT_BACKPORTS = 14
# The list of root certificates: its pinned day is soon gone, and a newer one is never worse.
LOOSENED_PINS = {"certifi"}
# `salt-pip` needs a pip in the tree; Salt's pins do not name one.
ADDED_PINS = ["pip==24.3.1"]
# Salt hashes passwords with Python's module crypt (`shadow.gen_password`, `user.present` with `hash_password`), which is gone since 3.13. Salt
# would take passlib then, but its hashes have other rounds: `user.present` would set the password anew at each highstate.
CRYPT_PIN = "legacycrypt==0.3"
LAST_MINOR_WITH_CRYPT = 12
CRYPT = '''\
"""The module crypt of Python 3.12: libcrypt, called by legacycrypt."""
import sys

import legacycrypt

sys.modules[__name__] = legacycrypt
'''
# Windows launchers, and tests of packages (the list is the one of Salt's own bundle).
USELESS_FILES = ["**/*.exe", "test", "tests", "*/test", "*/tests"]


def choose(version, pythons, toolbox):
    """Give the first of the interpreters that Salt's sdist has pins for, and the sdist; the toolbox then works with it."""
    toolbox.use(pythons[0].executable)
    sdist = fetched(version, toolbox)
    pinned = pinned_minors(sdist, version)
    for python in pythons:
        if python.minor in pinned:
            toolbox.use(python.executable)
            return python, sdist
    there = " and ".join(python.version for python in pythons)
    usable = ", ".join(f"3.{minor}" for minor in pinned)
    raise Refusal(f"cannot install Salt {version} on Python {there}: it has no pins for it",
                  f"install one of Python {usable}, or set SIDLE_PYTHON to one")


def fetched(version, toolbox):
    """Give the path of Salt's sdist, downloaded if it is not kept."""
    release = f"salt-{version}"
    return toolbox.kept(f"{release}-sdist", lambda into: download(version, into, toolbox)) / f"{release}.tar.gz"


def pinned_minors(sdist, version):
    """Give the minor versions of Python that the sdist has pins for, as sorted numbers, old ones left out."""
    with tarfile.open(sdist) as archive:
        names = "\n".join(archive.getnames())
    found = re.findall(rf"^{re.escape(pins_directory(version))}/py3\.(\d+)/linux\.(?:lock|txt)$", names, re.MULTILINE)
    return sorted({int(minor) for minor in found if int(minor) >= OLDEST_MINOR})


def pins_directory(version):
    """The directory of the pins in an sdist."""
    return f"salt-{version}/requirements/static/pkg"


def install(version, sdist, python, tree, toolbox, own_wheels=lambda _pins: None):
    """Install Salt `version` with the pins that its sdist carries for this Python.

    `own_wheels(pins)` gives a directory with wheels that the package index lacks, or None.
    """
    pins = read_pins(sdist, version, python, compiles=bool(toolbox.mark))
    digest = hashlib.sha256("\n".join(pins).encode()).hexdigest()[:8]
    wheels = toolbox.kept("-".join(filter(None, [f"salt-{version}-wheels-py3.{python.minor}-{digest}", toolbox.mark])),
                          lambda into: make_wheels(sdist, pins, into, toolbox, own_wheels(pins)))
    site = site_directory(tree)
    for wheel in sorted(wheels.glob("*.whl")):
        unpack_wheel(wheel, site)
    # What the `package` grain says; Salt asks packagers to set it.
    (site / "salt" / "_pkg.txt").write_text("onedir\n", encoding="utf-8")
    if lacks_crypt(python.minor):
        (site / "crypt.py").write_text(CRYPT, encoding="utf-8")
    for pattern in USELESS_FILES:
        for path in sorted(site.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def lacks_crypt(minor):
    """Whether Python 3.<minor> has no module crypt any more."""
    return minor > LAST_MINOR_WITH_CRYPT


def download(version, into, toolbox):
    """Fetch Salt's sdist."""
    say(f"downloading salt {version}")
    toolbox.pip(
        ["download", "--quiet", "--no-deps", "--no-build-isolation", "--no-binary", "salt",
         "--dest", into, f"salt=={version}"],
        f"cannot download salt {version}",
        "check the version, and that this machine reaches a package index",
    )
    if not (into / f"salt-{version}.tar.gz").is_file():
        raise Refusal(f"cannot download salt {version}: the index gave no salt-{version}.tar.gz",
                      "write the version as it was published, such as 3007.17")


def read_pins(sdist, version, python, compiles=False):
    """Give Salt's pins for this Python, for which it has some: `name==version` lines, adjusted as this file's top says."""
    base = pins_directory(version)
    with tarfile.open(sdist) as archive:
        names = set(archive.getnames())
        places = (f"{base}/py3.{python.minor}/linux.lock", f"{base}/py3.{python.minor}/linux.txt")
        path = next(path for path in places if path in names)
        with archive.extractfile(path) as file:
            text = file.read().decode("utf-8")
    added = [*ADDED_PINS, CRYPT_PIN] if lacks_crypt(python.minor) else ADDED_PINS
    return [*adjusted(text.splitlines(), python.minor, compiles), *added]


def adjusted(lines, minor, compiles=False):
    """Give the requirements in `lines` for Python 3.<minor>, without comments, skipped ones and loosened versions."""
    skipped = BACKPORTS if minor >= FIRST_MINOR_WITHOUT_BACKPORTS else set()
    if not compiles:
        skipped = skipped | PINS_THAT_NEED_A_COMPILER
    for line in lines:
        pin = line.split(" #")[0].split(" --hash")[0].strip()
        if not pin or pin.startswith(("#", "-")):
            continue
        name = re.match(r"[A-Za-z0-9._-]+", pin).group().lower()
        if name not in skipped:
            yield name if name in LOOSENED_PINS else pin


def make_wheels(sdist, pins, into, toolbox, links):
    """One wheel per pin, downloaded or built, and one of Salt itself; `links` has wheels of our own."""
    say(f"collecting {len(pins)} packages, and building Salt's wheel")
    remedy = "look at pip's last lines; a missing wheel may need a compiler and python3-dev"
    requirements = toolbox.scratch / "pins.txt"
    requirements.write_text("\n".join(pins) + "\n", encoding="utf-8")
    # Each keeps one processor busy.
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        salts = beside.submit(
            toolbox.pip, ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", into, sdist],
            "cannot build Salt's wheel", remedy,
        )
        toolbox.pip(
            ["wheel", "--quiet", "--no-deps", "--wheel-dir", into, "--requirement", requirements,
             *(["--find-links", links] if links else [])],
            "cannot collect Salt's packages", remedy,
        )
        salts.result()


def site_directory(tree):
    """The directory of the tree's packages, made if it is not there; where Debian's Python looks, a link may lead to it."""
    told = interpreter.packages_path(tree)
    site = tree / os.path.relpath(told, tree)
    if tree not in site.parents:
        raise Refusal(f"cannot use the copied interpreter: it looks for packages in {told}",
                      "set SIDLE_PYTHON to another one")
    site.mkdir(parents=True, exist_ok=True)
    return site.resolve()


def unpack_wheel(wheel, site):
    """Unzip the modules of a wheel; its scripts and data files are not for this tree."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = member.filename
            place = re.match(r"[^/]+\.data/(\w+)/", name)
            if name.endswith("/") or (place and place.group(1) not in ("purelib", "platlib")):
                continue
            target = site / (name[place.end():] if place else name)
            if site not in target.resolve().parents:
                raise Refusal(f"cannot unpack {wheel.name}: {name} leaves its directory", "throw it away")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))
            target.chmod(0o755 if member.external_attr >> 16 & 0o111 else 0o644)
