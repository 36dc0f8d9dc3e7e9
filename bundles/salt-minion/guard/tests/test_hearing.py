"""What a process hears of its masters: handshakes, jobs that it misses, claims that vanish."""

import os
import pathlib
import shutil
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from sidle_guard import claims, handshakes, missing, owed, subscriptions  # noqa: E402


class Again(Exception):
    """As pyzmq says that there is nothing to read."""


class Socket:
    """As much of pyzmq's as the guard uses."""

    def __init__(self, context=None):
        self.context = context
        self.events, self.closed, self.way = [], False, None

    def setsockopt(self, option, value):
        """Options change nothing here."""

    def monitor(self, way, events):
        self.way = way

    def connect(self, way):
        self.way = way

    def recv_multipart(self, flags):
        if not self.events:
            raise Again
        return [self.events.pop(0).to_bytes(2, sys.byteorder) + b"\0\0\0\0", b"tcp://m"]

    def close(self, linger):
        self.closed = True


HANDSHAKE, CONNECTED, DISCONNECTED = 0x1000, 1, 0x200
ZMQ = types.SimpleNamespace(
    Socket=Socket, PAIR=0, LINGER=0, RCVHWM=0, NOBLOCK=0, Again=Again, ZMQError=OSError,
    EVENT_HANDSHAKE_SUCCEEDED=HANDSHAKE, EVENT_CONNECTED=CONNECTED, EVENT_DISCONNECTED=DISCONNECTED)


