"""
The cards of this minion's masters: each master that commands the minion may leave a small one, and read those of the others. A part of the execution module; Salt
loads no module whose name begins with ``_``.
"""

import contextlib
import hashlib
import json
import os
import stat
import time

#: A card is published to the minion, and each other master takes all of them in one answer.
CARD_BYTES = 16 << 10

#: So many masters leave one; a further one takes the place of the oldest.
CARDS_MAX = 16

#: The directory below the minion's cachedir.
PLACE = ("sidle", "masters")


def exchange(opts, card=None):
    """
    Returns the cards of the other masters, and keeps that of the master that asks, if there is one. Raises `ValueError` for what is no card, and `OSError`.
    """
    own = str(opts.get("master_uri") or opts.get("master"))
    if card is not None:
        if not isinstance(card, str) or len(card.encode("utf-8", "replace")) > CARD_BYTES:
            raise ValueError(f"it is no text of at most {CARD_BYTES} bytes")
        _keep(opts, own, card)
    return {
        "master": str(opts.get("master")),
        "uri": own,
        "multimaster": bool(opts.get("multimaster")),
        "cards": [each for each in _kept(opts) if each["uri"] != own],
    }


def _place(opts):
    return os.path.join(opts["cachedir"], *PLACE)


def _keep(opts, uri, card):
    place = _place(opts)
    os.makedirs(place, mode=0o700, exist_ok=True)
    name = os.path.join(place, hashlib.sha256(uri.encode("utf-8", "replace")).hexdigest()[:32])
    new = f"{name}.{os.getpid()}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(new)
    text = json.dumps({"master": str(opts.get("master")), "uri": uri, "at": time.time(), "card": card})
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(new, name)
    surplus = sorted(_paths(place), key=lambda path: os.lstat(path).st_mtime, reverse=True)[CARDS_MAX:]
    for path in surplus:
        os.unlink(path)


def _paths(place):
    try:
        return [os.path.join(place, name) for name in os.listdir(place) if len(name) == 32]
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
