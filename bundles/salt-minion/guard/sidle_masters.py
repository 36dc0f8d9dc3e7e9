"""What the masters of a minion have said of themselves: files that the extension's execution module keeps in the minion's cachedir (`sidle.master_is`, cards).

  named: [name]           the masters of the configuration
  told: [{name, version, minimum_auth_version, at, source}]   the newest word of each; `at`: seconds since 1970
  now: int                this host's time
"""

import json
import os
import stat
import time

# A minion has a few masters; each leaves one file of less than a kilobyte.
FILES_MAX, BYTES_MAX = 64, 4096
TEXT_MAX = 120


def known(opts):
    """Give what is known."""
    names = named(opts)
    newest = {}
    for said in every(os.path.join(str(opts.get("cachedir")), "sidle", "masters")):
        # A job's name of a master has no port.
        for name in (name for name in names if said["master"] in (name, host(name))):
            if name not in newest or newest[name]["at"] < said["at"]:
                newest[name] = dict(said, name=name)
    told = [{key: said[key] for key in ("name", "version", "minimum_auth_version", "at", "source")} for said in newest.values()]
    return {"named": names, "told": sorted(told, key=lambda said: said["name"]), "now": int(time.time())}


def named(opts):
    """Give the masters as the configuration names them."""
    masters = opts.get("master")
    if opts.get("master_type") == "disable" or not masters:
        return []
    masters = masters.split(",") if isinstance(masters, str) else masters if isinstance(masters, (list, tuple)) else [masters]
    return [str(name).strip()[:TEXT_MAX] for name in masters][:FILES_MAX]


def host(name):
    """Give the name of a master without its port."""
    return name.rsplit(":", 1)[0] if name.count(":") == 1 else name.strip("[]")


def every(place):
    """Give each sound file of the directory."""
    try:
        names = sorted(os.listdir(place))[: 4 * FILES_MAX]
    except OSError:
        # No master has said anything.
        return
    for name in names:
        if not name.endswith(".told"):
            continue
        try:
            with open(os.open(os.path.join(place, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                text = file.read(BYTES_MAX + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
            said = json.loads(text) if len(text) <= BYTES_MAX else None
        except (OSError, ValueError):
            # Not known, then.
            continue
        if is_sound(said):
            yield said


def is_sound(said):
    """Whether these are the words of a master."""
    if not isinstance(said, dict) or not all(is_word(said.get(key)) for key in ("master", "version", "source")):
        return False
    minimum, at = said.get("minimum_auth_version"), said.get("at")
    return is_count(at, 1 << 40) and (minimum is None or is_count(minimum, 255)) and "minimum_auth_version" in said


def is_word(value):
    """Whether it is a text for one line."""
    return isinstance(value, str) and 0 < len(value) <= TEXT_MAX and value.isprintable()


def is_count(value, most):
    """Whether it is a number up to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
