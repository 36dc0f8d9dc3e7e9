"""
What this master knows of all minions whose return of a job is missing, and what they say. Each source is read once, however many minions there are; each
question is one job for all that can answer.
"""

import fnmatch
import os
import re
import time
from typing import NamedTuple

import salt.cache
import salt.key
import salt.minion
import salt.utils.jid
import salt.version

from . import answers, asking, collect, values
from . import evidence as facts
from .jobs import Away
from .missing import MissingError

#: So many silent minions are asked, those with a connection first. The others would only be waited for.
ASKED_MAX = 1_000

#: The job cache is searched for so long for the last return of each of them.
SEARCH_SECONDS = 5

#: The targets of which the name alone tells whether they match: also minions without an accepted key.
BY_NAME = {
    "glob": fnmatch.fnmatchcase,
    "pcre": lambda name, tgt: re.match(tgt, name) is not None,
    "list": lambda name, tgt: name in tgt.split(","),
}  # fmt: skip


class Silent(NamedTuple):
    """A job, the minions that did not return it, and what is known of each."""

    jid: str
    job: facts.Job
    #: How many the job was for, those included whose key is not accepted.
    expected: int
    minions: "list[facts.Evidence]"
    #: So many could not be asked, since there are more than `ASKED_MAX`.
    unasked: int


def collect_all(opts, ask, jid=None, target=None, rollouts=()):
    """
    Collects what is known of each minion that did not return a job. Without a job: the newest one that lacks a return. `target`: a target and its type, of
    those who should have returned [default: as the master published it]. `ask`: as `Bus.ask`. Raises `MissingError`.
    """
    master = Master(opts)
    jid = jid or master.newest_with_missing()
    if jid is None:
        raise MissingError("no job in the job cache lacks a return; name a job: `salt-run jobs.list_jobs` lists them")
    job = master.job(jid)
    expected = _expected(opts, job, target)
    waiting = master.waiting(*(target or (job.tgt, job.tgt_type)))
    missing = sorted(set(expected) - set(job.returned)) + waiting
    found = master.evidence(jid, job, missing, rollouts)
    unasked = _ask(ask, found, job, opts)
    # Who answers may have returned meanwhile.
    returned = master.job(jid).returned
    return Silent(jid, job, len(expected) + len(waiting), [each for each in found if each.minion not in returned], unasked)


def _expected(opts, job, target):
    if target is None and job.expected is not None:
        return job.expected
    ids, unknown = asking.resolve(opts, *(target or (job.tgt, job.tgt_type)))
    return [*ids, *unknown]


