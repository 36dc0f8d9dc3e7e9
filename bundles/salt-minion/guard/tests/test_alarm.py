"""A clock that is set back stops no guard."""

import pathlib
import queue
import sys
import time
import types
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from sidle_guard import alarm, guard, slot  # noqa: E402


class Loop:
    """A loop by the wall clock; it runs a callback when it is asked to. The second one from another thread ends that thread."""

    time_func = staticmethod(time.time)

    def __init__(self):
        self.callbacks, self.timers, self.rung = queue.SimpleQueue(), [], False

    def add_callback(self, act):
        if self.rung:
            raise SystemExit
        self.rung = True
        self.callbacks.put(act)

    def call_later(self, seconds, act):
        self.timers.append(act)
        return act

    def remove_timeout(self, timer):
        self.timers.remove(timer)


class AlarmTest(unittest.TestCase):
    """Who is late is called; who is not is left alone."""

    def setUp(self):
        for name, seconds in (("INTERVAL_SECONDS", 0.01), ("LATE_SECONDS", 0.03)):
            patched = unittest.mock.patch.object(alarm, name, seconds)
            patched.start()
            self.addCleanup(patched.stop)

    def test_a_guard_whose_timer_does_not_come_looks_all_the_same_and_has_one_timer_then(self):
        loop = Loop()
        manager = types.SimpleNamespace(opts={"master": "m"}, io_loop=loop, minions=[])
        paths = types.SimpleNamespace(refused=None, sock_dir=None, loaded_signature=None, default_sock_dir=None, default_pidfile=None)
        made = guard.Guard(manager, slot.Slot("/nonexistent", 1, "active"), paths)
        looks = []
        made._look, made.write_report = lambda: looks.append(1), lambda: None
        made.uses = types.SimpleNamespace(look=lambda _: None)
        made.begin()
        self.assertEqual((len(looks), len(loop.timers)), (1, 1))
        # Its clock was set back: the timer is not due.
        loop.callbacks.get(timeout=10)()
        self.assertEqual((len(looks), len(loop.timers)), (2, 1))

    def test_a_call_that_comes_late_itself_does_nothing_more(self):
        loop, acts = Loop(), []
        late = alarm.Alarm(loop, lambda: acts.append(1))
        late.begin()
        ring = loop.callbacks.get(timeout=10)
        late.beat()
        with unittest.mock.patch.object(alarm, "LATE_SECONDS", 60):
            ring()
        self.assertEqual(acts, [])

    def test_a_loop_with_a_clock_of_its_own_is_not_watched(self):
        with unittest.mock.patch.object(alarm.threading, "Thread") as thread:
            alarm.Alarm(types.SimpleNamespace(), None).begin()
            alarm.Alarm(types.SimpleNamespace(time_func=time.monotonic), None).begin()
        thread.assert_not_called()


if __name__ == "__main__":
    unittest.main()
