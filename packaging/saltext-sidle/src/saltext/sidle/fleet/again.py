"""
A job is run again by those that missed it: once, on record before it is published, and only what a person has seen. Any accepted minion can store another job
under an id of the master's job cache, as a syndic does (`_syndic_return`; Salt up to 3008.5 asks nobody whether he is one).
"""

import contextlib
import fcntl
import hashlib
import json
import os
from typing import NamedTuple

import salt.client
import salt.exceptions

from . import collect, names, values
from .files import Files
from .missing import MissingError

#: How long a master may take to publish a job, seconds.
PUBLISH_SECONDS = 10


#: A job is shown whole, or not run again: what nobody can read nobody can judge.
SHOWN_CHARACTERS = 4_000

#: So many hexadecimal digits tell one job from another: 80 bits. After this word: Salt would take some of them for a number.
DIGEST_DIGITS = 20
DIGEST_NAME = "sha256-"


class Wanted(NamedTuple):
    """What would be run again."""

    #: One line, all of it printable ASCII.
    text: str
    #: What a person names who has seen it.
    digest: str


class Again:
    """Which minions of this master were asked to run a job again."""

    def __init__(self, opts):
        self._opts = opts
        self._place = os.path.join(opts["cachedir"], "sidle", "again")
        self._returners = None

    def wanted(self, jid):
        """Returns what would be run again. Raises `MissingError`."""
        return _wanted(jid, self._job(jid))

    def run(self, jid, ids, digest):
        """
        Publishes the job to those of the minions that were not asked before, if it is the one of this digest; returns the new id and those, or None where there
        are none. Who was asked is written first: a runner that is killed in between has asked nobody, and nobody is asked twice. Raises `MissingError`.
        """
        names.rollout(jid)
        with self._locked():
            asked = self.asked(jid)
            wanted = [minion for minion in ids if minion not in asked]
            if not wanted:
                return None
            job = self._job(jid)
            if _wanted(jid, job).digest != digest:
                raise MissingError(
                    f"cannot run job {jid} again: it is not the job that was looked at. Any accepted minion can store another job under this id: "
                    f"`salt-run sidle.missing {jid}` shows what would be run, and its digest"
                )
            self._write(jid, asked + wanted)
            told = self._publish(job, jid, wanted)
            if not told:
                raise MissingError(f"cannot run job {jid} again: the master published it to nobody; {len(wanted)} minions count as asked all the same")
            return told["jid"], wanted

    @contextlib.contextmanager
    def _locked(self):
        os.makedirs(self._place, mode=0o700, exist_ok=True)
        with open(os.path.join(self._place, ".lock"), "a", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def asked(self, jid):
        """Returns which minions were asked to run a job again. Raises `MissingError`."""
        path = os.path.join(self._place, jid)
        if not os.path.exists(path):
            return []
        try:
            return list(json.loads(Files(self._place).read(jid)))
        except ValueError:
            raise MissingError(f"cannot run job {jid} again: {path} is damaged, so that nobody knows who was asked before; remove it if nobody was") from None

    def _write(self, jid, ids):
        Files(self._place).write(jid, json.dumps(ids))

    def _job(self, jid):
        """Returns the job as it was published, with its arguments."""
        import salt.minion

        if self._returners is None:
            self._returners = salt.minion.MasterMinion(self._opts, states=False, rend=False).returners
        load = self._returners[f"{collect.cache_name(self._opts)}.get_load"](jid)
        if not isinstance(load, dict) or not load.get("fun") or not isinstance(load.get("arg", []), (list, tuple)):
            raise MissingError(f"cannot run job {jid} again: the job cache does not have it with its arguments")
        if any(isinstance(each, dict) and each.get("rollout") for each in load.get("arg", [])):
            raise MissingError(f"cannot run job {jid} again: a rollout has ordered it, and gives its orders itself; `salt-run sidle.rollouts` lists them")
        return load

    def _publish(self, job, jid, ids):
        try:
            with salt.client.LocalClient(mopts=self._opts) as client:
                return client.run_job(
                    ids, job["fun"], list(job.get("arg", [])), tgt_type="list", ret=job.get("ret") or "", timeout=PUBLISH_SECONDS, listen=False,
                    metadata={"sidle_again": jid},
                )  # fmt: skip
        except (salt.exceptions.SaltException, OSError) as error:
            raise MissingError(f"cannot run job {jid} again: {values.text(str(error))}; {len(ids)} minions count as asked all the same") from error


def _wanted(jid, job):
    """Returns a job for a person, and its digest. Raises `MissingError` for one that is too long to be read."""
    parts = [job["fun"], *job.get("arg", [])]
    words = [each if isinstance(each, str) and each.isascii() and each.isalnum() else json.dumps(each, default=_kind, sort_keys=True) for each in parts[1:]]
    function = job["fun"] if isinstance(job["fun"], str) else ",".join(map(str, job["fun"]))
    shown = " ".join([json.dumps(function)[1:-1], *words, *([f"(returns go to {json.dumps(job['ret'], default=_kind)}, too)"] if job.get("ret") else [])])
    if len(shown) > SHOWN_CHARACTERS:
        raise MissingError(f"cannot run job {jid} again: its arguments are too long to be shown ({len(shown)} characters): publish it by hand")
    told = json.dumps([parts, job.get("ret") or ""], default=_kind, sort_keys=True)
    return Wanted(shown, DIGEST_NAME + hashlib.sha256(told.encode("ascii")).hexdigest()[:DIGEST_DIGITS])


def _kind(value):
    """Returns a value that JSON has no form for, so that two kinds with the same words differ."""
    return [type(value).__name__, repr(value)]