class Master:
    """What a master has on its disk and on its sockets."""

    def __init__(self, opts):
        self._opts, self._name = opts, collect.cache_name(opts)
        self._jobs = os.path.join(opts["cachedir"], "jobs")
        self._lists = salt.key.Key(opts).list_keys()
        own = salt.minion.MasterMinion(opts, states=False, rend=False)
        self._cache = own.returners

    # --- jobs ------------------------------------------------------------------------------------------------------

    def unreturned(self, minion, since):
        """Yields the jobs that were published after a time for a minion, and that it did not return, the newest first: pairs of an id and a job."""
        for jid in self._newest_jobs():
            if (facts.time_of(jid) or since) < since:
                return
            load = None if self._has_returned(jid, minion) else collect.stored_job(self._cache, self._name, jid)
            if load and minion in (load["Minions"] or ()) and not collect.is_own_question(load):
                yield jid, self.job(jid)

    def unreturned_since(self, since, minions):
        """Yields the jobs that were published after a time, the newest first: when, and which of these minions they were for that did not return them."""
        for jid in self._newest_jobs():
            published = facts.time_of(jid) or since
            if published < since:
                return
            load = collect.stored_job(self._cache, self._name, jid)
            if load and not collect.is_own_question(load):
                found = {minion for minion in minions.intersection(load["Minions"] or ()) if not self._has_returned(jid, minion)}
                if found:
                    yield published, found

    def newest_with_missing(self):
        """Returns the newest job that lacks a return, and that a command has stopped waiting for; None: there is none."""
        # The time that a command waits for an answer, before it asks who still works on the job.
        until = time.time() - self._opts.get("timeout", 5)
        for jid in self._newest_jobs():
            load = collect.stored_job(self._cache, self._name, jid)
            if not load or not load["Minions"] or collect.is_own_question(load):
                continue
            if (facts.time_of(jid) or 0) < until and set(load["Minions"]) - self._returned(jid):
                return jid
        return None

    def _newest_jobs(self):
        if self._name != "local_cache":
            yield from sorted(self._cache[f"{self._name}.get_jids"]() or (), reverse=True)[: collect.JOBS_SEARCHED]
            return
        for path in collect.newest_jobs(self._jobs):
            try:
                with open(os.path.join(path, "jid"), encoding="utf-8") as file:
                    yield file.read().strip()
            except OSError:
                # Deleted meanwhile: it was too old.
                continue

    def _place(self, jid):
        return salt.utils.jid.jid_dir(jid, self._jobs, self._opts["hash_type"])

    def _has_returned(self, jid, minion):
        if self._name != "local_cache":
            return minion in self._returned(jid)
        return os.path.exists(os.path.join(self._place(jid), minion, "return.p"))

    def _returned(self, jid):
        """Returns who has returned a job; of the returns themselves, which may be large, none is read."""
        if self._name != "local_cache":
            return set(self._cache[f"{self._name}.get_jid"](jid) or {})
        place = self._place(jid)
        try:
            return {name for name in os.listdir(place) if os.path.exists(os.path.join(place, name, "return.p"))}
        except OSError:
            return set()

    def job(self, jid):
        """Returns a job of the job cache. Raises `MissingError`."""
        load = collect.stored_job(self._cache, self._name, jid)
        if not load:
            raise MissingError(
                f"this master knows no job {jid}: `salt-run jobs.list_jobs` lists its jobs; it keeps them for "
                f"{facts.span(collect.keep_seconds(self._opts))} (`keep_jobs_seconds`)"
            )
        published = facts.time_of(jid) or collect.modified(os.path.join(self._place(jid), ".load.p")) or time.time()
        return facts.Job(load["fun"], load["tgt"], load["tgt_type"], load["user"], published, load["Minions"], sorted(self._returned(jid)))

    # --- minions ---------------------------------------------------------------------------------------------------

    def waiting(self, tgt, tgt_type):
        """Returns the minions that a target would match by their name, and that have no accepted key."""
        matches = BY_NAME.get(tgt_type)
        if matches is None:
            return []
        accepted = set(self._lists.get("minions", ()))
        named = {name for of in ("minions_pre", "minions_rejected") for name in self._lists.get(of, ())}
        try:
            return sorted(name for name in named - accepted if matches(name, tgt))
        except re.error as error:
            raise MissingError(f"cannot use the target {values.text(tgt)}: it is no regular expression: {error}") from None

    def evidence(self, jid, job, ids, rollouts):
        """Returns what is known of each, without asking it; `job`: None, or the one that each has to do with."""
        opts, now = self._opts, time.time()
        keys = {name: frozenset(state for of, state in collect.KEYS.items() if name in self._names(of)) for name in ids}
        shared = {
            "jid": jid, "job": job, "master_version": salt.version.__version__, "minimum_auth": opts.get("minimum_auth_version", 0),
            "max_minions": opts.get("max_minions", 0), "master_since": collect.started(opts.get("pidfile")), "keep_seconds": collect.keep_seconds(opts),
            "patience": opts.get("timeout", 5) + opts.get("gather_job_timeout", 10), "master_is_up": True,
        }  # fmt: skip
        found = [facts.Evidence(name, now, keys=keys[name], **shared) for name in ids]
        grains, refusals = self._grains(found), collect.refusals(opts, set(ids))
        _connections(opts, found, grains, self._names("minions"))
        unexpected = set(ids) - set(job.expected or ids) if job else ()
        matched = set(asking.resolve(opts, job.tgt.split(",") if job.tgt_type == "list" else job.tgt, job.tgt_type)[0]) if unexpected else ()
        for each in found:
            if "accepted" in each.keys:
                each.accepted_since = collect.accepted(opts, each.minion)
            each.log = refusals.get(each.minion, [])
            each.matched_now = each.minion in matched if each.minion in unexpected else None
            each.rollouts = [collect.rollout_line(record, each.minion) for record in rollouts if each.minion in record["hosts"]]
        return found

    def _names(self, of):
        names = self._lists.get(of, ())
        if not isinstance(names, set):
            names = self._lists[of] = set(names)
        return names

    def _grains(self, found):
        """Returns the addresses of each, and notes versions and signs of life."""
        store, addresses, last = salt.cache.factory(self._opts), {}, self._last_returns({each.minion for each in found})
        for each in found:
            grains, seen = asking.cached(store, each.minion)
            grains = grains if isinstance(grains, dict) else {}
            each.version = collect.version_of(grains.get("saltversion"))
            addresses[each.minion] = collect.addresses_of(grains) - collect.LOOPBACK
            signs = [
                (seen, "its grains came"), (last.get(each.minion), "it returned a job"),
                (collect.modified(os.path.join(self._opts["cachedir"], "sessions", each.minion)), "it signed in"),
            ]  # fmt: skip
            each.seen, each.seen_how = max(((at, how) for at, how in signs if at), default=(None, ""))
        return addresses

    def _last_returns(self, ids):
        """Returns when each returned a job, as far back as the search goes."""
        found, until = {}, time.monotonic() + SEARCH_SECONDS
        for path in collect.newest_jobs(self._jobs) if self._name == "local_cache" else ():
            if not ids or time.monotonic() > until:
                break
            try:
                names = ids.intersection(os.listdir(path))
            except OSError:
                continue
            times = {name: collect.modified(os.path.join(path, name, "return.p")) for name in names}
            found.update({name: at for name, at in times.items() if at})
            ids = ids - set(found)
        return found


