"""Whether the subscription to each master stands: what the transport itself knows of its peer, not only that the kernel has made a connection.

The kernel makes a TCP connection also to a publisher that stands still, or to a proxy without one. ZeroMQ's subscriber first shakes hands with the
publisher; its socket's monitor tells when that has succeeded, and when the connection is gone. Two websockets shake hands by HTTP. Plain TCP has
nothing of that kind.

A monitor is a socket of the same context, which is read here without waiting: no thread, no callback of the loop. `PublishClient.close` ends it first:
a context waits for all its sockets. A socket has one monitor; where Salt has its own (`zmq_monitor`), that one is listened to.
"""

import logging
import os
import sys
import weakref

log = logging.getLogger(__name__)
# A publisher that comes and goes makes a few events a second; more than these are read at the next look.
MOST_EVENTS = 1000
# Salt's loop may stand still for minutes: the monitor must not wait for it, as ZeroMQ's own thread would then wait, too.
NO_LIMIT = 0
# What a report says of a subscription that does not stand; None: nobody can tell.
MISSING = 0


class Subscriber:
    """The subscription of one transport."""

    def __init__(self, told):
        # The number of the handshake that stands; MISSING; None: not known.
        self.told = told
        self.monitor = None


class Handshakes:
    """Those of all masters."""

    def __init__(self, attempt, zmq=None):
        self.attempt = attempt
        self._zmq = zmq
        self._subscribers = weakref.WeakKeyDictionary()
        # Of websockets: the open one, and the number of its handshake.
        self._streams = weakref.WeakKeyDictionary()
        # No two handshakes of this process have one number, also where Salt begins again with other transports.
        self._number = 0
        # By the address of ZeroMQ's own socket: Salt's monitor knows no more of whom it watches.
        self._by_socket = weakref.WeakKeyDictionary()

    def begin(self, channel):
        """A channel is about to connect, and nothing can be missed."""
        self.attempt("watch a subscription", lambda: self._watch(getattr(channel, "transport", None), True))

    def look(self, minions):
        """Once a round: read what the monitors tell."""
        for minion in minions:
            transport = self._transport(minion)
            if transport is not None and transport not in self._subscribers:
                self.attempt("watch a subscription", lambda transport=transport: self._watch(transport, False))
        for subscriber in list(self._subscribers.values()):
            if subscriber.monitor is not None:
                self.attempt("read a monitor", lambda subscriber=subscriber: self._read(subscriber))

    def told(self, minion):
        """What the report says of this minion object's subscription."""
        transport = self._transport(minion)
        subscriber = self._subscribers.get(transport) if transport is not None else None
        if subscriber is not None:
            return subscriber.told
        return self.attempt("look at a stream", lambda: self._of_a_stream(transport))

    def heed(self, socket, message):
        """What Salt's own monitor of a socket has received."""
        subscriber = self._by_socket.get(socket)
        if subscriber is not None and subscriber.monitor is None:
            self._note(subscriber, message)

    def end(self, transport):
        """A transport is about to be closed."""
        subscriber = self._subscribers.pop(transport, None)
        if subscriber is not None and subscriber.monitor is not None:
            monitor, subscriber.monitor = subscriber.monitor, None
            monitor.close(0)

    def _next(self):
        self._number += 1
        return self._number

    @staticmethod
    def _transport(minion):
        return getattr(getattr(minion, "pub_channel", None), "transport", None)

    def _watch(self, transport, from_the_start):
        zmq = self._zmq or sys.modules.get("zmq")
        socket = getattr(transport, "_socket", None)
        if zmq is None or not isinstance(socket, zmq.Socket) or not hasattr(zmq, "EVENT_HANDSHAKE_SUCCEEDED"):
            return
        if transport in self._subscribers:
            return
        # Also where this fails: it is not tried again.
        subscriber = self._subscribers[transport] = Subscriber(None)
        if getattr(transport, "_monitor", None) is not None:
            self._by_socket[socket] = subscriber
        else:
            subscriber.monitor = self._attach(zmq, socket)
        # Of a connection from before the monitor nothing is known.
        subscriber.told = MISSING if from_the_start else None

    @staticmethod
    def _attach(zmq, socket):
        """A monitor of its own: plain also where the subscriber is asyncio's, and unknown to pyzmq's `get_monitor_socket`."""
        way = f"inproc://sidle-monitor-{os.getpid()}-{id(socket):x}"
        # The context that has the subscriber: it closes what is left when it is destroyed.
        kind = {} if type(socket) is zmq.Socket else {"socket_class": zmq.Socket}
        monitor = socket.context.socket(zmq.PAIR, **kind)
        try:
            monitor.setsockopt(zmq.LINGER, 0)
            monitor.setsockopt(zmq.RCVHWM, NO_LIMIT)
            socket.monitor(way, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CONNECTED | zmq.EVENT_DISCONNECTED)
            monitor.connect(way)
        except Exception:
            monitor.close(0)
            raise
        return monitor

    def _read(self, subscriber):
        zmq = self._zmq or sys.modules["zmq"]
        for _ in range(MOST_EVENTS):
            try:
                message = subscriber.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            except zmq.ZMQError:
                # Its context was ended by another way: from here on nothing is known.
                monitor, subscriber.monitor, subscriber.told = subscriber.monitor, None, None
                monitor.close(0)
                return
            self._note(subscriber, message)

    def _note(self, subscriber, message):
        zmq = self._zmq or sys.modules["zmq"]
        # The first two bytes are the event, in the order of this machine.
        event = int.from_bytes(bytes(message[0])[:2], sys.byteorder)
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            subscriber.told = self._next()
        elif event in (zmq.EVENT_CONNECTED, zmq.EVENT_DISCONNECTED):
            subscriber.told = MISSING

    def _of_a_stream(self, transport):
        """A transport that is no ZeroMQ's: websockets have shaken hands when they are open; of TCP only its absence is known."""
        kind = getattr(transport, "ttype", None)
        if kind == "ws":
            opened = getattr(transport, "_ws", None)
            if opened is None or opened.closed:
                self._streams.pop(transport, None)
                return MISSING
            if self._streams.get(transport, (None,))[0] != id(opened):
                self._streams[transport] = (id(opened), self._next())
            return self._streams[transport][1]
        if kind == "tcp":
            client = getattr(transport, "message_client", transport)
            return None if getattr(client, "_stream", None) is not None else MISSING
        return None