class Thing:
    """A channel, a transport or a minion."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


class HandshakesTest(unittest.TestCase):
    """A subscription stands from its handshake to the end of that connection."""

    def setUp(self):
        self.monitors, self.failures = [], []
        context = Thing(socket=self.make)
        self.transport = Thing(ttype="zeromq", _socket=Socket(context))
        self.channel = Thing(transport=self.transport)
        self.minion = Thing(pub_channel=self.channel)
        self.handshakes = handshakes.Handshakes(self.attempt, ZMQ)

    def make(self, kind, **options):
        self.monitors.append(Socket())
        return self.monitors[-1]

    def attempt(self, what, act):
        try:
            return act()
        except Exception:  # noqa: BLE001
            self.failures.append(what)
            return None

    def told_after(self, *events):
        self.monitors[0].events.extend(events)
        self.handshakes.look([self.minion])
        return self.handshakes.told(self.minion)

    def test_a_connection_is_no_handshake_and_each_handshake_has_a_number(self):
        self.handshakes.begin(self.channel)
        self.assertEqual(self.told_after(), 0)
        self.assertEqual(self.told_after(CONNECTED), 0)
        self.assertEqual(self.told_after(HANDSHAKE), 1)
        self.assertEqual(self.told_after(DISCONNECTED), 0)
        self.assertEqual(self.told_after(CONNECTED), 0)
        self.assertEqual(self.told_after(HANDSHAKE, DISCONNECTED, CONNECTED, HANDSHAKE), 3)
        self.assertEqual((len(self.monitors), self.failures), (1, []))

    def test_of_a_connection_that_was_there_before_the_monitor_nothing_is_known_until_it_ends(self):
        self.handshakes.look([self.minion])
        self.assertIsNone(self.told_after())
        self.assertEqual(self.told_after(DISCONNECTED), 0)
        self.assertEqual(self.told_after(CONNECTED, HANDSHAKE), 1)

    def test_the_monitor_ends_before_its_context(self):
        self.handshakes.begin(self.channel)
        self.handshakes.end(self.transport)
        self.assertTrue(self.monitors[0].closed)

    def test_salts_own_monitor_is_listened_to_and_not_taken_away(self):
        self.transport._monitor = object()
        self.handshakes.begin(self.channel)
        self.assertEqual((self.monitors, self.transport._socket.way, self.handshakes.told(self.minion)), ([], None, 0))
        self.handshakes.heed(self.transport._socket, [HANDSHAKE.to_bytes(2, sys.byteorder) + b"\0\0\0\0", b""])
        self.handshakes.heed(Socket(), [DISCONNECTED.to_bytes(2, sys.byteorder) + b"\0\0\0\0", b""])
        self.assertEqual(self.handshakes.told(self.minion), 1)

    def test_a_monitor_that_fails_says_nothing_and_harms_nobody(self):
        self.handshakes.begin(self.channel)
        self.assertEqual(self.told_after(HANDSHAKE), 1)

        def fail(flags):
            raise OSError("the context was terminated")

        self.monitors[0].recv_multipart = fail
        self.handshakes.look([self.minion])
        self.assertIsNone(self.handshakes.told(self.minion))
        self.assertTrue(self.monitors[0].closed)
        self.transport = self.channel.transport = Thing(ttype="zeromq", _socket=Socket(Thing(socket=None)))
        self.handshakes.begin(self.channel)
        self.assertIsNone(self.handshakes.told(self.minion))
        self.assertEqual(self.failures, ["watch a subscription"])

    def test_other_transports_tell_what_they_have(self):
        told = lambda **fields: self.handshakes.told(Thing(pub_channel=Thing(transport=Thing(**fields))))  # noqa: E731
        self.assertEqual(told(ttype="ws", _ws=Thing(closed=False)), 1)
        self.assertEqual(told(ttype="ws", _ws=Thing(closed=True)), 0)
        self.assertEqual(told(ttype="ws", _ws=None), 0)
        self.assertEqual(told(ttype="tcp", _stream=None), 0)
        self.assertIsNone(told(ttype="tcp", _stream=object()), "a connection proves nothing")
        self.assertEqual(told(ttype="tcp", message_client=Thing(_stream=None)), 0)
        self.assertIsNone(self.handshakes.told(Thing()))


class MissingTest(unittest.TestCase):
    """Jobs that only the other process has."""

    def setUp(self):
        self.now, self.first, self.known = 100.0, None, set()
        self.missing = missing.Missing(lambda _, jid: jid in self.known, lambda _: self.first, lambda: self.now)

    def look(self, unclaimed, caught_up=True, role="active", **more):
        peer = {"address": "m", "caught_up": caught_up, "rescued": [], **more}
        if unclaimed is not None:
            peer["unclaimed"] = unclaimed
        self.missing.look(role, [{"leader": 1, "peers": [peer]}])
        return (*self.missing.unheard("m"), self.missing.doubtful("m"))

    def test_each_job_counts_from_its_own_time_until_it_is_heard(self):
        a, b = "20260101000000000001", "20260101000000000002"
        self.assertEqual(self.look([[a, True]]), (1, 100.0, 0))
        self.now += 5
        self.assertEqual(self.look([[a, True], [b, True]]), (2, 100.0, 0))
        self.known.add(a)
        self.assertEqual(self.look([[b, True]]), (1, 105.0, 0))
        self.assertEqual(self.look([]), (1, 105.0, 0), "the list of the other process is short")
        self.assertEqual(self.look([], role="standby"), (0, None, 0), "another trial")

    def test_a_job_from_before_the_subscription_is_explained_by_its_id_or_by_time(self):
        early, first, late = (f"2026010100000000000{number}" for number in (1, 2, 3))
        self.assertEqual(self.look([[early, False]], caught_up=False), (0, None, 1))
        self.first = first
        self.assertEqual(self.look([[early, False]], caught_up=False), (0, None, 0))
        self.assertEqual(self.look([[late, False], ["deploy-42", False]], caught_up=False), (0, None, 2))
        self.now += 60
        self.assertEqual(self.look([[late, False], ["deploy-42", False]]), (0, None, 2), "it has caught up just now")
        self.now += missing.DOUBT_SECONDS
        self.assertEqual(self.look([[late, False], ["deploy-42", False]]), (0, None, 0))

    def test_a_job_that_is_for_the_other_release_alone_has_come_all_the_same(self):
        self.assertEqual(self.look([["1", True]]), (1, 100.0, 0))
        for nothing in (None, {}, {"load": "x"}, {"load": {}}, {"load": {"jid": "1", "tgt": "*"}}):
            self.missing.receive("m", nothing)
        self.assertEqual(self.look([["1", True]]), (1, 100.0, 0))
        self.missing.receive("m", {"enc": "aes", "load": {"jid": "1", "tgt": "saltversion:3006.30", "tgt_type": "grain"}})
        self.assertEqual(self.look([["1", True]]), (0, None, 0))

    def test_a_guard_of_an_older_release_names_what_is_certain(self):
        self.assertEqual(self.look(None, rescued=["1"]), (1, 100.0, 0))


class SubscriptionsTest(unittest.TestCase):
    """A process has caught up with a subscription that stands, not with one that stood."""

    def setUp(self):
        self.now, self.read = 100.0, set()
        self.subscriptions = subscriptions.Subscriptions(lambda _, jid: jid in self.read, clock=lambda: self.now)

    def look(self, seconds=3.0, **peer):
        report = {"leader": 2, "peers": [{"name": "m", "address": "tcp://m", "proven": 1, "first": None, **peer}]}
        for _ in range(int(seconds * 10)):
            self.now += 0.1
            self.subscriptions.look({"tcp://m": "m"}, False, [report])
        return self.subscriptions.caught_up("tcp://m", [2])

    def test_silence_proves_something_only_while_the_subscription_stands(self):
        self.assertFalse(self.look(subscribed=0))
        self.assertFalse(self.look(1.0, subscribed=1))
        self.assertTrue(self.look(subscribed=1))
        self.assertFalse(self.look(subscribed=0))
        self.read.add("1")
        self.assertFalse(self.look(1.0, subscribed=2, first="1"), "a job of the subscription before")
        self.assertTrue(self.look(subscribed=2, first="1"))

    def test_where_nobody_can_tell_the_answer_of_the_master_counts(self):
        self.assertTrue(self.look(subscribed=None))
        self.read.add("1")
        self.assertTrue(self.look(0.2, subscribed=None, first="1"))


class OwedClaimsTest(unittest.TestCase):
    """A claim that vanished is a lost claim."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.claims = claims.Claims(os.path.join(self.directory, "claims"))
        self.owed = owed.OwedClaims(self.claims)
        self.names = [f"{number:032x}" for number in range(300)]
        for name in self.names:
            self.assertTrue(self.claims.take(name))
            self.owed.remember(name, on_disk=True)

    def there(self):
        return sorted(os.listdir(self.claims.directory))

    def test_each_file_that_vanishes_is_made_again(self):
        for gone in (self.names, self.names[:1], self.names[-1:], self.names[150:151], self.names[::3]):
            for name in gone:
                os.unlink(os.path.join(self.claims.directory, name))
            for _ in range(owed.LOOKS_FOR_ALL + 1):
                self.owed.look(beside=True)
            self.assertEqual(self.there(), self.names)
        shutil.rmtree(self.claims.directory)
        self.owed.look(beside=True)
        self.assertEqual(self.there(), self.names)

    def test_who_misses_its_claims_waits_for_those_of_others(self):
        self.assertFalse(self.owed.are_lost())
        os.unlink(os.path.join(self.claims.directory, self.names[-1]))
        self.assertTrue(self.owed.are_lost())

    def test_a_process_alone_keeps_no_names_of_claims_that_it_has_forgotten(self):
        for number in range(5000):
            self.owed.remember(f"{number:032x}", on_disk=True)
            self.owed._mine[f"{number:032x}"] -= owed.OWED_SECONDS + 1
            self.owed.look(beside=False)
        self.assertLess(len(self.owed._round), 3 * len(self.names))
        last = self.names[-1]
        self.owed.remember(last, on_disk=True)
        os.unlink(os.path.join(self.claims.directory, last))
        self.owed.look(beside=True)
        self.assertIn(last, self.there(), "the next look beside another process finds what is missing")

    def test_a_process_alone_looks_for_nothing(self):
        os.unlink(os.path.join(self.claims.directory, self.names[0]))
        self.owed.look(beside=False)
        self.assertEqual(self.there(), self.names[1:])
