"""
The card of a master: what it has, as digests by which another master finds what differs. The digests are made with a key that the masters of one fleet share
(their `master.pem`), and the card is sealed with it: a minion through which a card comes can neither read nor change it.
"""

import base64
import hashlib
import hmac
import json
import os
import time
from dataclasses import dataclass, field

import salt.version

from . import answers, values

SCHEMA = 1

#: A card goes to a few minions in a job, and a publisher sends each job to all that are connected.
CARD_BYTES = 16 << 10

#: So many entries of a section stand in a card one by one; of more, only digests of groups do.
ENTRIES_MAX = {"keys": 500}
ENTRIES_OTHERS_MAX = 100
GROUPS = 256

#: Bytes of a digest of a name, and of a value.
DIGEST = 4

#: What is compared, in the order in which it is shown.
SECTIONS = ("keys", "nodegroups", "file_roots", "pillar_roots", "settings", "rollouts")

#: Settings of a master that its minions should not find to be others at another master. Their values may be secret: only that they differ is shown.
SETTINGS = (
    "auto_accept", "autosign_file", "ext_pillar", "external_auth", "file_ignore_glob", "fileserver_backend", "gitfs_remotes", "hash_type", "job_cache",
    "keep_jobs_seconds", "master_job_cache", "max_minions", "minimum_auth_version", "peer", "peer_run", "pillar_safe_render_error", "publisher_acl",
    "reactor", "renderer", "request_server_ttl", "state_top", "token_expire", "top_file_merging_strategy",
)  # fmt: skip

#: More than this is not read: the section is left out, and the reason is said.
FILES_MAX, BYTES_MAX, SECONDS_MAX = 50_000, 1 << 30, 60

#: What version control keeps beside the files.
NOT_FILES = (".git", ".hg", ".svn")


class CardError(ValueError):
    """A card that cannot be made: the message says why, and what can be done."""


@dataclass
class Own:
    """What this master has: the entries of each section, by their names; and why a section is not there."""

    entries: "dict[str, dict[str, bytes]]"
    notes: "list[str]" = field(default_factory=list)


@dataclass
class Card:
    """The card of another master."""

    made: float
    id: str
    version: str
    minimum_auth: int
    sections: dict
    #: Its seal is made with the key of this master: nobody else has made or changed it.
    is_sealed: bool


# --- what a master has ---------------------------------------------------------------------------------------------------


def own(opts, records):
    """Returns what this master has. `records`: those of its rollouts."""
    found = Own({})
    found.entries["keys"] = _keys(opts)
    found.entries["nodegroups"] = {str(name): _bytes(value) for name, value in (opts.get("nodegroups") or {}).items()}
    for section, roots in (("file_roots", opts.get("file_roots")), ("pillar_roots", opts.get("pillar_roots"))):
        try:
            found.entries[section] = _roots(roots or {})
        except CardError as error:
            found.notes.append(f"{section} are not compared: {error}")
    found.entries["settings"] = {name: _bytes(opts.get(name)) for name in SETTINGS}
    found.entries["rollouts"] = {record["id"]: _bytes([record["epoch"], record["status"]]) for record in records}
    return found


def _bytes(value):
    return json.dumps(value, sort_keys=True, default=str).encode()


def _keys(opts):
    place, found = os.path.join(opts["pki_dir"], "minions"), {}
    for name in os.listdir(place) if os.path.isdir(place) else ():
        try:
            with open(os.path.join(place, name), "rb") as file:
                found[name] = file.read(1 << 16).strip()
        except OSError:
            # Deleted meanwhile.
            continue
    return found


