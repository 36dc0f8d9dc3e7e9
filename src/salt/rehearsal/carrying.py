"""Carry what salt-pip has installed from one directory of extras to another, by the lists of files that pip wrote.

    copy ORIGIN TARGET KEEPER NAME…   copy these packages into a new directory
    record THEIRS                     print what is in this Python's own directory, and in THEIRS
    plan THEIRS MINOR RECORD          print what giving back would do: THEIRS belongs to the Python MINOR, RECORD is what `record` printed
    give THEIRS MINOR RECORD          do it, and print it

Directories may belong to another user, who can put links there at any time: none is followed. In `copy` what anybody else than root, this
user and KEEPER could change is refused, and so is a package that does not list its files, or lacks one of them.
"""

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import stat
import sys

MINOR = "{}.{}".format(*sys.version_info)
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LINKS_MAXIMUM = 40


class Refusal(Exception):
    """What cannot be carried, and why."""


def normalised(name):
    """Give a package's name as pip compares names."""
    return re.sub("[-_.]+", "-", name).lower()


def is_roots(found):
    """Tell whether only root can change what was found."""
    return found.st_uid == 0 and not found.st_mode & 0o022


def open_directory(path):
    """Open a directory by its path; a link is followed only where root alone can make one."""
    parts, at, links = path.split("/")[::-1], os.open("/", DIRECTORY), 0
    while parts:
        name = parts.pop()
        if name in ("", "."):
            continue
        found = os.lstat(name, dir_fd=at) if name != ".." else None
        if found and stat.S_ISLNK(found.st_mode) and is_roots(os.fstat(at)) and links < LINKS_MAXIMUM:
            links += 1
            target = os.readlink(name, dir_fd=at)
            parts += target.split("/")[::-1]
            if not target.startswith("/"):
                continue
            name = "/"
        following = os.open(name, DIRECTORY, dir_fd=at)
        os.close(at)
        at = following
    return at


class Place:
    """An open directory of extras."""

    def __init__(self, path, keeper=None):
        """Open it. Owners of what is read: root, this user, and the keeper (default: the directory's owner)."""
        self.path = path
        self.directory = open_directory(path)
        found = os.fstat(self.directory)
        self.owner = (found.st_uid, found.st_gid)
        self.owners = {0, os.geteuid(), found.st_uid if keeper is None else keeper}

    def packages(self):
        """Give the packages by their normalised names: of two with one name the one whose files are there."""
        return {name: found[0] if len(found) == 1 else self.present(name, found) for name, found in self.listed().items()}

    def listed(self):
        """Give all descriptions of packages by their normalised names: `salt-pip install --upgrade` leaves that of the earlier version."""
        known = {}
        for package in importlib.metadata.distributions(path=[self.path]):
            known.setdefault(normalised(package.metadata["Name"] or ""), []).append(package)
        return known

    def present(self, name, packages):
        """Give the one of these descriptions by which each file is as pip wrote it."""
        whole = [package for package in packages if self.is_whole(package)]
        if len(whole) != 1:
            versions = " and ".join(sorted(str(package.version) for package in packages))
            raise Refusal(f"{self.path} lists {name} as {versions}, and it cannot be told which of them is there: remove the .dist-info directory of the other")
        return whole[0]

    def is_whole(self, package):
        """Tell whether each file is as pip listed it."""
        try:
            for file in package.files or ():
                path = os.path.normpath(str(file))
                # Others are commands, which pip moves elsewhere.
                if file.hash and not path.startswith(("/", "..")) and not path.endswith(".pyc"):
                    found = hashlib.new(file.hash.mode, self.read(path)[0]).digest()
                    if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != file.hash.value:
                        return False
        except (OSError, ValueError, Refusal):
            return False
        return package.files is not None

    def within(self, parts, make=False):
        """Open a directory below this one."""
        at = os.dup(self.directory)
        for name in parts:
            made = make
            if make:
                try:
                    os.mkdir(name, 0o755, dir_fd=at)
                except FileExistsError:
                    made = False
            following = os.open(name, DIRECTORY, dir_fd=at)
            os.close(at)
            at = following
            self.check(os.fstat(at), "/".join(parts))
            if made:
                self.own(at)
        return at

    def own(self, made):
        """Give what was made here to the owner of the directory, whose salt-pip may upgrade and remove it."""
        if os.geteuid() == 0:
            os.fchown(made, *self.owner)

    def check(self, found, relative):
        """Refuse what others could have written."""
        if found.st_uid not in self.owners or found.st_mode & 0o022:
            raise Refusal(f"other users can change {self.path}/{relative}")

    def read(self, relative):
        """Give a file's content and mode."""
        *above, name = relative.split("/")
        at = self.within(above)
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        os.close(at)
        with os.fdopen(file, "rb") as opened:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode):
                raise Refusal(f"{self.path}/{relative} is no file")
            self.check(found, relative)
            return opened.read(), stat.S_IMODE(found.st_mode) & 0o755 | 0o444

    def write(self, relative, content, mode):
        """Put a file into place, whole."""
        *above, name = relative.split("/")
        at = self.within(above, make=True)
        building = f".sidle-{name}"
        try:
            os.unlink(building, dir_fd=at)
        except FileNotFoundError:
            pass
        file = os.open(building, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=at)
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fchmod(file, mode)
            self.own(file)
            os.fsync(file)
        os.rename(building, name, src_dir_fd=at, dst_dir_fd=at)
        os.close(at)

    def remove(self, relative):
        """Remove a file of a package, and its directory if that is empty then."""
        *above, name = relative.split("/")
        try:
            at = self.within(above)
            os.unlink(name, dir_fd=at)
            os.close(at)
            if above:
                at = self.within(above[:-1])
                os.rmdir(above[-1], dir_fd=at)
        except OSError:
            pass


