"""
Jobs of a fleet on the master's own bus: published to lists of ids, and their returns as they come. Nothing here waits for a host that is silent.

The event of a return is a hint: it makes the bus look into the master's job cache, which has the return that Salt has checked. What a minion fires in the
name of another one is not there. Events can be lost, so that it also looks there without one.
"""

import time
from typing import NamedTuple

import salt.client
import salt.exceptions
import salt.utils.event

from . import answers
from .jobs import Away
from .returns import Returns

#: A job goes to so many ids, unless the configuration says otherwise.
CHUNK = 200

#: How long a master may take to publish a job, seconds.
PUBLISH_SECONDS = 10

#: How long the bus may take an event, milliseconds.
FIRE_MILLISECONDS = 5_000

#: While so many asked hosts have not answered, the next chunk waits, for at most `NEXT_SECONDS`: all hosts at once would storm the master.
UNANSWERED_MAX = 400
NEXT_SECONDS = 3

#: Once so many of the asked hosts have answered, the others have as long again as these took, and `GRACE_SECONDS`: the rest of a fleet is offline.
MOST = 0.9
GRACE_SECONDS = 10

#: Of jobs so many are known: what returns later is late, and its host is asked again.
JOBS_MAX = 5_000

#: Salt fires the event of a return, and then stores the return: the job cache is looked at so often, for so long after an event.
LOOK_SECONDS = 0.05
STORED_SECONDS = 30

#: Without an event it is looked at so often, for all returns that are missing of jobs of this age, and for no more than this share of the time.
SWEEP_SECONDS = 1
SWEPT_SECONDS = 1_800
SWEEP_SHARE = 0.05

#: Salt is asked so often which events have come, and never waits for one itself: a wait in vain makes Salt 3007 connect anew, and it loses the events of
#: meanwhile: of a plan's minions some seemed silent.
POLL_SECONDS = 0.05


class Returned(NamedTuple):
    """The return of a job that was published here."""

    kind: object
    minion: str
    #: As the minion sent it, or an `answers.Unreadable`.
    answer: object


class _Job(NamedTuple):
    kind: object
    #: Who was asked, and has not returned.
    ids: "set[str]"
    #: When it was published.
    since: float