class _Digests:
    """The contents of files, as far as the limits allow."""

    def __init__(self):
        self.files, self.bytes, self.until = 0, 0, time.monotonic() + SECONDS_MAX

    def add(self, digest, path):
        """Adds a file to a digest. Raises `CardError` beyond the limits."""
        self.files += 1
        if os.path.islink(path):
            digest.update(os.readlink(path).encode("utf-8", "replace"))
            return
        if not os.path.isfile(path):
            return
        self.bytes += os.path.getsize(path)
        if self.files > FILES_MAX or self.bytes > BYTES_MAX or time.monotonic() > self.until:
            raise CardError(f"they are larger than {FILES_MAX:,} files, {BYTES_MAX >> 30} GiB or {SECONDS_MAX} s of reading: compare them with `rsync -rcn`")
        with open(path, "rb") as file:
            for part in iter(lambda: file.read(1 << 20), b""):
                digest.update(part)


def _roots(roots):
    """Returns a digest of each entry at the top of each environment: `base:top.sls`, `base:web/`."""
    digests, found = _Digests(), {}
    for environment, places in sorted(roots.items()):
        for place in places if isinstance(places, list) else [places]:
            for name in sorted(os.listdir(place)) if os.path.isdir(str(place)) else ():
                path = os.path.join(place, name)
                entry = f"{environment}:{name}" + ("/" if os.path.isdir(path) else "")
                # The first of several directories has the file.
                if name not in NOT_FILES and entry not in found:
                    found[entry] = _digest(digests, path)
    return found


def _digest(digests, top):
    digest = hashlib.sha256()
    try:
        digests.add(digest, top)
        for place, directories, names in os.walk(top):
            directories[:] = sorted(name for name in directories if name not in NOT_FILES)
            for name in sorted([*names, *(each for each in directories if os.path.islink(os.path.join(place, each)))]):
                path = os.path.join(place, name)
                digest.update(b"\0" + os.path.relpath(path, top).encode("utf-8", "replace") + b"\0")
                digests.add(digest, path)
    except OSError as error:
        raise CardError(f"cannot read {error.filename}: {error.strerror}") from None
    return digest.digest()


# --- the card --------------------------------------------------------------------------------------------------------------


class Seal:
    """The key that the masters of a fleet share."""

    def __init__(self, opts):
        path = os.path.join(opts["pki_dir"], "master.pem")
        try:
            with open(path, "rb") as file:
                secret = file.read(1 << 16)
        except OSError as error:
            raise CardError(f"cannot make a card: cannot read {path}: {error.strerror}") from None
        self._key = hashlib.sha256(b"sidle: the card of a master\n" + b"".join(secret.split())).digest()

    def of(self, *parts):
        """Returns the whole digest of these parts."""
        return hmac.new(self._key, b"\0".join(parts), hashlib.sha256).digest()

    def entry(self, section, name, value):
        """Returns the digests of an entry: of its name, and of its value."""
        return self.of(section.encode(), b"name", name.encode("utf-8", "replace"))[:DIGEST], self.of(section.encode(), b"value", value)[:DIGEST]


def make(opts, found, seal, now=None):
    """Returns the card of this master, as text."""
    body = json.dumps({
        "schema": SCHEMA, "made": int(time.time() if now is None else now), "id": str(opts.get("id")), "version": str(salt.version.__version__),
        "minimum_auth_version": int(opts.get("minimum_auth_version") or 0),
        "sections": {section: _section(section, entries, seal) for section, entries in found.entries.items()},
    }, separators=(",", ":"))  # fmt: skip
    text = json.dumps({"body": body, "seal": seal.of(b"card", body.encode()).hex()}, separators=(",", ":"))
    if len(text) > CARD_BYTES:
        raise CardError(f"cannot make a card: it has {len(text)} bytes, and {CARD_BYTES} are the limit")
    return text


def _section(section, entries, seal):
    pairs = _pairs(section, entries, seal)
    if len(pairs) <= ENTRIES_MAX.get(section, ENTRIES_OTHERS_MAX):
        form, data = "entries", b"".join(name + value for name, value in sorted(pairs))
    else:
        form, data = "groups", b"".join(_groups(pairs, seal))
    return {"form": form, "count": len(entries), "data": base64.b64encode(data).decode()}


def _pairs(section, entries, seal):
    return [seal.entry(section, name, value) for name, value in entries.items()]


