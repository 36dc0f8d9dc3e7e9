"""
The returns of jobs as the master's job cache has them. Before Salt stores a return there, it checks who sent it (the token of the minion's id), unless
the sender acts as a syndic; the event of a return may come from any minion that fires its tag.
"""

import os

import salt.exceptions
import salt.payload
import salt.utils.jid

from .answers import ANSWER_BYTES, Unreadable


class Returns:
    """The job cache of a master."""

    def __init__(self, opts):
        self._opts, self._name = opts, opts.get("master_job_cache", "local_cache")
        self._cache = None

    @property
    def missing(self):
        """Returns why this master has no returns that Salt has checked; None: it has them."""
        for option, is_so in (("job_cache: False", not self._opts.get("job_cache", True)), ("ext_job_cache", bool(self._opts.get("ext_job_cache")))):
            if is_so:
                return f"this master keeps no returns in a job cache of its own (`{option}`)"
        return None

    def of(self, jid, ids):
        """Returns the returns of these minions that are there: pairs of an id and an answer, or an `Unreadable`."""
        return self._local(jid, ids) if self._name == "local_cache" else self._other(jid, ids)

    def _local(self, jid, ids):
        place = salt.utils.jid.jid_dir(jid, os.path.join(self._opts["cachedir"], "jobs"), self._opts["hash_type"])
        try:
            # There are many that are asked for, and few that are there.
            there = set(os.listdir(place))
        except OSError:
            return
        for minion in there.intersection(ids):
            try:
                # One more than there may be tells that there are more.
                with open(os.path.join(place, minion, "return.p"), "rb") as file:
                    data = file.read(ANSWER_BYTES + 1)
            except OSError:
                # Not there yet.
                continue
            if len(data) > ANSWER_BYTES:
                yield minion, Unreadable(f"it has more than {ANSWER_BYTES} bytes")
            elif data:
                yield minion, _loaded(data)

    def _other(self, jid, ids):
        """Asks another cache, a database for instance, which gives all returns of a job."""
        import salt.minion

        if self._cache is None:
            self._cache = salt.minion.MasterMinion(self._opts, states=False, rend=False).returners
        found = self._cache[f"{self._name}.get_jid"](jid)
        found = found if isinstance(found, dict) else {}
        return [(minion, _answer(found[minion])) for minion in ids if minion in found]


def _loaded(data):
    try:
        return _answer(salt.payload.loads(data))
    except (salt.exceptions.SaltException, ValueError, TypeError, RecursionError):
        return Unreadable("it cannot be decoded")


def _answer(told):
    return told["return"] if isinstance(told, dict) and "return" in told else told
