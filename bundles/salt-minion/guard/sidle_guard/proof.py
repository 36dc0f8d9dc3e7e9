"""Round trips to the masters, on the supervisor's demand.

Each goes over a channel of its own, so that it neither waits behind the minion's requests nor
disturbs them. It uses the session that the minion signed in with: a forced sign-in would end the
minion (`sys.exit` in salt.crypt) where a master has rejected its key in the meantime.

Not over the minion's bus, as one could from outside: in 3007.17 `SaltEvent.fire_event_async` does not
await what it publishes, so that main never answers there (children wait half a minute for it in vain).
"""

import logging
import time

from .coroutines import finish

log = logging.getLogger(__name__)
TIME_LIMIT_SECONDS = 10
# Any command would do that a master answers only to who it knows, and at once.
COMMAND = "_file_envs"


class Proofs:
    """One round per number: every peer is asked once, or again when it connects later."""

    def __init__(self, loop, spawn):
        self.loop = loop
        self.spawn = spawn
        self.number = 0
        self.finished = 0
        self.proven = {}
        self.details = {}
        self._asked = {}
        self._began = 0.0

    def demand(self, number, names, minions):
        """Go on with the round for `number`; `minions` are the connected ones, by the name of their master."""
        if number <= 0:
            return
        now = time.monotonic()
        if number != self.number:
            self.number, self._began = number, now
            self._asked = {}
        for name, minion in minions.items():
            if name not in self._asked:
                self._asked[name] = now
                self.spawn(lambda name=name, minion=minion: self._ask(number, name, minion))
        for name in names:
            if name not in minions:
                self.details[name] = "not connected"
        open_ends = [name for name in names if self._asked.get(name) != "done"]
        if not open_ends or now - self._began > TIME_LIMIT_SECONDS:
            self.finished = number

    async def _ask(self, number, name, minion):
        """One round trip; its result counts if nobody asked anew in the meantime."""
        import salt.channel.client

        channel, proven, began = None, None, time.monotonic()
        over = [False]

        def give_up():
            if not over[0]:
                self._note(number, name, None, f"no answer within {TIME_LIMIT_SECONDS} s")

        self.loop.call_later(TIME_LIMIT_SECONDS, give_up)
        try:
            channel = salt.channel.client.AsyncReqChannel.factory(minion.opts, io_loop=minion.io_loop)
            await channel.connect()
            answer = await channel.send({"cmd": COMMAND}, timeout=TIME_LIMIT_SECONDS, tries=1)
            if isinstance(answer, (list, tuple)):
                proven, detail = number, f"answered within {time.monotonic() - began:.3f} s"
            else:
                detail = f"answered {COMMAND} with {str(answer)[:100]!r}"
        except Exception as error:  # noqa: BLE001
            detail = f"{type(error).__name__}: {error}"
        over[0] = True
        self._note(number, name, proven, detail)
        await self._close(channel)

    def _note(self, number, name, proven, detail):
        if proven:
            # What succeeded stays, also where a newer question has been asked meanwhile: its number says when that was.
            self.proven[name] = max(proven, self.proven.get(name) or 0)
        if number == self.number:
            self.details[name] = detail
            self._asked[name] = "done"

    @staticmethod
    async def _close(channel):
        """Close it as that version of Salt wants it; a channel that can't be closed harms nobody."""
        try:
            close = getattr(channel, "close_async", None) or getattr(channel, "close", None)
            await finish(close() if close else None)
        except Exception as error:  # noqa: BLE001
            log.debug("sidle-guard: cannot close a channel: %s", error)