class Bus:
    """The bus of a master, for one thread."""

    def __init__(self, opts, chunk=CHUNK):
        self._opts, self._chunk = opts, chunk
        self._client = self._events = None
        #: What each job is, by its jid.
        self._jobs = {}
        self._returns = Returns(opts)
        #: Returns that an event has told of, by jid and id, and when it did; when they were last looked for.
        self._told, self._looked = {}, 0.0
        #: When all that is missing is looked for again.
        self._sweep_at = 0.0

    def __enter__(self):
        self._connect()
        return self

    def __exit__(self, *_):
        self._disconnect()

    @property
    def unchecked(self):
        """Returns why returns are taken from events, which any minion may fire; None: they come from the job cache."""
        return self._returns.missing

    def _connect(self):
        self._client = salt.client.LocalClient(mopts=self._opts)
        self._events = salt.utils.event.get_event("master", sock_dir=self._opts["sock_dir"], opts=self._opts, listen=True)
        self._events.connect_pub(timeout=5)

    def _disconnect(self):
        for connection in (self._client, self._events):
            if connection is not None:
                connection.destroy()
        self._client = self._events = None

    def publish(self, ids, function, arguments=(), kwarg=None, kind=None):
        """
        Publishes jobs to these ids, by lists of ids: a target of a job is never a nodegroup, which masters read differently. Their returns come from
        `events`, with this `kind`. Raises `Away`.
        """
        for begun in range(0, len(ids), self._chunk):
            self._publish(ids[begun : begun + self._chunk], function, arguments, kwarg, kind)

    def _publish(self, ids, function, arguments, kwarg, kind):
        try:
            if self._client is None:
                self._connect()
            told = self._client.run_job(ids, function, list(arguments), tgt_type="list", kwarg=kwarg or {}, timeout=PUBLISH_SECONDS, listen=False)
        except (salt.exceptions.SaltException, OSError, AttributeError) as error:
            # A master that comes back has other keys and sockets.
            self._disconnect()
            raise Away(f"the master takes no jobs: {error}") from error
        if not told:
            # None of these ids has an accepted key any more.
            return
        if len(self._jobs) >= JOBS_MAX:
            self._jobs.pop(next(iter(self._jobs)))
        self._jobs[told["jid"]] = _Job(kind, set(ids), time.monotonic())

    def fire(self, tag, data):
        """Fires an event on this master's bus. Raises `OSError`."""
        with salt.utils.event.get_master_event(self._opts, self._opts["sock_dir"], listen=False) as sender:
            if not sender.fire_event(data, tag, timeout=FIRE_MILLISECONDS):
                raise OSError("the master's bus does not take it: is salt-master running?")

    def events(self, seconds):
        """Yields what comes within this time: `Returned`, or the tag of another event; ends early after a first burst."""
        until, came = time.monotonic() + seconds, False
        while True:
            for returned in self._stored():
                came = True
                yield returned
            rest = until - time.monotonic()
            if rest <= 0:
                return
            event = self._next(min(rest, LOOK_SECONDS if came or self._told else SWEEP_SECONDS))
            if event is None:
                if came:
                    return
                continue
            came = True
            yield from self._heard(event["tag"], event["data"])

    def _next(self, seconds):
        until = time.monotonic() + seconds
        while True:
            event = self._come()
            rest = until - time.monotonic()
            if event is not None or rest <= 0:
                return event
            time.sleep(min(POLL_SECONDS, rest))

    def _come(self):
        """Returns the next event that has come; None: there is none, or no bus."""
        if self._events is None:
            return None
        try:
            # All tags: after an event of another one Salt would say that none has come.
            return self._events.get_event(tag="", full=True, no_block=True, auto_reconnect=True)
        except (salt.exceptions.SaltException, OSError, AttributeError):
            self._disconnect()
            return None

    def _heard(self, tag, data):
        """Makes `_stored` look for a return that an event tells of; yields other tags."""
        words = tag.split("/")
        if words[0] != "salt":
            return
        if words[1:2] != ["job"]:
            yield tag
        elif len(words) == 5 and words[3] == "ret" and words[4] in self._asked(words[2]):
            if self.unchecked is None:
                self._told.setdefault((words[2], words[4]), time.monotonic())
            else:
                yield self._returned(words[2], words[4], data.get("return") if isinstance(data, dict) else None)

    def _asked(self, jid):
        return self._jobs[jid].ids if jid in self._jobs else ()

    def _stored(self):
        """Yields the returns that are in the job cache: those that events have told of, and now and then all that are missing."""
        now = time.monotonic()
        is_sweep = bool(self._jobs) and self.unchecked is None and now >= self._sweep_at
        if not is_sweep and (not self._told or now - self._looked < LOOK_SECONDS):
            return
        self._looked, jobs = now, {}
        if is_sweep:
            jobs = {jid: set(job.ids) for jid, job in self._jobs.items() if now - job.since < SWEPT_SECONDS}
        for jid, minion in self._told:
            jobs.setdefault(jid, set()).add(minion)
        for jid, ids in jobs.items():
            for minion, answer in self._returns.of(jid, ids):
                self._told.pop((jid, minion), None)
                if minion in self._asked(jid):
                    yield self._returned(jid, minion, answer)
        # An event without a return: somebody else has fired it, or the master has lost the return.
        self._told = {key: since for key, since in self._told.items() if now - since < STORED_SECONDS}
        if is_sweep:
            ended = time.monotonic()
            self._sweep_at = ended + max(SWEEP_SECONDS, (ended - now) / SWEEP_SHARE)

    def _returned(self, jid, minion, answer):
        """Takes a return, once from each minion: an event that is fired again brings no old answer back."""
        job = self._jobs[jid]
        job.ids.discard(minion)
        if not job.ids:
            del self._jobs[jid]
        return Returned(job.kind, minion, answer)

    def ask(self, ids, function, arguments=(), kwarg=None, seconds=20, read=lambda told: told, most=MOST):
        """
        Returns the answers of those that answer within `seconds` of the last chunk: what `read` makes of them, or an `answers.Unreadable`. Once the share `most`
        has answered, the others have as long again; 1: all have the whole time. Raises `Away`.
        """
        found, asked, kind = {}, 0, object()
        begun = last = time.monotonic()
        end = float("inf")
        while asked < len(ids) or (len(found) < len(ids) and time.monotonic() < min(end, last + seconds)):
            is_slow = asked - len(found) >= UNANSWERED_MAX and time.monotonic() - last < NEXT_SECONDS
            if asked < len(ids) and not is_slow:
                self._publish(ids[asked : asked + self._chunk], function, arguments, kwarg, kind)
                asked, last = asked + self._chunk, time.monotonic()
            for event in self.events(0.5):
                if isinstance(event, Returned) and event.kind is kind:
                    found[event.minion] = answers.taken(read, event.answer)
                    if len(found) == max(1, int(most * len(ids))):
                        now = time.monotonic()
                        end = now + (now - begun) + GRACE_SECONDS
        return found