def files_of(package, name):
    """Give the files of a package in its directory, its own description last: others are commands, which pip moves elsewhere."""
    if package.files is None:
        raise Refusal(f"{name} has no list of its files")
    files = {os.path.normpath(str(file)) for file in package.files}
    files = {file for file in files if not file.startswith(("/", "..")) and not file.endswith(".pyc")}
    return sorted(files, key=lambda file: (file.split("/")[0].endswith((".dist-info", ".egg-info")), file))


def copy_package(package, name, origin, target):
    """Copy each file of a package."""
    for file in files_of(package, name):
        try:
            content, mode = origin.read(file)
        except OSError as error:
            raise Refusal(f"{name} is damaged: {error}") from error
        target.write(file, content, mode)


def copy(origin, target, keeper, *names):
    """Copy the packages of these names into a new directory."""
    origin = Place(os.path.realpath(origin), int(keeper))
    known = origin.packages()
    os.makedirs(target)
    target = Place(os.path.realpath(target))
    for name in names:
        if name not in known:
            raise Refusal(f"{name} is not in {origin.path} any more")
        copy_package(known[name], name, origin, target)


def described(place):
    """Give version and digest of each package of a directory, if it is there."""
    found = {}
    for name, package in place.packages().items() if place else ():
        digest = hashlib.sha256()
        try:
            for file in files_of(package, name):
                digest.update(f"{file}\0".encode() + hashlib.sha256(place.read(file)[0]).digest())
        except (OSError, Refusal) as error:
            digest.update(f"damaged: {error}".encode())
        found[name] = [str(package.version), digest.hexdigest()[:32]]
    return found


def opened(path):
    """Open a directory of extras; None: it is not there."""
    try:
        return Place(path) if path else None
    except FileNotFoundError:
        return None


def own_place():
    """Give the directory of this Python; None: it lies in the release."""
    try:
        from _sidle_extras import directory
    except ImportError:
        return None
    return directory()


def record(theirs):
    """Give what is in both directories."""
    return {"place": own_place(), "ours": described(opened(own_place())), "theirs": described(opened(theirs))}


def decide(mine, his, before):
    """Sort the packages: what is given back, what was changed in both directories, what was removed from this one."""
    given, conflicts = [], []
    for name, found in sorted(mine.items()):
        if his.get(name) == found:
            continue
        if before["ours"].get(name) == found:
            # Nobody changed it; but the packaged agent has lost its own.
            if name not in his and name in before["theirs"]:
                given.append(name)
        elif name in his and his[name] != before["theirs"].get(name):
            conflicts.append(name)
        else:
            given.append(name)
    removed = [name for name in sorted(before["ours"]) if name not in mine and name in his]
    return given, conflicts, removed


def make(path):
    """Make a directory of extras, as salt-pip would, in one that is there."""
    at = open_directory(os.path.dirname(path))
    os.mkdir(os.path.basename(path), 0o755, dir_fd=at)
    os.close(at)
    return Place(path)


def replace(package, name, origin, target):
    """Copy a package, and remove what another version of it had."""
    listed = [earlier for earlier in target.listed().get(name, ()) if earlier.files is not None]
    earlier = {file for description in listed for file in files_of(description, name)}
    copy_package(package, name, origin, target)
    for file in sorted(earlier - set(files_of(package, name)), reverse=True):
        target.remove(file)


def give_back(theirs, minor, before, is_plan):
    """Give back to the packaged agent what is new here since the adoption."""
    place = own_place()
    report = {"place": place, "into": theirs, "given": [], "conflicts": [], "removed": [], "unfit": [], "failed": []}
    if place is None or os.path.realpath(place) == os.path.realpath(theirs):
        return report
    ours, target = opened(place), opened(theirs)
    mine, his = described(ours), described(target)
    given, report["conflicts"], report["removed"] = decide(mine, his, before)

    def named(name):
        return f"{name} {mine[name][0]}"

    report["conflicts"] = [named(name) for name in report["conflicts"]]
    if minor != MINOR:
        report["unfit"] = [named(name) for name in given]
        return report
    for name in given:
        try:
            if not is_plan:
                target = target or make(theirs)
                replace(ours.packages()[name], name, ours, target)
            report["given"].append(named(name))
        except (OSError, Refusal) as error:
            report["failed"].append(f"{named(name)}: {error}")
    return report


def main(act, *words):
    """Do one act."""
    os.umask(0o022)
    try:
        if act == "copy":
            copy(*words)
        elif act == "record":
            print(json.dumps(record(*words)))
        else:
            theirs, minor, before = words
            print(json.dumps(give_back(theirs, minor, json.loads(before), act == "plan")))
    except (OSError, Refusal) as error:
        sys.exit(f"ERROR: {error}")


main(*sys.argv[1:])
