"""The masters of minions: what is known of each by the name that a minion has for it. Minions choose these names, so look-ups are few, and end."""

import queue
import socket
import threading
import time

import salt.utils.network
import salt.version

from . import agree
from .verdicts import Master

#: So many names of masters are looked up for a plan, each once, the most frequent first: no minion makes this master ask for more.
LOOKED_UP_MAX = 64

#: So long they take, all together, in so many threads. A name that is not resolved by then is not known.
LOOK_UP_SECONDS = 10
THREADS = 8


def resolved(names, seconds=LOOK_UP_SECONDS):
    """Returns the addresses of each of these names that is resolved in time; none where there is no such name."""
    found, waiting, end = {}, queue.SimpleQueue(), time.monotonic() + seconds
    for name in names:
        waiting.put(name)

    def work():
        while time.monotonic() < end:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                found[name] = {each[4][0] for each in socket.getaddrinfo(_host(name), None)}
            except (OSError, ValueError):
                # No such host, or no name that the resolver takes.
                found[name] = set()

    # A resolver cannot be stopped: it ends by itself, and keeps no process.
    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(THREADS, len(names)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return found.copy()


def _host(name):
    return name.rsplit(":", 1)[0] if name.count(":") == 1 else name.strip("[]")


class Masters:
    """
    This master knows itself; of others it knows what their sealed cards have told `sidle.masters`, unless its configuration says something:
    `sidle: {masters: {NAME: {version: 3007.17, minimum_auth_version: 3}}}`.
    """

    def __init__(self, opts):
        self._opts, self._told = opts, (opts.get("sidle") or {}).get("masters") or {}
        self._addresses, self._resolved, self._heard = None, {}, agree.heard(opts)
        #: The names that minions have for this master, and how many names nobody looked up.
        self.own_names, self.unresolved = [], 0

    def this(self):
        """Returns this master."""
        return Master(salt.version.__version__, int(self._opts.get("minimum_auth_version") or 0))

    def look_up(self, lists):
        """Resolves the names in these lists, so that `of` knows them."""
        counts = {}
        for name in (name for each in lists for name in each if name not in self._told and name not in self._resolved):
            counts[name] = counts.get(name, 0) + 1
        # The names that honest minions share come before those that one of them made up.
        asked = sorted(counts, key=lambda name: (-counts[name], name))[:LOOKED_UP_MAX]
        self._resolved |= resolved(asked)
        self.unresolved += sum(name not in self._resolved for name in counts)

    def of(self, names):
        """Returns the masters of a minion that has these names for them."""
        found, unknown = {}, []
        for name in names:
            own = self._told.get(name)
            if own:
                found[name] = Master(str(own["version"]) if own.get("version") else None, own.get("minimum_auth_version"))
            elif self._is_own(name):
                found[name] = self.this()
            elif name in self._heard or _host(name) in self._heard:
                # A card has the name without its port.
                found[name] = self._heard.get(name) or self._heard[_host(name)]
            else:
                unknown.append(name)
        self.own_names += [name for name, master in found.items() if master == self.this() and name not in self.own_names]
        if self.this() not in found.values():
            # It answers this master, whatever it calls it.
            found[unknown.pop() if len(unknown) == 1 and not found else self._opts.get("id", "this one")] = self.this()
        return {**found, **{name: Master() for name in unknown}}

    def _is_own(self, name):
        return bool(self._resolved.get(name, set()) & self._own_addresses())

    def _own_addresses(self):
        """Returns where this master listens: two masters may share a host."""
        if self._addresses is None:
            interface = self._opts.get("interface")
            if interface in (None, "0.0.0.0", "::"):
                own = salt.utils.network.ip_addrs(include_loopback=True) + salt.utils.network.ip_addrs6(include_loopback=True)
                self._addresses = set(own)
            else:
                self._addresses = {interface}
        return self._addresses
