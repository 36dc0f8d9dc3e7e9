"""Copy packages from one directory of extras to another, by the lists of files that pip wrote: DIRECTORY TARGET NAME…

What another user could change is refused, and so is a package that does not list its files, or lacks one of them.
"""

import importlib.metadata
import os
import re
import shutil
import stat
import sys


def normalised(name):
    """Give a package's name as pip compares names."""
    return re.sub("[-_.]+", "-", name).lower()


def refuse(cause):
    """End with a message in the form of pip's."""
    sys.exit(f"ERROR: {cause}")


def is_own(found):
    """Tell whether nobody but root and this user could have written what was found."""
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


def directories(source, origin):
    """Give the directories from a file up to the origin."""
    while source != origin:
        source = os.path.dirname(source)
        yield source


def copy(package, name, origin, target):
    """Copy each file of a package that lies in the directory: others are commands, which pip moves elsewhere."""
    if package.files is None:
        refuse(f"{name} has no list of its files")
    for file in package.files:
        source = os.path.normpath(os.path.join(origin, str(file)))
        if not source.startswith(origin + os.sep) or source.endswith(".pyc"):
            continue
        try:
            found = os.lstat(source)
        except OSError as error:
            refuse(f"{name} is damaged: {error}")
        if not is_own(found) or not all(is_own(os.lstat(directory)) for directory in directories(source, origin)):
            refuse(f"other users can change {source}")
        if not stat.S_ISREG(found.st_mode):
            refuse(f"{source} is no file")
        copied = os.path.join(target, os.path.relpath(source, origin))
        os.makedirs(os.path.dirname(copied), exist_ok=True)
        shutil.copyfile(source, copied, follow_symlinks=False)
        os.chmod(copied, stat.S_IMODE(found.st_mode) & 0o755 | 0o444)


def main(origin, target, *names):
    """Copy the packages of these names."""
    os.umask(0o022)
    origin = os.path.realpath(origin)
    known = {}
    for package in importlib.metadata.distributions(path=[origin]):
        known.setdefault(normalised(package.metadata["Name"] or ""), package)
    os.makedirs(target)
    for name in names:
        if name not in known:
            refuse(f"{name} is not in {origin} any more")
        copy(known[name], name, origin, target)


main(*sys.argv[1:])
