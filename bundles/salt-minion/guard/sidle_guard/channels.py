"""The wrappers of the channels on which publications come: what was read of each, and whether the subscription stands."""

from .coroutines import around


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

        def before(channel, _payload):
            minion = next((found for found in guard.minions() if getattr(found, "pub_channel", None) is channel), None)
            address = minion.opts.get("master_uri") if minion else None
            guard.subscriptions.begin(address)
            return address

        def after(address, decoded):
            guard.subscriptions.end(address)
            guard.attempt("note a publication", lambda: guard.missing.receive(address, decoded()))

        return around(guard, original, before, after)

    def _connect(self, original):
        return around(self.guard, original, lambda channel: self.guard.handshakes and self.guard.handshakes.begin(channel))

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