def _connections(opts, found, addresses, accepted):
    """Notes who is connected, by the addresses that each says it has; an address of two minions says nothing."""
    peers = collect.connected_addresses(opts)
    there = {each.minion: addresses[each.minion] & peers for each in found}
    owners = _owners(opts, set().union(*there.values()), accepted)
    for each in found:
        connected = there[each.minion]
        others = sorted(set().union(*(owners.get(address, ()) for address in connected)) - {each.minion})
        collect.note_connection(each, addresses[each.minion], connected, others)


def _owners(opts, wanted, accepted):
    """Returns who has which of these addresses."""
    store, owners = salt.cache.factory(opts), {}
    for minion in accepted if wanted else ():
        grains, _ = asking.cached(store, minion)
        for address in wanted & (collect.addresses_of(grains) if isinstance(grains, dict) else set()):
            owners.setdefault(address, set()).add(minion)
    return owners


# --- what the minions say ------------------------------------------------------------------------------------------------


def _ask(ask, found, job, opts):
    """Asks those that can answer, and notes what they say; returns how many could not be asked."""
    able = sorted((each for each in found if "accepted" in each.keys), key=lambda each: (each.connected is not True, each.connected is False, each.minion))
    asked, unasked = able[:ASKED_MAX], able[ASKED_MAX:]
    matcher = collect.MATCHERS.get(job.tgt_type)
    # After `sidle.job`: it deletes what a dead process left behind.
    questions = {"sidle.job": [found[0].jid], "saltutil.find_job": [found[0].jid], **({matcher: [job.tgt]} if matcher else {})} if found else {}
    told, ids = {}, [each.minion for each in asked]
    for question, arguments in questions.items():
        stale = [each for each in ids if question == "saltutil.find_job" and _is_stale(told[each]["sidle.job"])]
        ids = [each for each in ids if each not in stale]
        try:
            came = ask(ids, question, arguments, read=lambda answer: (time.time(), answer)) if ids else {}
        except Away:
            is_up = collect.listens(opts)
            for each in found:
                each.master_is_up = is_up
            break
        for minion, answer in came.items():
            told.setdefault(minion, {})[question] = answer
        # Who is silent was waited for once.
        ids = [*came, *stale]
    for each in asked:
        each.answers = each.minion in told
        if each.answers:
            _said(each, told[each.minion], matcher)
    for each in unasked:
        each.answers = False
        each.connection += "; not asked: too many are silent"
    return len(unasked)


def _is_stale(came):
    return not isinstance(came, answers.Unreadable) and facts.is_stale(came[1])


def _said(each, told, matcher):
    came = {question: (None, str(answer)) if isinstance(answer, answers.Unreadable) else answer for question, answer in told.items()}
    # The clocks are compared by the time at which the answer was here.
    each.now = came["sidle.job"][0] or each.now
    collect.said(each, {question: answer for question, (_, answer) in came.items()}, matcher)
