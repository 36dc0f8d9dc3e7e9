"""
Jobs of a fleet on the master's own bus: published to lists of ids, and their returns as they come. Nothing here waits for a host that is silent.
"""

import time

import salt.client
import salt.exceptions
import salt.utils.event

from .jobs import Away

#: A job goes to so many ids, unless the configuration says otherwise.
CHUNK = 200

#: How long a master may take to publish a job, seconds.
PUBLISH_SECONDS = 10

#: While so many asked hosts have not answered, the next chunk waits, for at most `NEXT_SECONDS`: all hosts at once would storm the master.
UNANSWERED_MAX = 400
NEXT_SECONDS = 3

#: Once so many of the asked hosts have answered, the others have as long again as these took, and `GRACE_SECONDS`: the rest of a fleet is offline.
MOST = 0.9
GRACE_SECONDS = 10

#: Of jobs so many are known: what returns later is late, and its host is asked again.
JOBS_MAX = 20_000


class Bus:
    """The bus of a master, for one thread."""

    def __init__(self, opts, chunk=CHUNK):
        self._opts, self._chunk = opts, chunk
        self._client = self._events = None
        #: What each job is, by its jid.
        self._jobs = {}

    def __enter__(self):
        self._connect()
        return self

    def __exit__(self, *_):
        self._disconnect()

    def _connect(self):
        self._client = salt.client.LocalClient(mopts=self._opts)
        self._events = salt.utils.event.get_event("master", sock_dir=self._opts["sock_dir"], opts=self._opts, listen=True)
        self._events.connect_pub(timeout=5)

    def _disconnect(self):
        for each in (self._client, self._events):
            if each is not None:
                each.destroy()
        self._client = self._events = None

    def publish(self, ids, function, arguments=(), kwarg=None, kind=None):
        """
        Publishes jobs to these ids, by lists of ids: a target of a job is never a nodegroup, which masters read differently. Their returns come from
        `returns`, with this `kind`. Raises `Away`.
        """
        return [self._publish(ids[begun : begun + self._chunk], function, arguments, kwarg, kind) for begun in range(0, len(ids), self._chunk)]

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
            return None
        if len(self._jobs) >= JOBS_MAX:
            self._jobs.pop(next(iter(self._jobs)))
        self._jobs[told["jid"]] = kind
        return told["jid"]

    def events(self, seconds):
        """What comes within this time: `(tag, data)`; ends early after a first burst."""
        until, came = time.monotonic() + seconds, False
        while True:
            rest = until - time.monotonic()
            if rest <= 0:
                return
            event = self._next(0.05 if came else rest)
            if event is None:
                if came:
                    return
                continue
            came = True
            yield event["tag"], event["data"]

    def _next(self, seconds):
        if self._events is None:
            time.sleep(seconds)
            return None
        try:
            return self._events.get_event(wait=seconds, tag="salt/", full=True, auto_reconnect=True)
        except (salt.exceptions.SaltException, OSError, AttributeError):
            self._disconnect()
            return None

    def returned(self, tag, data):
        """`(kind, id, answer)` if the event is the return of a job that was published here; else None."""
        words = tag.split("/")
        if len(words) != 5 or words[1] != "job" or words[3] != "ret" or words[2] not in self._jobs:
            return None
        return self._jobs[words[2]], words[4], data.get("return")

    def ask(self, ids, function, arguments=(), kwarg=None, seconds=20):
        """The answers of those that answer within `seconds` of the last chunk, or as soon as most others do. Raises `Away`."""
        found, asked, kind = {}, 0, object()
        begun = last = time.monotonic()
        end = float("inf")
        while asked < len(ids) or (len(found) < len(ids) and time.monotonic() < min(end, last + seconds)):
            is_slow = asked - len(found) >= UNANSWERED_MAX and time.monotonic() - last < NEXT_SECONDS
            if asked < len(ids) and not is_slow:
                self._publish(ids[asked : asked + self._chunk], function, arguments, kwarg, kind)
                asked, last = asked + self._chunk, time.monotonic()
            for tag, data in self.events(0.5):
                answer = self.returned(tag, data)
                if answer is not None and answer[0] is kind:
                    found[answer[1]] = answer[2]
                    if len(found) == max(1, int(MOST * len(ids))):
                        now = time.monotonic()
                        end = now + (now - begun) + GRACE_SECONDS
        return found