def _groups(pairs, seal):
    """Returns a digest of each group of entries."""
    groups = [[] for _ in range(GROUPS)]
    for name, value in pairs:
        groups[name[0]].append(name + value)
    return [seal.of(b"group", *sorted(group))[:DIGEST] for group in groups]


def read(text, seal):
    """Reads a card that came through a minion. Raises `answers.Unreadable`."""
    try:
        return _read(text, seal)
    except answers.Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        raise answers.Unreadable(f"it is no card: {type(error).__name__}") from None


def _read(text, seal):
    outer = values.table(json.loads(_limited(text)), "the card")
    body = _limited(outer.get("body"))
    told = values.table(json.loads(body), "the card")
    sealed = hmac.compare_digest(str(outer.get("seal")).encode("utf-8", "replace"), seal.of(b"card", body.encode("utf-8", "replace")).hex().encode())
    if told.get("schema") != SCHEMA:
        raise answers.Unreadable(f"the card has another form than {SCHEMA}: use the same release of the extension on both masters")
    sections = values.table(told.get("sections"), "the card: sections")
    return Card(
        float(values.number(told.get("made"), "the card: made", values.SECONDS_MAX)), values.text(told.get("id"), "the card: id", 255),
        values.text(told.get("version"), "the card: version", 64), values.number(told.get("minimum_auth_version"), "the card: minimum_auth_version", 255),
        {name: _read_section(sections[name]) for name in SECTIONS if name in sections}, sealed,
    )  # fmt: skip


def _limited(text):
    if not isinstance(text, str) or len(text) > CARD_BYTES:
        raise answers.Unreadable(f"it is no text of at most {CARD_BYTES} characters")
    return text


def _read_section(told):
    told = values.table(told, "the card: a section")
    form, count = told.get("form"), values.number(told.get("count"), "the card: count")
    data = base64.b64decode(_limited(told.get("data")), validate=True)
    if form == "entries" and len(data) % (2 * DIGEST) == 0:
        cut = [data[begun : begun + 2 * DIGEST] for begun in range(0, len(data), 2 * DIGEST)]
        return {"form": form, "count": count, "entries": {each[:DIGEST]: each[DIGEST:] for each in cut}}
    if form == "groups" and len(data) == GROUPS * DIGEST:
        return {"form": form, "count": count, "groups": [data[begun : begun + DIGEST] for begun in range(0, len(data), DIGEST)]}
    raise answers.Unreadable("the card: a section has another form")


# --- the comparison ----------------------------------------------------------------------------------------------------------


@dataclass
class Difference:
    """What differs in one section."""

    section: str
    here: int
    there: int
    #: Names that only this master has; that both have, with other values; how many only the other one has, and those of them that can be told.
    only_here: "list[str]" = field(default_factory=list)
    differs: "list[str]" = field(default_factory=list)
    only_there: int = 0
    guessed: "list[str]" = field(default_factory=list)
    #: In a large section: one or more of these differ.
    among: "list[str]" = field(default_factory=list)

    def __bool__(self):
        return bool(self.only_here or self.differs or self.only_there or self.among or self.here != self.there)


def compare(section, entries, theirs, seal, guesses=()):
    """Compares the entries of a section with the section of a card. `guesses`: names that the other one may have."""
    found = Difference(section, len(entries), theirs["count"])
    pairs = {name: seal.entry(section, name, value) for name, value in entries.items()}
    if theirs["form"] == "groups":
        own = _groups(pairs.values(), seal)
        other = {number for number in range(GROUPS) if own[number] != theirs["groups"][number]}
        found.among = sorted(name for name, (digest, _) in pairs.items() if digest[0] in other)
        return found
    there = theirs["entries"]
    found.only_here = sorted(name for name, (digest, _) in pairs.items() if digest not in there)
    found.differs = sorted(name for name, (digest, value) in pairs.items() if there.get(digest, value) != value)
    unknown = set(there) - {digest for digest, _ in pairs.values()}
    found.only_there = len(unknown)
    found.guessed = sorted(name for name in guesses if seal.entry(section, name, b"")[0] in unknown)
    return found
