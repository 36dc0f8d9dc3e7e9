"""The bus of a master that exists only as values: what events tell, and what the job cache has. Run by `scripts/lint`; needs no Salt."""

import os
import shutil
import sys
import tempfile
import threading
import unittest
from unittest import mock

import bare_salt

with bare_salt.importable():
    from saltext.sidle.fleet import answers, bus

    salt = sys.modules["salt"]

FINE = {"code": 0}


class Master:
    """A master's client and events. `fires`: what a minion fires once a job is published; `stores`: what Salt has checked by then."""

    def __init__(self, place, fires=(), stores=None):
        self.place, self.fires, self.stores, self.queue = place, fires, stores or {}, []

    def run_job(self, ids, function, arguments, **_):
        for each, told in self.stores.items():
            self.store(each, told)
        self.queue += [{"tag": tag, "data": {"return": told}} for tag, told in self.fires]
        return {"jid": "j1", "minions": ids}

    def store(self, minion, told):
        path = os.path.join(bare_salt._jid_dir("j1", os.path.join(self.place, "jobs"), "sha256"), minion)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "return.p"), "w", encoding="utf-8") as file:
            file.write(told if isinstance(told, str) else repr({"return": told, "retcode": 0}))

    def answers(self, minion, told):
        self.store(minion, told)
        self.queue.append({"tag": f"salt/job/j1/ret/{minion}", "data": {"return": told}})

    def get_event(self, no_block, **_):
        assert no_block, "Salt 3007 loses events when it is let wait"
        return self.queue.pop(0) if self.queue else None

    def connect_pub(self, **_):
        return True

    def destroy(self):
        pass


class Buses(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)

    def ask(self, ids, fires, stores, **opts):
        master = Master(self.place, fires, stores)
        salt.client.LocalClient = lambda **_: master
        salt.utils.event.get_event = lambda *_, **__: master
        opts = {"cachedir": self.place, "hash_type": "sha256", "sock_dir": self.place, **opts}
        with bus.Bus(opts) as own:
            return own.ask(ids, "sidle.status", seconds=0.3, read=answers.order)

    def test_what_one_minion_fires_for_another_is_not_believed(self):
        forged = [("salt/job/j1/ret/a", FINE), ("salt/job/j1/ret/b", FINE)]
        self.assertEqual(self.ask(["a", "b"], forged, {}), {}, "nobody has returned")
        refused = {"code": 12, "error": {"class": "conflict", "message": "it belongs to rollout r2"}}
        told = self.ask(["a", "b"], forged, {"b": refused})
        self.assertEqual(told, {"b": {"error": refused["error"]}}, "the return that Salt has checked counts")

    def test_a_return_whose_event_was_lost_comes_all_the_same(self):
        """A minion of a plan was once called offline that had answered within a second."""
        self.assertEqual(self.ask(["a", "b"], [], {"a": FINE}), {"a": {}})
        late = threading.Timer(0.2, Master(self.place).store, ["b", FINE])
        late.start()
        with mock.patch.object(bus, "SWEEP_SECONDS", 0.1), mock.patch.object(bus, "SWEEP_SHARE", 1):
            told = self.ask(["a", "b"], [("salt/job/j1/ret/a", FINE)], {"a": FINE})
        late.join()
        self.assertEqual(told, {"a": {}, "b": {}})

    def test_a_dry_run_waits_for_the_slowest_host_and_another_question_does_not(self):
        """The eighth of eight was once refused with `no answer within 180 s`, though it was asked for some seconds: the other seven were quick."""
        ids = [f"m{each}" for each in range(8)]
        for most, late in ((bus.MOST, {}), (1, {"m7": {}})):
            master = Master(self.place, [(f"salt/job/j1/ret/{each}", FINE) for each in ids[:-1]], dict.fromkeys(ids[:-1], FINE))
            slow = threading.Timer(1.5, master.answers, ["m7", FINE])
            salt.client.LocalClient = lambda master=master, **_: master
            salt.utils.event.get_event = lambda *_, master=master, **__: master
            own = bus.Bus({"cachedir": self.place, "hash_type": "sha256", "sock_dir": self.place})
            with own, mock.patch.object(bus, "GRACE_SECONDS", 0):
                slow.start()
                told = own.ask(ids, "sidle.rehearse", seconds=5, read=answers.order, most=most)
            slow.join()
            self.assertEqual(told, {each: {} for each in ids[:-1]} | late)
            shutil.rmtree(os.path.join(self.place, "jobs"))

    def test_an_answer_comes_once_and_from_nobody_who_was_not_asked(self):
        fires = [(f"salt/job/{jid}/ret/{each}", FINE) for jid in ("j1", "j2") for each in ("a", "c", "a", "../a")]
        fires += [("salt/job/j1", FINE), ("salt/job", 5), ("salt/job/j1/ret/a/b", FINE)]
        master = Master(self.place, fires, {"a": FINE, "c": FINE})
        salt.client.LocalClient = lambda **_: master
        salt.utils.event.get_event = lambda *_, **__: master
        with bus.Bus({"cachedir": self.place, "hash_type": "sha256", "sock_dir": self.place}) as own:
            own.publish(["a", "b"], "sidle.status", kind="status")
            found = [event for _ in range(4) for event in own.events(0.06)]
            self.assertEqual(found, [bus.Returned("status", "a", FINE)])
            master.queue += [{"tag": tag, "data": {}} for tag, _ in fires]
            self.assertEqual([event for _ in range(4) for event in own.events(0.06)], [], "an old answer does not come again")

    def test_other_events_are_given_by_their_tags(self):
        master = Master(self.place)
        salt.client.LocalClient = lambda **_: master
        salt.utils.event.get_event = lambda *_, **__: master
        master.queue = [{"tag": tag, "data": b"x"} for tag in ("20261127", "salt/minion/a/start", "x/job/j1/ret/a", "salt/beacon/a/sidle/committed")]
        with bus.Bus({"cachedir": self.place, "hash_type": "sha256", "sock_dir": self.place}) as own:
            self.assertEqual(list(own.events(0.06)), ["salt/minion/a/start", "salt/beacon/a/sidle/committed"])

    def test_what_cannot_be_read_is_no_answer_of_others(self):
        fires = [(f"salt/job/j1/ret/{each}", FINE) for each in "abcd"]
        stores = {"a": FINE, "b": "{'return': ", "c": "x" * (answers.ANSWER_BYTES + 1), "d": {"code": b"\xff"}}
        told = self.ask(["a", "b", "c", "d"], fires, stores)
        self.assertEqual(told["a"], {})
        for each, words in (("b", "cannot be decoded"), ("c", "more than 1048576 bytes"), ("d", "code is bytes")):
            self.assertIsInstance(told[each], answers.Unreadable)
            self.assertIn(words, str(told[each]))

    def test_a_master_without_a_job_cache_says_so_and_plans_by_events(self):
        fires = [("salt/job/j1/ret/a", FINE)]
        for option, value in (("job_cache", False), ("ext_job_cache", "redis")):
            self.assertEqual(self.ask(["a"], fires, {}, **{option: value}), {"a": {}})
            self.assertIn(option, bus.Bus({option: value}).unchecked)
        self.assertIsNone(bus.Bus({}).unchecked)


if __name__ == "__main__":
    unittest.main()
