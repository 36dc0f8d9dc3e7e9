"""The wrappers of the channels on which publications come: what was read of each, and whether the subscription stands."""

import inspect


def when_done(done, act):
    """Act once one of Salt's functions has done its work: now, or when its future says so."""
    if hasattr(done, "add_done_callback"):
        done.add_done_callback(lambda _: act())
    else:
        act()


def result_of(done):
    """What one of Salt's futures that is done gives; None: nothing."""
    return done.result() if hasattr(done, "exception") and done.exception() is None else None


class ChannelWrappers:
    """A part of the wrappers: `guard` and `_plan` are those of the whole."""

    def _plan_monitors(self):
        """What `handshakes` needs; a Salt without it tells of no handshake."""
        import salt.transport.zeromq

        client = getattr(salt.transport.zeromq, "PublishClient", None)
        if not hasattr(client, "close"):
            self.guard.handshakes = None
            return
        self._plan(client, "close", self._close_transport)
        monitor = getattr(salt.transport.zeromq, "ZeroMQSocketMonitor", None)
        if hasattr(monitor, "monitor_callback"):
            self._plan(monitor, "monitor_callback", self._monitor_callback)

    def _decode_payload(self, original):
        guard = self.guard

        def begin(channel):
            minion = next((found for found in guard.minions() if getattr(found, "pub_channel", None) is channel), None)
            address = minion.opts.get("master_uri") if minion else None
            guard.subscriptions.begin(address)
            return address

        async def later(self, payload):
            if not guard.acts():
                return await original(self, payload)
            address = begin(self)
            try:
                decoded = await original(self, payload)
            finally:
                guard.subscriptions.end(address)
            guard.attempt("note a publication", lambda: guard.missing.receive(address, decoded))
            return decoded

        def at_once(self, payload):
            if not guard.acts():
                return original(self, payload)
            address = begin(self)
            done = None

            def end():
                guard.subscriptions.end(address)
                guard.attempt("note a publication", lambda: guard.missing.receive(address, result_of(done)))

            try:
                done = original(self, payload)
            finally:
                when_done(done, end)
            return done

        return later if inspect.iscoroutinefunction(original) else at_once

    def _connect(self, original):
        guard = self.guard

        def begin(channel):
            if guard.acts() and guard.handshakes:
                guard.handshakes.begin(channel)

        async def later(self):
            begin(self)
            return await original(self)

        def at_once(self):
            begin(self)
            return original(self)

        return later if inspect.iscoroutinefunction(original) else at_once

    def _close_transport(self, original):
        guard = self.guard

        def close(self):
            # In a job's process, too: what it has inherited is not its own, and pyzmq knows that.
            if guard.handshakes:
                guard.attempt("end a monitor", lambda: guard.handshakes.end(self))
            return original(self)

        return close

    def _monitor_callback(self, original):
        guard = self.guard

        def monitor_callback(self, message):
            if guard.acts() and guard.handshakes:
                guard.attempt("heed Salt's monitor", lambda: guard.handshakes.heed(self._socket, message))
            return original(self, message)

        return monitor_callback
