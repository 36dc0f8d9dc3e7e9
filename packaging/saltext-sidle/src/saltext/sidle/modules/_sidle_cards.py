"""
The cards of this minion's masters: each master that commands the minion may leave a small one, and read those of the others; and what each master has said of its
own version, for this host's switches. A part of the execution module; Salt loads no module whose name begins with ``_``.
"""

import contextlib
import hashlib
import json
import os
import re
import stat
import time

#: A card is published to the minion, and each other master takes all of them in one answer.
CARD_BYTES = 16 << 10

#: So many masters leave one; a further one takes the place of the oldest.
CARDS_MAX = 16

#: The directory below the minion's cachedir.
PLACE = ("sidle", "masters")

#: The end of the name of a file with what a master has said of itself: `sidle_masters.py` of the guard reads them.
TOLD = ".told"

#: A version of Salt, as Salt writes it.
VERSION = re.compile(r"[0-9][0-9A-Za-z.+~-]{0,63}")

#: Versions of the sign-in are small numbers.
SIGN_IN_MAX = 255


def exchange(opts, card=None):
    """
    Returns the cards of the other masters, and keeps that of the master that asks, if there is one. Raises `ValueError` for what is no card, and `OSError`.
    """
    own = str(opts.get("master_uri") or opts.get("master"))
    if card is not None:
        if not isinstance(card, str) or len(card.encode("utf-8", "replace")) > CARD_BYTES:
            raise ValueError(f"it is no text of at most {CARD_BYTES} bytes")
        _keep(opts, own, card)
        # Its seal is for other masters; to this minion the card came by a job of its own master.
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
            body = json.loads(json.loads(card)["body"])
            tell(opts, body.get("version"), body.get("minimum_auth_version"), "its card")
    return {
        "master": str(opts.get("master")),
        "uri": own,
        "multimaster": bool(opts.get("multimaster")),
        "cards": [each for each in _kept(opts) if each["uri"] != own],
    }


def tell(opts, version, minimum_auth_version=None, source="a job"):
    """
    Writes down what the master that asks says of itself, with the date. Raises `ValueError` for what is no version, and `OSError`.
    """
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise ValueError(f"{str(version)[:80]!r} is no version of Salt")
    minimum = minimum_auth_version
    if minimum is not None and (isinstance(minimum, bool) or not isinstance(minimum, int) or not 0 <= minimum <= SIGN_IN_MAX):
        raise ValueError(f"minimum_auth_version is no number from 0 to {SIGN_IN_MAX}")
    told = {"master": str(opts.get("master")), "version": version, "minimum_auth_version": minimum, "at": int(time.time()), "source": source}
    _write(opts, str(opts.get("master_uri") or opts.get("master")), TOLD, told)
    return told


def _place(opts):
    return os.path.join(opts["cachedir"], *PLACE)


def _keep(opts, uri, card):
    _write(opts, uri, "", {"master": str(opts.get("master")), "uri": uri, "at": time.time(), "card": card})


def _write(opts, uri, end, told):
    """Writes the file of a master of this kind; a further master takes the place of the oldest."""
    place = _place(opts)
    os.makedirs(place, mode=0o700, exist_ok=True)
    name = os.path.join(place, hashlib.sha256(uri.encode("utf-8", "replace")).hexdigest()[:32] + end)
    new = f"{name}.{os.getpid()}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
        file.write(json.dumps(told))
    os.replace(new, name)
    surplus = sorted(_paths(place, end), key=lambda path: os.lstat(path).st_mtime, reverse=True)[CARDS_MAX:]
    for path in surplus:
        os.unlink(path)


def _paths(place, end=""):
    try:
        return [os.path.join(place, name) for name in os.listdir(place) if len(name) == 32 + len(end) and name.endswith(end)]
    except FileNotFoundError:
        return []


def _kept(opts):
    found = []
    for path in _paths(_place(opts))[: 2 * CARDS_MAX]:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    continue
                told = json.loads(file.read(4 * CARD_BYTES))
        except (OSError, ValueError):
            # Half of a card is none: its master leaves another one.
            continue
        if isinstance(told, dict) and all(isinstance(told.get(key), str) for key in ("master", "uri", "card")):
            found.append({key: told.get(key) for key in ("master", "uri", "at", "card")})
    return sorted(found, key=lambda each: each["uri"])
