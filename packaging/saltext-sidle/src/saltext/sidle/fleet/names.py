"""Names that a caller gives to the runner, checked as sidle itself checks them (`src/name.rs`, `src/version.rs`) before anything happens."""

import re

#: Longest names, as sidle has them.
PACKAGE_CHARACTERS, VERSION_CHARACTERS, ROLLOUT_CHARACTERS = 64, 48, 128

#: A minion's id is a part of paths: no file system has longer names.
MINION_CHARACTERS = 255

#: What sidle's directories use beside packages.
RESERVED = ("adopt", "instances", "trust")

#: A wrong name is shown up to here.
SHOWN_CHARACTERS = 80


class WrongName(ValueError):
    """A name that cannot be used: the message says which, and what can be given."""


def package(name):
    """Returns the name of a package. Raises `WrongName`."""
    _check(name, is_package(name), "a package", "letters a-z, digits, '.', '_', '+' and '-', at most 64, as in salt-minion")
    return name


def release(name):
    """Returns a release, as text. Raises `WrongName`."""
    _check(name, is_release(name), "a release", "a version, a hyphen and a revision from 1 on, as in 3007.17-1")
    return name


def rollout(name):
    """Returns the name of a rollout. Raises `WrongName`."""
    _check(name, is_rollout(name), "the name of a rollout", "letters, digits, '.', '_' and '-', and no more than 128")
    return name


def minion(name):
    """Returns the id of a minion. Raises `WrongName`."""
    _check(name, is_minion(name), "the id of a minion", "no path, no control characters, and no more than 255 characters")
    return name


def is_package(name):
    """Returns whether sidle takes this as the name of a package."""
    return isinstance(name, str) and name not in RESERVED and bool(re.fullmatch(r"[a-z0-9][a-z0-9._+-]{0,63}", name))


def is_rollout(name):
    """Returns whether sidle takes this as the id of a rollout."""
    return isinstance(name, str) and bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name))


def is_minion(name):
    """Returns whether a minion may have this id, and a directory this name."""
    return isinstance(name, str) and 0 < len(name) <= MINION_CHARACTERS and name[0] != "." and name.isprintable() and not set(name) & {"/", "\\"}


def is_release(name):
    """Returns whether sidle takes this as a release."""
    if not isinstance(name, str) or len(name) > VERSION_CHARACTERS + len("-4294967295"):
        return False
    version, _, revision = name.rpartition("-")
    return bool(re.fullmatch(r"[1-9][0-9]*", revision)) and int(revision) < 2**32 and _is_version(version)


def _is_version(text):
    found = re.fullmatch(r"((?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){0,2})([^0-9.].*)?", text)
    if not found or len(text) > VERSION_CHARACTERS or any(int(number) >= 2**64 for number in found[1].split(".")):
        return False
    # As semver has pre-releases, once letters and digits are apart: rc10 is rc.10.
    tail = re.sub(r"(?<=[0-9])(?=[^0-9.])|(?<=[^0-9.])(?=[0-9])", ".", re.sub("[~-]", "", found[2] or ""))
    return not tail or all(re.fullmatch(r"0|[1-9][0-9]*|[A-Za-z]+", part) for part in tail.split("."))


def _check(name, is_good, what, form):
    if not is_good:
        shown = repr(name[:SHOWN_CHARACTERS]) if isinstance(name, str) else f"a value of type {type(name).__name__}"
        raise WrongName(f"cannot use {shown} as {what}: {form}")
