"""A job is run again by those that missed it: once, and on record before it is published."""

import contextlib
import fcntl
import json
import os

import salt.client
import salt.exceptions

from . import collect, names, values
from .files import Files
from .missing import MissingError

#: How long a master may take to publish a job, seconds.
PUBLISH_SECONDS = 10


class Again:
    """Which minions of this master were asked to run a job again."""

    def __init__(self, opts):
        self._opts = opts
        self._place = os.path.join(opts["cachedir"], "sidle", "again")

    def run(self, jid, ids):
        """
        Publishes the job to those of the minions that were not asked before; returns the new id and those, or None where there are none. Who was asked is
        written first: a runner that is killed in between has asked nobody, and nobody is asked twice. Raises `MissingError`.
        """
        names.rollout(jid)
        with self._locked():
            asked = self.asked(jid)
            wanted = [minion for minion in ids if minion not in asked]
            if not wanted:
                return None
            job = self._job(jid)
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

        own = salt.minion.MasterMinion(self._opts, states=False, rend=False)
        load = own.returners[f"{collect.cache_name(self._opts)}.get_load"](jid)
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
