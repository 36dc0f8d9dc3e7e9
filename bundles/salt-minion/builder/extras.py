"""Install a recipe's extras into a tree: pip resolves them once, into a lock with hashes; builds take what the lock names."""

import collections
import email.parser
import json
import platform
import re
import shutil
import zipfile

from . import needs
from .packages import site_directory, unpack_wheel
from .process import Refusal, failed, run, say

# The first line of a lock: a later form has another number.
LOCK_HEAD = "# sidle lock 1"
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.!+_-]*")
LOCKED = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>\S+) --hash=sha256:(?P<sha256>[0-9a-f]{64})")
REMEDY = "correct the extra in the recipe's [build], or leave it out"
LOCK_REMEDY = "run `sidle pack --lock` with the recipe, this version and the same --base, if there is one, and look at what changed in the lock"

Locked = collections.namedtuple("Locked", "name version sha256")


def normalised(name):
    """A package's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(text):
    """The extras in SIDLE_EXTRAS, each `NAME==VERSION`."""
    extras = text.split()
    for extra in extras:
        if not PIN.fullmatch(extra):
            raise Refusal(f"cannot add the extra {extra}: it is not NAME==VERSION", "name one version: \"saltext-vault==1.8.0\"")
    return extras


def python_of(tree):
    """The tree's Python and this machine, as a lock names them."""
    told = run([tree / "bin" / "python3", "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
               "cannot run the tree's Python", "build on a system that the tree starts on")
    return f"python {told.strip()} linux-{platform.machine()}"


def packages_of(tree, but=()):
    """The packages that a tree has, without some: normalised name to its metadata."""
    found = {}
    for file in sorted(site_directory(tree).glob("*.dist-info/METADATA")):
        metadata = email.parser.Parser().parsestr(file.read_text(encoding="utf-8", errors="replace"))
        if metadata["Name"] and normalised(metadata["Name"]) not in but:
            found[normalised(metadata["Name"])] = metadata
    return found


def lock(tree, extras, path, toolbox, floor=None, but=()):
    """Write the lock: what pip takes for these extras beside the tree's packages, none of which may change. `but`: the tree's own extras, which go."""
    say(f"resolving {len(extras)} extras")
    there = packages_of(tree, but)
    refuse_own(extras, there)
    stubs = toolbox.scratch / "stubs"
    stubs.mkdir()
    constraints = toolbox.scratch / "constraints.txt"
    constraints.write_text("".join(f"{name} @ {stub(metadata, stubs).as_uri()}\n" for name, metadata in there.items()), encoding="utf-8")
    report = toolbox.scratch / "report.json"
    done = toolbox.pip_of(tree, ["install", "--dry-run", "--ignore-installed", "--no-build-isolation", "--report", report,
                                 "--constraint", constraints, *extras], floor)
    if done.returncode:
        raise explained(done, there, python_of(tree))
    chosen = json.loads(report.read_text(encoding="utf-8"))["install"]
    refuse_other_spelling(extras, chosen)
    lines = [LOCK_HEAD, f"# {python_of(tree)}", *(f"# extra {extra}" for extra in sorted(extras))]
    lines += sorted(map(pinned, (item for item in chosen if not item["download_info"]["url"].startswith(stubs.as_uri()))))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    say(f"locked {len(lines) - 2 - len(extras)} packages")


def refuse_own(extras, there):
    """Refuse extras that the release has without them."""
    for extra in extras:
        name, _, version = extra.partition("==")
        own = there.get(normalised(name))
        if own is None:
            continue
        if without_zeros(own["Version"]) == without_zeros(version):
            raise Refusal(f"cannot add the extra {extra}: the release has {own['Name']} {own['Version']} of its own", "leave it out")
        raise Refusal(f"cannot add the extra {extra}: the release has {own['Name']} {own['Version']} of its own, which an extra may not change",
                      "leave it out, or take a release of Salt that has the other version")


def refuse_other_spelling(extras, chosen):
    """Refuse an extra whose package spells its version otherwise (1.8 and 1.8.0): recipe, lock and manifest are compared letter by letter."""
    versions = {normalised(item["metadata"]["name"]): item["metadata"]["version"] for item in chosen}
    for extra in extras:
        name, _, version = extra.partition("==")
        spelled = versions.get(normalised(name), version)
        if spelled != version:
            raise Refusal(f"cannot lock the extra {extra}: the package spells this version {spelled}", f"write \"{name}=={spelled}\" in the recipe")


def without_zeros(version):
    """A version without the zeros at its end, which do not count."""
    return re.sub(r"(\.0+)+$", "", version)


def pinned(item):
    """A line of the lock for one package of pip's report."""
    name, version = normalised(item["metadata"]["name"]), item["metadata"]["version"]
    sha256 = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
    if not sha256:
        raise Refusal(f"cannot lock {name} {version}: the index names no SHA-256 of it", "take it from another index")
    return f"{name}=={version} --hash=sha256:{sha256}"


def stub(metadata, directory):
    """A wheel without content that stands for a package of the tree: pip cannot choose another version of it."""
    name, version = re.sub(r"[-_.]+", "_", metadata["Name"]), metadata["Version"]
    path = directory / f"{name}-{version}-py3-none-any.whl"
    # What it needs is there, whatever it says; only its own extras are left to be asked for.
    lines = ["Metadata-Version: 2.1", f"Name: {metadata['Name']}", f"Version: {version}"]
    lines += [f"Provides-Extra: {extra}" for extra in metadata.get_all("Provides-Extra") or ()]
    lines += [f"Requires-Dist: {need}" for need in metadata.get_all("Requires-Dist") or ()
              if metadata["Name"].lower() != "salt" and re.search(r";.*\bextra\b", need)]
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "\n".join(lines) + "\n\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: sidle\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def explained(done, there, python):
    """The refusal of extras that pip cannot resolve, in words for the causes that are known."""
    text = f"{done.stdout}\n{done.stderr}"
    for name, version, need, range_ in re.findall(r"^\s*(\S+) (\S+) depends on ([A-Za-z0-9._-]+)(?:\[\S*\])?([^;\s]*)", text, re.MULTILINE):
        metadata = there.get(normalised(need))
        if metadata:
            return Refusal(f"cannot add the extra {normalised(name)} {version}: it needs {need}{range_}, and the release has "
                           f"{metadata['Name']} {metadata['Version']}, which an extra may not change",
                           "take a version of the extra that fits, or a release of Salt that has the other package")
    missing = re.search(r"No matching distribution found for ([A-Za-z0-9._-]+)==(\S+)", text)
    if missing:
        name, version = missing.groups()
        ignored = re.search(rf"[:;] {re.escape(version)} Requires-Python ([^;\n]+)", text)
        if ignored:
            return different_python(f"{name} {version}", ignored.group(1).strip(), python)
        return Refusal(f"cannot add the extra {name} {version}: the index has no such version that fits {python}",
                       f"`pip index versions {name}` lists what there is")
    newer = re.search(r"Package '?([^' ]+)'? requires a different Python: \S+ not in '([^']+)'", text)
    if newer:
        return different_python(newer.group(1), newer.group(2), python)
    return failed(done, "cannot resolve the extras", REMEDY)


def different_python(name, needs, python):
    """The refusal of an extra that another Python would run."""
    return Refusal(f"cannot add the extra {name}: it needs Python {needs}, and the tree has {python}",
                   "build the release from another Python (SIDLE_PYTHON), or take an older version of the extra")


def read_lock(path, extras, python):
    """The packages of a lock that was made for these extras and this Python."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Refusal(f"cannot add the extras: there is no lock of their hashes, {path.name}: {error.strerror}",
                      "write it with `sidle pack --lock`, beside the recipe") from error
    if not lines or lines[0] != LOCK_HEAD:
        raise Refusal(f"cannot read the lock {path.name}: it does not begin with `{LOCK_HEAD}`", LOCK_REMEDY)
    locked, made_for, locked_extras = [], None, []
    for number, line in enumerate(lines[1:], 2):
        fields = LOCKED.fullmatch(line)
        if fields:
            locked.append(Locked(**fields.groupdict()))
        elif line.startswith("# extra "):
            locked_extras.append(line.removeprefix("# extra "))
        elif line.startswith("# python "):
            made_for = line.removeprefix("# ")
        elif line and not line.startswith("#"):
            raise Refusal(f"cannot read the lock {path.name}: line {number} is not NAME==VERSION --hash=sha256:…", LOCK_REMEDY)
    if made_for != python:
        raise Refusal(f"cannot use the lock {path.name}: it was made for {made_for}, and the tree has {python}", LOCK_REMEDY)
    differ = sorted(set(locked_extras) ^ set(extras))
    if differ:
        raise Refusal(f"cannot use the lock {path.name}: recipe and lock differ in {', '.join(differ)}", LOCK_REMEDY)
    names = {f"{package.name}=={package.version}" for package in locked}
    missing = [extra for extra in extras if not any(same(extra, name) for name in names)]
    if missing:
        raise Refusal(f"cannot use the lock {path.name}: it has no hash of {', '.join(missing)}", LOCK_REMEDY)
    return locked


def same(one, other):
    """Whether two pins name the same package and version."""
    (name, _, version), (of, _, number) = one.partition("=="), other.partition("==")
    return normalised(name) == normalised(of) and version == number


def install(tree, extras, path, toolbox, floor=None):
    """Install what the lock names, by its hashes; give for each package its name, version, hash and files."""
    locked = read_lock(path, extras, python_of(tree))
    there = packages_of(tree)
    clash = [package for package in locked if package.name in there]
    if clash:
        raise Refusal(f"cannot use the lock {path.name}: the release has {clash[0].name} "
                      f"{there[clash[0].name]['Version']} of its own, and an extra may not change it", LOCK_REMEDY)
    say(f"adding {len(locked)} packages for {len(extras)} extras")
    site, added = site_directory(tree), []
    for number, package in enumerate(locked):
        added.append(install_one(package, extras, site, tree, toolbox, toolbox.scratch / f"extra-{number}", floor))
    # A lock may have been made beside another tree.
    needs.refuse_unmet(tree, site, [package.name for package in locked], toolbox, LOCK_REMEDY)
    return added


def install_one(package, extras, site, tree, toolbox, into, floor):
    """Fetch or build one wheel, by its hash, and unpack it; nothing that is there may be written over."""
    pin = f"{package.name}=={package.version}"
    requirement = toolbox.scratch / "locked.txt"
    requirement.write_text(f"{pin} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    # Its own requirements have lines of their own, and what builds it is among the tools: nothing else is asked for.
    done = toolbox.pip_of(tree, ["wheel", "--no-deps", "--no-build-isolation", "--require-hashes", "--wheel-dir", into,
                                 "--requirement", requirement], floor)
    got = re.search(r"Got\s+([0-9a-f]{64})", done.stdout + done.stderr)
    if done.returncode and got:
        raise Refusal(f"cannot add {pin}: its SHA-256 is {got.group(1)}, and the lock has {package.sha256}",
                      "the index gives another file than the one that was locked: find out why before you lock it anew")
    if done.returncode:
        raise failed(done, f"cannot add {pin}", LOCK_REMEDY)
    wheel = next(iter(sorted(into.glob("*.whl"))))
    with zipfile.ZipFile(wheel) as archive:
        names = [re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name) for name in archive.namelist() if not name.endswith("/")]
    for name in names:
        if (site / name).exists():
            raise Refusal(f"cannot add {pin}: the tree has a file {name} already", REMEDY)
    unpack_wheel(wheel, site)
    shutil.rmtree(into)
    files = sorted(name for name in names if (site / name).is_file())
    return {"name": package.name, "version": package.version, "sha256": package.sha256,
            "requested": any(same(extra, pin) for extra in extras), "files": files}
