"""The parts that know nothing of Salt: python3 -m unittest discover -s bundles/salt-minion/guard"""

import contextlib
import datetime
import functools
import gc
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import weakref

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from sidle_guard import (  # noqa: E402
    claims,
    damage,
    events,
    gate,
    handover,
    joblog,
    jobs,
    masters,
    owed,
    paths,
    proof,
    quiet,
    report,
    roles,
    slot,
)
from sidle_guard.decision import DROP, HOLD, RUN, decide, missed  # noqa: E402

EARLY, LATE = "20260101000000000001", "20260101000000000002"


class DamageTest(unittest.TestCase):
    """A job waits while its tree is mended, is tried again where that helps, and is answered where it doesn't."""

    class Minion:
        """As much of Salt's as a job needs."""

        def __init__(self):
            self.answers = []

        def _execute_job_function(self):
            return "done"

        def _return_pub(self, answer):
            self.answers.append(answer)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.slot = slot.Slot(self.folder.name, 1, "active")
        self.minion = self.Minion()
        self.data = {"jid": "1", "fun": "test.ping", "arg": []}
        self.starts = 0

    def mending(self, seconds):
        with open(self.slot.path("mending"), "w", encoding="utf-8") as file:
            file.write(str(slot.seconds_since_boot() + seconds))

    def run_job(self, fails, then=lambda: None):
        def start():
            self.starts += 1
            if self.starts <= fails:
                then()
                raise ImportError("No module named 'salt.exceptions'")
            self.minion._execute_job_function()
            self.minion._return_pub({"return": True})

        return damage.run(self.slot, self.minion, self.data, start)

    def test_a_whole_tree_costs_nothing(self):
        self.run_job(0)
        self.assertEqual((self.starts, len(self.minion.answers)), (1, 1))

    def test_a_job_waits_while_the_tree_is_mended_and_not_for_a_word_that_is_old(self):
        self.mending(0.3)
        self.assertFalse(damage.is_mended(self.slot))
        self.assertTrue(damage.wait(self.slot))
        self.assertTrue(damage.is_mended(self.slot))
        self.assertFalse(damage.wait(self.slot))

    def test_a_job_that_failed_before_its_function_is_tried_again_once_it_is_mended(self):
        self.run_job(1, lambda: self.mending(0.2))
        self.assertEqual((self.starts, self.minion.answers), (2, [{"return": True}]))

    def test_a_job_that_fails_again_is_answered_once(self):
        with self.assertRaises(ImportError):
            self.run_job(2, lambda: self.mending(0.2))
        self.assertEqual((self.starts, len(self.minion.answers)), (2, 1))
        self.assertIn("No module named 'salt.exceptions'", self.minion.answers[0]["return"])
        self.assertFalse(self.minion.answers[0]["success"])

    def test_a_job_whose_function_has_begun_is_never_run_twice(self):
        def start():
            self.starts += 1
            self.minion._execute_job_function()
            raise ImportError("later")

        self.mending(-1)
        with self.assertRaises(ImportError):
            damage.run(self.slot, self.minion, self.data, start)
        self.assertEqual((self.starts, self.minion.answers), (1, []))


class RolesTest(unittest.TestCase):
    """What the supervisor writes is understood, and nothing else is believed."""

    TEXT = "sidle-gate 1\nserial 42\nslot 1234 draining boot\nslot 1300 active switch\nannounce 1300\nprove 17\n"

    def test_reads_what_the_protocol_says(self):
        found = roles.parse(self.TEXT)
        self.assertEqual((found.serial, found.prove, found.announce), (42, 17, {1300}))
        self.assertEqual(found.slots, {1234: ("draining", "boot"), 1300: ("active", "switch")})

    def test_one_process_alone_may_be_asked_to_prove(self):
        self.assertEqual(roles.parse("sidle-gate 1\nprove 3\n").provers, frozenset())
        self.assertEqual(roles.parse("sidle-gate 1\nprove 3\nprover 7\n").provers, frozenset({7}))

    def test_unknown_lines_are_ignored(self):
        self.assertEqual(roles.parse(self.TEXT + "weather fine today\n\n"), roles.parse(self.TEXT))

    def test_another_protocol_or_role_is_refused(self):
        for text in ("", "sidle-gate 2\nserial 1\n", "sidle-gate 1\nslot 5 lazy boot\n",
                     "sidle-gate 1\nslot x active boot\n", "sidle-gate 1\nserial many\n"):
            with self.assertRaises(ValueError):
                roles.parse(text)

    def test_the_last_roles_stay_when_the_file_is_unreadable(self):
        with tempfile.TemporaryDirectory() as folder:
            file = roles.RolesFile(os.path.join(folder, "roles"))
            self.assertIsNone(file.read())
            slot.replace_file(file.path, self.TEXT)
            self.assertEqual(file.read().serial, 42)
            slot.replace_file(file.path, "nonsense")
            self.assertEqual(file.read().serial, 42)
            os.unlink(file.path)
            self.assertEqual(file.read().serial, 42)
            slot.replace_file(file.path, self.TEXT.replace("42", "43"))
            self.assertEqual(file.read().serial, 43)


class ClaimsTest(unittest.TestCase):
    """A job is claimed once."""

    def test_the_name_is_the_protocols(self):
        expected = hashlib.sha256(b"tcp://m:4506\n2026").hexdigest()[:32]
        self.assertEqual(claims.name("tcp://m:4506", "2026"), expected)

    def test_only_the_first_gets_it_and_a_missing_directory_is_made(self):
        with tempfile.TemporaryDirectory() as folder:
            directory = claims.Claims(os.path.join(folder, "claims"))
            self.assertFalse(directory.taken("a"))
            self.assertTrue(directory.take("a"))
            self.assertTrue(directory.taken("a"))
            self.assertFalse(claims.Claims(directory.directory).take("a"))

    def test_an_unusable_directory_is_no_answer(self):
        with tempfile.NamedTemporaryFile() as file, self.assertRaises(OSError):
            claims.Claims(file.name).take("a")

    def clean(self, folder, after):
        """The claims that are left by a cleaner so many seconds from now, whatever the time of day."""
        now = slot.seconds_since_boot()
        with unittest.mock.patch.object(claims, "seconds_since_boot", lambda: now + after):
            claims.Claims(folder).clean()
        return sorted(os.listdir(folder))

    def test_claims_are_kept_for_an_hour_after_they_were_seen_also_by_another_cleaner(self):
        with tempfile.TemporaryDirectory() as folder:
            directory = claims.Claims(folder)
            directory.take("old")
            self.assertEqual(self.clean(folder, 0), ["old"])
            directory.take("new")
            self.assertEqual(self.clean(folder, 3590), ["new", "old"])
            self.assertEqual(self.clean(folder, 3610), ["new"])
            self.assertEqual(self.clean(folder, 7100), ["new"])
            self.assertEqual(self.clean(folder, 7200), [])

    def test_a_clock_that_jumps_neither_removes_a_claim_nor_keeps_it(self):
        day = 86400
        for made_at in (0, time.time() - day, time.time() + day):
            with tempfile.TemporaryDirectory() as folder:
                claims.Claims(folder).take("a")
                os.utime(os.path.join(folder, "a"), (made_at, made_at))
                self.assertEqual(self.clean(folder, 0), ["a"])
                self.assertEqual(self.clean(folder, 3500), ["a"])
                # A guard of before goes by this time.
                self.assertEqual(os.stat(os.path.join(folder, "a")).st_mtime, made_at)
                self.assertEqual(self.clean(folder, 3601), [])

    def test_claims_of_another_boot_are_seen_anew(self):
        with tempfile.TemporaryDirectory() as folder:
            claims.Claims(folder).take("a")
            self.assertEqual(self.clean(folder, 10**6), ["a"])
            self.assertEqual(self.clean(folder, 0), ["a"])
            self.assertEqual(self.clean(folder, 3601), [])


class DecisionTest(unittest.TestCase):
    """Each role, as the protocol describes it."""

    def test_roles(self):
        for role, waited, closed, lost, verdict in (
            ("active", 0, False, False, RUN), ("active", 0, True, False, RUN),
            ("standby", 0, False, True, HOLD), ("standby", 1.9, False, False, HOLD), ("standby", 2, False, False, RUN),
            ("draining", 0, False, False, HOLD), ("draining", 0, False, True, RUN), ("draining", 2, False, False, RUN),
            ("closed", 0, True, False, DROP), ("closed", 5, True, True, DROP),
            ("closed", 0, False, False, HOLD), ("closed", 0, False, True, RUN), ("closed", 2, False, False, RUN),
        ):
            with self.subTest(role=role, waited=waited, closed=closed, lost=lost):
                self.assertEqual(decide(role, waited, closed, lost), verdict)

    def test_missed_only_if_the_other_provably_listened_later(self):
        other = {"peers": [{"address": "tcp://m", "first": LATE}]}
        self.assertTrue(missed(EARLY, "tcp://m", [other]))
        self.assertFalse(missed(LATE, "tcp://m", [other]))
        self.assertFalse(missed(EARLY, "tcp://another", [other]))
        self.assertFalse(missed(EARLY, "tcp://m", [{"peers": [{"address": "tcp://m", "first": None}]}]))
        self.assertFalse(missed("own-id", "tcp://m", [other]))
        self.assertFalse(missed(EARLY, "tcp://m", []))


class Minion:
    """As much of one as the gate looks at."""

    def __init__(self, uri="tcp://m"):
        self.opts = {"master_uri": uri}


class GateTest(unittest.TestCase):
    """Two processes at one directory."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.directory = os.path.join(folder.name, "claims")
        self.role, self.ran, self.reports, self.steps = "active", [], [], []
        self.minion = Minion()
        self.gate = self.make()

    def make(self):
        return gate.Gate(claims.Claims(self.directory), lambda: self.role, lambda: self.reports,
                         lambda minion, data: self.ran.append(data), lambda *step: self.steps.append(step))

    def arrive(self, jid, **more):
        return self.gate.arrive(self.minion, {"jid": jid, "fun": "test.ping", **more})

    def age(self, seconds=3):
        for held in self.gate.held.values():
            held.since -= seconds

    def test_active_runs_what_arrives_once(self):
        self.assertEqual(self.arrive("1"), gate.RUN)
        self.assertEqual(self.arrive("1"), DROP)
        self.assertEqual(self.make().arrive(self.minion, {"jid": "1", "fun": "test.ping"}), DROP)

    def test_every_step_is_told_to_the_job_log(self):
        self.arrive("1")
        self.arrive("1")
        self.role = "standby"
        self.arrive("2")
        self.assertEqual(self.steps, [("heard", "1"), ("claimed", "1"), ("again", "1"), ("heard", "2")])
        self.role = "closed"
        self.arrive("3")
        self.role = "active"
        self.gate.look_again()
        self.assertEqual(self.steps[4:], [("heard", "3"), ("dropped", "3"), ("claimed", "2")])

    def test_held_jobs_follow_a_new_role(self):
        self.role = "standby"
        self.assertEqual(self.arrive("1"), gate.HOLD)
        self.gate.look_again()
        self.assertEqual(self.ran, [])
        self.role = "active"
        self.gate.look_again()
        self.assertEqual([data["jid"] for data in self.ran], ["1"])
        self.assertEqual(self.gate.held, {})

    def test_a_held_job_is_dropped_when_the_other_has_it(self):
        self.role = "standby"
        self.arrive("1")
        claims.Claims(self.directory).take(claims.name("tcp://m", "1"))
        self.age()
        self.gate.look_again()
        self.assertEqual((self.ran, self.gate.held), ([], {}))

    def test_nobody_has_it_after_two_seconds(self):
        for self.role in ("standby", "draining"):
            self.arrive(self.role)
            self.age()
            self.gate.look_again()
        self.assertEqual([data["jid"] for data in self.ran], ["standby", "draining"])

    def test_what_another_process_owes_is_waited_for(self):
        os.makedirs(self.directory)
        ready, go = os.pipe(), os.pipe()
        other = os.fork()
        if other == 0:
            owing = claims.Claims(self.directory)
            owing.prepare()
            owing.owe(True)
            os.write(ready[1], b".")
            os.read(go[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        self.role = "draining"
        self.gate.look_again()
        self.arrive("1")
        self.age()
        self.gate.look_again()
        self.assertEqual((self.ran, len(self.gate.held)), ([], 1))
        # Also by a process that has become active since: it ran what the other one was still at. What comes then is its own.
        self.role = "active"
        self.gate.look_again()
        self.assertEqual((self.ran, len(self.gate.held)), ([], 1))
        self.assertEqual(self.arrive("2"), gate.RUN)
        os.write(go[1], b".")
        os.waitpid(other, 0)
        self.gate.look_again()
        self.assertEqual([data["jid"] for data in self.ran], ["1"])

    def full(self, room):
        """From now on there is room for so many more claims."""
        take = self.gate.claims.take

        def taking(claim):
            nonlocal room
            if room == 0:
                raise OSError(28, "No space left on device")
            room -= 1
            return take(claim)

        self.gate.claims.take = taking

    def test_without_room_the_active_one_runs_what_it_hears_and_the_other_what_that_never_heard(self):
        os.makedirs(self.directory)
        self.full(1)
        self.role = "draining"
        self.arrive("1")
        self.age()
        with self.assertLogs("sidle_guard.gate", "ERROR"):
            self.gate.look_again()
        self.assertEqual((self.ran, os.listdir(self.directory)), ([], []))
        self.role = "active"
        self.assertEqual(self.arrive("2"), gate.RUN)
        self.role = "draining"
        self.reports = [{"peers": [{"address": "tcp://m", "first": "20260101000000000002"}]}]
        self.assertEqual(self.arrive("20260101000000000001"), gate.RUN)

    def is_owed_for_another(self):
        other = os.fork()
        if other == 0:
            looking = claims.Claims(self.directory)
            looking.prepare()
            os._exit(int(looking.others_owe()))
        return os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) == 1

    def test_a_claim_that_can_never_be_made_is_owed_no_longer_than_its_job_may_be_held(self):
        os.makedirs(self.directory)
        self.gate.look_again()
        self.full(0)
        with self.assertLogs("sidle_guard.gate", "ERROR"):
            self.assertEqual(self.arrive("1"), gate.RUN)
        self.gate.look_again()
        self.assertTrue(self.is_owed_for_another())
        for claim in self.gate.owed._owed:
            self.gate.owed._owed[claim] -= owed.OWED_SECONDS + 1
        self.gate.look_again()
        self.assertFalse(self.is_owed_for_another())

    def test_closed_drops_what_comes_and_decides_what_came(self):
        self.role = "draining"
        self.arrive("1")
        self.role = "closed"
        self.assertEqual(self.arrive("2"), DROP)
        self.age()
        self.gate.look_again()
        self.assertEqual([data["jid"] for data in self.ran], ["1"])

    def test_what_has_no_claim(self):
        self.role = "closed"
        for data in ({"jid": "req"}, {"jid": "1", "__ignore_process_count_max": True}, {"jid": "1", "_state_queue_file": "f"}):
            self.assertEqual(self.gate.arrive(self.minion, data), gate.RUN)
        self.assertFalse(os.path.exists(self.directory))

    def test_jobs_of_resources_share_the_fate_of_their_job(self):
        self.assertEqual(self.arrive("1"), gate.RUN)
        self.assertEqual(self.arrive("1", resource_job=True, resource=1), gate.RUN)
        self.role = "standby"
        self.assertEqual(self.arrive("2"), gate.HOLD)
        self.assertEqual(self.arrive("2", resource_job=True), gate.HOLD)
        self.role = "active"
        self.gate.look_again()
        self.assertEqual(len(self.ran), 2)
        # The minion itself was no target.
        self.assertEqual(self.arrive("3", resource_job=True), gate.RUN)
        self.assertEqual(self.arrive("3", resource_job=True), gate.RUN)

    def test_one_job_through_two_masters_runs_once(self):
        self.assertEqual(self.arrive("1"), gate.RUN)
        other = self.make()
        self.assertEqual(other.arrive(Minion("tcp://n"), {"jid": "1", "fun": "test.ping"}), DROP)
        self.assertEqual(self.gate.arrive(Minion("tcp://n"), {"jid": "1", "fun": "test.ping"}), DROP)

    def test_an_active_one_loses_nothing_for_lack_of_a_directory(self):
        with open(self.directory, "w", encoding="utf-8"):
            pass
        with self.assertLogs("sidle_guard.gate"):
            self.assertEqual(self.arrive("1"), gate.RUN)
        self.role = "draining"
        self.assertEqual(self.arrive("2"), gate.HOLD)
        self.age()
        self.gate.look_again()
        self.assertEqual(self.ran, [])

    def test_what_ran_without_a_claim_is_claimed_as_soon_as_that_can_be_done(self):
        directory = self.gate.claims.directory
        # A file in its place: nothing can be made below it.
        with open(directory, "w", encoding="utf-8"):
            pass
        self.assertEqual(self.arrive("1"), gate.RUN)
        os.unlink(directory)
        self.gate.look_again()
        self.role = "draining"
        other = self.make()
        self.assertEqual(other.arrive(self.minion, {"jid": "1", "fun": "test.ping"}), gate.HOLD)
        for held in other.held.values():
            held.since -= 3
        other.look_again()
        self.assertEqual((self.ran, other.held), ([], {}))

    def test_claims_that_vanish_with_their_directory_are_made_again(self):
        self.gate.look_again()
        self.assertEqual(self.arrive("1"), gate.RUN)
        self.gate.look_again()
        shutil.rmtree(self.directory)
        self.gate.look_again()
        self.assertTrue(self.gate.claims.taken(claims.name("tcp://m", "1")))

    def test_where_nobody_can_claim_the_active_one_runs_everything(self):
        with open(self.gate.claims.directory, "w", encoding="utf-8"):
            pass
        self.role = "draining"
        self.arrive("1")
        self.age()
        self.gate.look_again()
        self.assertEqual((self.ran, self.gate.held), ([], {}))

    def test_counts_by_master(self):
        self.arrive(EARLY), self.arrive(LATE), self.arrive(LATE)
        seen = self.gate.peers["tcp://m"]
        self.assertEqual((seen.first, seen.last, seen.count), (EARLY, LATE, 2))


class HandoverTest(unittest.TestCase):
    """Schedule and beacons go from one process to the next."""

    MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678)

    def merge(self, mine=None, configured=None, known=(), handed=None, handed_known=(), touched=()):
        return handover.merge(mine or {}, configured or {}, set(known), handed, set(handed_known), set(touched))

    def test_counters_survive_the_file(self):
        job = {"function": "test.ping", "seconds": 5, "_next_fire_time": self.MOMENT, "_splay": None, "tags": {"a"}}
        text = handover.encode({"schema": 1, "schedule": {"job": job}})
        self.assertEqual(handover.decode(text)["schedule"]["job"], {**job, "tags": ["a"]})
        with self.assertRaises(ValueError):
            handover.decode("{}")

    def test_counters_are_taken_by_the_same_job_only(self):
        handed = {"a": {"function": "f", "seconds": 5, "_seconds": 5, "_next_fire_time": self.MOMENT, "maxrunning": 1},
                  "b": {"function": "f", "seconds": 5, "_seconds": 5, "_next_fire_time": self.MOMENT}}
        mine = {"a": {"function": "f", "seconds": 5, "enabled": True}, "b": {"function": "f", "seconds": 6}, "enabled": True}
        handover.take_counters(mine, handed, True)
        self.assertEqual(mine["a"]["_next_fire_time"], self.MOMENT)
        self.assertIs(mine["a"]["_run_on_start"], False)
        self.assertNotIn("_next_fire_time", mine["b"])
        self.assertNotIn("_run_on_start", mine["b"])

    def test_a_switch_without_a_word_of_the_former_is_no_start(self):
        mine = {"a": {"function": "f", "seconds": 5, "run_on_start": True}}
        handover.take_counters(mine, None, False)
        self.assertNotIn("_run_on_start", mine["a"])
        handover.take_counters(mine, None, True)
        self.assertIs(mine["a"]["_run_on_start"], False)

    def test_what_was_added_to_the_files_comes_and_what_was_deleted_goes(self):
        old = {"function": "f"}
        merged = self.merge({"kept": old, "gone": {}}, {"kept": {"function": "f"}, "new": {"function": "g"}}, ["kept", "gone"],
                            {"kept": {}, "new": {}}, ["kept", "new", "gone"])
        self.assertEqual(merged, {"kept": {"function": "f"}, "new": {"function": "g"}})
        self.assertIs(merged["kept"], old)

    def test_what_the_former_had_in_memory_only_comes_too(self):
        self.assertEqual(self.merge(handed={"memory": {"function": "f"}}), {"memory": {"function": "f"}})
        self.assertEqual(self.merge(handed={"once": {"function": "f"}}, handed_known=["once"]), {})

    def test_each_process_has_salts_own_jobs(self):
        self.assertEqual(self.merge({"__mine_interval": {"minutes": 60}}, {"__old": {}}, handed={"__mine_interval": {"minutes": 1}}),
                         {"__mine_interval": {"minutes": 60}})

    def test_a_command_here_is_newer_than_the_file(self):
        self.assertEqual(self.merge({"a": {"seconds": 2}}, {"a": {"seconds": 1}, "b": {}}, ["a", "b"], {"b": {}}, ["a", "b"], ["a", "b"]),
                         {"a": {"seconds": 2}})

    def test_a_changed_definition_comes_from_the_file(self):
        merged = self.merge({"a": {"seconds": 2, "_seconds": 2}}, {"a": {"seconds": 3}}, ["a"], {"a": {"seconds": 3}}, ["a"])
        self.assertEqual(merged, {"a": {"seconds": 3}})

    def test_disabled_by_command_stays_disabled(self):
        merged = self.merge({"a": {"seconds": 2, "enabled": True}}, {"a": {"seconds": 2, "enabled": False}}, ["a"])
        self.assertIs(merged["a"]["enabled"], False)

    def test_beacons_are_lists(self):
        merged = self.merge({"load": [{"interval": 1}]}, {"load": [{"interval": 1}]}, ["load"], {"load": [], "ps": [{}]}, ["load"])
        self.assertEqual(merged, {"load": [{"interval": 1}], "ps": [{}]})


class BeaconsTest(unittest.TestCase):
    """What beacons know by having looked goes along, where it can."""

    class Loader(dict):
        """As much of Salt's as is looked at: functions by name, what their modules share, and a module with its own names."""

        def __init__(self, context, status):
            self.pack = {"__context__": context}
            self.names = {"LAST_STATUS": status}
            exec("def beacon(): pass", self.names)
            super().__init__({"service.beacon": self.names["beacon"]})

    def handed(self, memory):
        return handover.decode(handover.encode({"schema": handover.SCHEMA, "beacon_memory": memory}))["beacon_memory"]

    def test_a_service_that_has_not_changed_is_not_told_of_again_and_a_log_is_read_on(self):
        former = self.Loader({"log.loc": 42, "beacon.pkg": {"a": "installed"}}, {"cron": {"running": True, "time": 1.5}})
        fresh = self.Loader({}, {})
        handover.remember_beacons(fresh, self.handed(handover.beacon_memory(former)))
        self.assertEqual(fresh.pack["__context__"], former.pack["__context__"])
        self.assertEqual(fresh.names["LAST_STATUS"], former.names["LAST_STATUS"])

    def test_what_no_file_gives_back_as_it_was_and_what_is_not_known_stays_where_it_is(self):
        former = self.Loader({"log.loc": object(), "beacon.pkg": {1: "x"}, "mine": 1}, {"cron": {"running": {True}}})
        self.assertEqual(handover.beacon_memory(former), {"context": {}, "modules": {}})
        former.pack["__context__"] = None
        self.assertEqual(handover.beacon_memory(former), {"context": {}, "modules": {}})
        # Of a guard that knew more.
        handover.remember_beacons(former, {"modules": {"other": {"a": 1}, "service": [1]}, "context": {"log.loc": 1}})
        self.assertEqual(former.names["LAST_STATUS"], {"cron": {"running": {True}}})


class Process:
    """A child."""

    def __init__(self, name, pid=7):
        self.name, self.pid, self.alive = name, pid, True

    def is_alive(self):
        return self.alive


class JobsTest(unittest.TestCase):
    """What counts as running."""

    def setUp(self):
        self.steps = []
        self.jobs = jobs.Jobs(lambda *step: self.steps.append(step))

    def start(self, jid="1", **more):
        self.jobs.remember({"jid": jid, "fun": "test.sleep", **more}, None)
        process = Process(f"ProcessPayload(jid={jid})")
        self.jobs.add(process, "m", lambda name: None)
        return process

    def test_a_returned_job_is_over_though_its_child_lingers(self):
        self.start()
        self.assertEqual(self.jobs.alive(), [{"id": "1", "what": "test.sleep", "pid": 7}])
        self.jobs.returned("1", "another master")
        self.assertEqual(len(self.jobs.alive()), 1)
        self.jobs.returned("1", "m")
        self.assertEqual(self.jobs.alive(), [])

    def test_with_returners_it_lasts_as_long_as_its_child(self):
        process = self.start(ret="mysql")
        self.jobs.returned("1", "m")
        self.assertEqual(len(self.jobs.alive()), 1)
        process.alive = False
        self.jobs.alive()
        self.jobs.running[0].ended -= jobs.LAST_WORDS_SECONDS
        self.assertEqual(len(self.jobs.alive()), 1)
        self.rest()
        self.assertEqual(self.jobs.alive(), [])

    def test_each_load_of_one_job_is_remembered_until_it_starts(self):
        loads = [{"jid": "1", "fun": "test.ping", "resource_targets": [{"id": "a"}, {"id": "b"}]}] * 3
        for load in loads:
            self.jobs.remember(load, None)
        for _ in loads:
            self.jobs.add(Process("ProcessPayload(jid=1)"), "m", lambda name: None)
            self.jobs.returned("1", "m")
        self.assertEqual(self.jobs.alive(), [{"id": "1", "what": "test.ping", "pid": 7}] * 3, "none has ended with its return")
        self.assertFalse(self.jobs._known, "what has started is not kept")

    def rest(self):
        for _ in range(quiet.LOOKS + 1):
            self.jobs.look()

    def test_what_a_child_said_last_may_wait_on_the_bus_for_long(self):
        process = self.start()
        self.rest()
        process.alive = False
        self.jobs.alive()
        self.jobs.running[0].ended -= 30
        for _ in range(3):
            self.jobs.bus.stir()
            self.jobs.look()
            self.assertEqual(len(self.jobs.alive()), 1, "main is still reading")
        self.rest()
        self.assertEqual(self.jobs.alive(), [])

    def test_a_bus_that_is_never_quiet_is_not_listened_to_for_ever(self):
        process = self.start()
        process.alive = False
        self.jobs.alive()
        self.jobs.bus.stir()
        self.jobs.look()
        self.jobs.running[0].ended -= jobs.LAST_WORDS_MAXIMUM_SECONDS
        self.assertEqual(self.jobs.alive(), [])

    def test_scheduled_jobs_return_by_their_process(self):
        self.jobs.add(Process("Schedule(name=a, b, jid=5)"), None, {"a, b": "state.apply"}.get)
        self.assertEqual(self.jobs.alive(), [{"id": "5", "what": "state.apply", "pid": 7}])
        self.jobs.schedule_returned("a, b", 7)
        self.assertEqual(self.jobs.alive(), [])

    def test_the_job_log_is_told_of_starts_and_returns(self):
        self.start()
        self.jobs.returned("1", "m")
        self.assertEqual(self.steps, [("started", "1"), ("sent", "1")])

    def test_other_processes_are_no_jobs(self):
        self.jobs.add(Process("Engine(x)"), None, lambda name: None)
        self.assertEqual(self.jobs.alive(), [])

    def test_a_job_that_is_about_to_start_counts(self):
        token = self.jobs.begin({"jid": "1"}, "test.ping")
        self.assertEqual(self.jobs.alive(), [{"id": "1", "what": "test.ping", "pid": os.getpid()}])
        self.jobs.begun(token)
        self.assertEqual(self.jobs.alive(), [])


class JobLogTest(unittest.TestCase):
    """Off until somebody makes the file, and never more than it may be."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, joblog.NAME)
        self.log = joblog.JobLog(self.path)

    def lines(self):
        with open(self.path, encoding="utf-8") as file:
            return file.read().splitlines()

    def test_nothing_is_written_until_somebody_makes_the_file(self):
        self.log.write("heard", "1")
        self.assertFalse(os.path.exists(self.path))
        open(self.path, "w", encoding="utf-8").close()
        self.log.write("claimed", "1")
        ((at, pid, step, jid),) = [line.split(" ") for line in self.lines()]
        self.assertEqual((int(pid), step, jid), (os.getpid(), "claimed", "1"))
        self.assertLess(abs(float(at) - time.time()), 60)

    def test_a_jid_of_any_form_is_one_word_of_one_line(self):
        open(self.path, "w", encoding="utf-8").close()
        for jid in ("1 2\n3", "\ud800", "9" * 5000, None):
            self.log.write("heard", jid)
        self.assertEqual([line.split(" ")[3] for line in self.lines()], ["1_2_3", "?", "9" * joblog.LONGEST_JID, "None"])

    def test_it_ends_where_it_would_fill_the_gate(self):
        with open(self.path, "w", encoding="utf-8") as file:
            file.truncate(joblog.MOST_BYTES)
        self.log.write("heard", "1")
        self.assertEqual(os.path.getsize(self.path), joblog.MOST_BYTES)

    def test_what_cannot_be_written_is_no_fault(self):
        os.mkdir(self.path)
        self.log.write("heard", "1")
        os.rmdir(self.path)
        os.mkfifo(self.path)
        self.log.write("heard", "1")


class EventsTest(unittest.TestCase):
    """Commands that come over the bus."""

    def touched(self, schedule):
        class Singletons:
            touched_schedule, touched_beacons, held, owes_schedule_file = set(), set(), False, False

        class Guard:
            singletons = Singletons()
            schedule = staticmethod(lambda: schedule)
            minions = staticmethod(list)
            beside_others = staticmethod(lambda: False)

        load = {"func": "add", "schedule": {"a": {}}, "name": "a", "persist": True}
        with unittest.mock.patch.object(events, "_unpack", lambda package: load):
            events.forward(Guard, b"manage_schedule\n\n")
        return Guard.singletons

    def test_a_refresh_that_comes_before_there_is_anything_to_refresh_is_followed_with_the_singletons(self):
        followed = []

        class Guard:
            singletons = unittest.mock.Mock(held=False, missed={})
            manager = "manager"
            connected = ()
            minions = staticmethod(lambda: Guard.connected)
            peer_names = staticmethod(lambda: ["m"])
            beside_others = staticmethod(lambda: False)
            spawn = staticmethod(lambda start: start())
            original = staticmethod(lambda name: lambda *arguments: followed.append((name.rpartition(".")[2], *arguments)))

        def come():
            with unittest.mock.patch.object(events, "_unpack", lambda package: {}):
                events.forward(Guard, b"pillar_refresh\n\nx")
                events.forward(Guard, b"grains_refresh\n\ny")
                events.forward(Guard, b"pillar_refresh\n\nx")

        for connected, held, expected in ((["minion"], False, []), ([], True, []), ([], False, [b"pillar_refresh\n\nx", b"grains_refresh\n\ny"])):
            Guard.connected, Guard.singletons.held = connected, held
            del followed[:]
            come()
            events.catch_up(Guard)
            self.assertEqual(followed, [("handle_event", "manager", package) for package in expected])
            events.catch_up(Guard)
            self.assertEqual(len(followed), len(expected), "once")

    def test_a_return_that_main_passes_on_is_told_to_the_job_log(self):
        steps = []

        class Guard:
            jobs = globals()["jobs"].Jobs(lambda *step: steps.append(step))
            job_log = unittest.mock.Mock(write=lambda *step: steps.append(step))

        minion = unittest.mock.Mock(opts={"master": "m"})
        tag = b"__master_req_channel_payload/1/m\n\n"
        for load, told in (({"cmd": "_return", "jid": "7"}, [("sending", "7"), ("sent", "7")]), ({"cmd": "_mine"}, [])):
            steps.clear()
            with unittest.mock.patch.object(events, "_unpack", lambda package, load=load: load):
                events.Watch.begin(Guard, minion, tag).end()
            self.assertEqual(steps, told)

    def test_a_return_that_takes_long_keeps_no_copy_of_what_is_sent(self):
        class Load(dict):
            """One that can be waited for."""

        class Guard:
            jobs = globals()["jobs"].Jobs(lambda *step: None)
            job_log = unittest.mock.Mock()

        minion = unittest.mock.Mock(opts={"master": "m"})
        packages = {b"__master_req_channel_payload/1/m\n\n": {"cmd": "_return", "jid": "7"}, b"__schedule_return\n\n": {"schedule": "s", "pid": 7}}
        for package, content in packages.items():
            load = Load(content)
            seen = weakref.ref(load)
            with unittest.mock.patch.object(events, "_unpack", functools.partial(dict.pop, {package: load})):
                watch = events.Watch.begin(Guard, minion, package)
            del load
            gc.collect()
            self.assertIsNone(seen(), package)
            watch.end()

    def test_a_command_that_nobody_follows_yet_does_not_overrule_the_file(self):
        self.assertEqual(self.touched(None).touched_schedule, set())
        followed = self.touched(object())
        self.assertEqual((followed.touched_schedule, followed.owes_schedule_file), ({"a"}, True))


class SlotTest(unittest.TestCase):
    """The environment and the report."""

    def test_a_file_is_replaced_and_never_what_a_link_in_its_way_leads_to(self):
        with tempfile.TemporaryDirectory() as place:
            victim = os.path.join(place, "victim")
            with open(victim, "w", encoding="utf-8") as file:
                file.write("kept")
            os.symlink(victim, os.path.join(place, ".tmp-7"))
            slot.replace_file(os.path.join(place, "7.json"), "{}")
            for path, content in ((victim, "kept"), (os.path.join(place, "7.json"), "{}")):
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(file.read(), content)
            self.assertEqual(sorted(os.listdir(place)), ["7.json", "victim"])

    def test_what_another_user_left_at_the_gate_is_nobodys_word(self):
        with tempfile.NamedTemporaryFile() as file:
            self.assertTrue(slot.is_trusted(file.name))
            if os.geteuid() == 0:
                os.chown(file.name, 12345, -1)
            with unittest.mock.patch.object(slot.os, "geteuid", lambda: 54321):
                self.assertFalse(slot.is_trusted(file.name))

    def test_a_main_whose_parent_is_gone_ends_where_salt_does_not_end_it(self):
        from sidle_guard import guard

        gone = subprocess.Popen(["true"])
        gone.wait()
        for user, leader, ends in ((1000, gone.pid, True), (0, gone.pid, False), (1000, os.getpid(), False), (1000, os.getppid(), False)):
            main = unittest.mock.Mock(slot=slot.Slot("/nowhere", leader, "standby"))
            known = unittest.mock.patch.object(guard.os, "getuid", lambda user=user: user)
            said = self.assertLogs("sidle_guard.guard", "ERROR") if ends else contextlib.nullcontext()
            with known, said, unittest.mock.patch.object(guard.os, "_exit") as left:
                guard.Guard._leave_with_leader(main)
            self.assertEqual(left.called, ends, (user, leader))

    def test_the_environment_is_emptied(self):
        environment = {"SIDLE_GATE": "/g", "SIDLE_LEADER": "5", "SIDLE_ROLE": "standby", "PATH": "/bin"}
        self.assertEqual(slot.Slot.taken_from(environment), ("/g", 5, "standby"))
        self.assertEqual(environment, {"PATH": "/bin"})
        self.assertEqual(slot.Slot.taken_from({"SIDLE_GATE": "/g", "SIDLE_LEADER": "5"}).first_role, "active")

    def test_the_start_time_is_the_kernels(self):
        self.assertIsNone(slot.start_time(2 ** 30))
        self.assertGreater(slot.start_time(os.getpid()), 0)
        ended = subprocess.Popen(["true"])
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        self.assertIsNone(slot.start_time(ended.pid), "a process that its parent has not waited for")
        ended.wait()

    def test_given_up_means_said_so_or_gone(self):
        with tempfile.TemporaryDirectory() as folder:
            place = slot.Slot(folder, os.getpid(), "active")
            others = report.Others(place)
            self.assertTrue(others.has_given_up(2 ** 30, 5))
            self.assertFalse(others.has_given_up(os.getpid(), 5))
            os.mkdir(os.path.join(folder, "slots"))
            for content, given_up in (({"singletons": True, "serial": 5}, False), ({"singletons": False, "serial": 4}, False),
                                      ({"singletons": False, "serial": 5}, True)):
                report.ReportFile(place).write(content, False)
                self.assertEqual(others.has_given_up(os.getpid(), 5), given_up)

    def test_masters_are_called_as_the_configuration_names_them(self):
        several = {"master": ["127.0.0.1:4506", "[::1]:4510", "plain"]}
        for opts, minion, name in (
                (several, {"master": "127.0.0.1", "master_port": 4506}, "127.0.0.1:4506"),
                (several, {"master": "::1", "master_port": 4510}, "[::1]:4510"),
                (several, {"master": "plain", "master_port": 4506}, "plain"),
                (several, {"master": "other", "master_port": 4506}, None),
                ({"master": "a, b:1", "master_type": "failover"}, {"master": "b", "master_port": 1}, "b:1"),
                ({"master": "host:4506"}, {"master": "host", "master_port": 4506}, "host:4506")):
            self.assertEqual(masters.configured_name(opts, minion), name, opts)
        self.assertEqual(masters.configured({"master": "a, b", "master_type": "distributed"}), ["a", "b"])
        self.assertEqual(masters.configured({"master": "a", "master_type": "disable"}), [])

    def test_what_two_processes_of_one_minion_would_do_twice_or_fight_for_refuses_the_overlap(self):
        def refusal(**options):
            with tempfile.TemporaryDirectory() as folder:
                place = paths.Paths(slot.Slot(os.path.join(folder, "gate"), os.getpid(), "active"))
                opts = {"sock_dir": os.path.join(folder, "sockets"), "id": "a", "__role": "minion", **options}
                with unittest.mock.patch.object(sys, "argv", ["salt-minion"]):
                    place.move(opts)
                self.assertEqual(place.refused is None, opts["sock_dir"] == place.sock_dir, "it stays where it is, or moves")
                return place.refused

        self.assertIsNone(refusal())
        self.assertIsNone(refusal(resume_jobs_on_restart=False))
        self.assertIn("resume_jobs_on_restart", refusal(resume_jobs_on_restart=True))
        self.assertIn("ipc_mode", refusal(ipc_mode="tcp"))
        self.assertIn("master_type", refusal(master_type="disable"))

    def test_only_the_main_process_makes_its_directories(self):
        with tempfile.TemporaryDirectory() as folder:
            opts = {"sock_dir": os.path.join(folder, "sockets"), "id": "a", "__role": "minion", "user": "root"}

            def moved(leader, words):
                place = paths.Paths(slot.Slot(os.path.join(folder, "gate"), leader, "active"))
                with unittest.mock.patch.object(sys, "argv", words):
                    place.move(dict(opts))
                    own = place.own("something")
                    for _ in range(2):
                        made = os.path.isdir(place.sock_dir)
                        if made:
                            pathlib.Path(own).touch()
                            place.move(dict(opts))
                            self.assertTrue(os.path.exists(own), "made anew where it is in use")
                return made

            self.assertTrue(moved(os.getppid(), ["salt-minion"]), "a child of Salt's parent is the main process")
            self.assertFalse(moved(os.getpid(), ["salt-minion"]), "Salt's parent is not")
            self.assertTrue(moved(os.getpid(), ["salt-minion", "--disable-keepalive"]), "without a parent it is")
            self.assertFalse(moved(2 ** 30, ["salt-minion"]), "a job is not")

    def test_the_pid_file_argument_is_the_guards(self):
        for words in (["salt-minion", "--pid-file", "/p", "-d"], ["salt-minion", "--pid-file=/p", "-d"]):
            self.assertEqual(paths._take_pidfile_argument(words), "/p")
            self.assertEqual(words, ["salt-minion", "-d"])



class PlacesTest(unittest.TestCase):
    """What a loaded configuration becomes."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir="/tmp")
        self.addCleanup(shutil.rmtree, self.folder)

    def moved(self, role, line, **more):
        """The options of a process of that role, and why it can't overlap; `line`: how the roles name it."""
        gate_folder = os.path.join(self.folder, "gate")
        os.makedirs(gate_folder, exist_ok=True)
        with open(os.path.join(gate_folder, "roles"), "w", encoding="utf-8") as file:
            file.write("\n".join(["sidle-gate 1", "serial 1", *line, ""]))
        place = paths.Paths(slot.Slot(gate_folder, 7, role))
        opts = {"id": "m", "sock_dir": os.path.join(self.folder, "s"), "pidfile": os.path.join(self.folder, "p"),
                "conf_file": os.path.join(self.folder, "minion"), "random_startup_delay": 300, **more}
        place.move(opts)
        return opts, place.refused

    def test_only_a_boot_waits_for_the_sake_of_the_masters(self):
        for role, line, delay in (("active", [], 300), ("active", ["slot 7 active boot"], 300),
                                  ("active", ["slot 7 active switch"], 0), ("standby", [], 0),
                                  ("standby", ["slot 7 active boot"], 300)):
            with self.subTest(role=role, line=line):
                self.assertEqual(self.moved(role, line)[0]["random_startup_delay"], delay)

    def test_two_processes_do_not_connect_from_one_port(self):
        self.assertIsNone(self.moved("standby", [])[1])
        for name in ("source_ret_port", "source_publish_port"):
            self.assertIn("same port", self.moved("standby", [], **{name: 4510})[1])


class ProofsTest(unittest.TestCase):
    """Round trips that overtake each other."""

    def test_an_answer_that_comes_after_the_next_question_tells_of_its_own_time(self):
        proofs = proof.Proofs(None, lambda start: None)
        proofs.demand(5, ["m"], {"m": None})
        proofs.demand(9, ["m"], {"m": None})
        proofs._note(5, "m", 5, "answered")
        self.assertEqual((proofs.proven["m"], proofs.finished), (5, 0))
        proofs._note(9, "m", None, "no answer")
        proofs.demand(9, ["m"], {"m": None})
        self.assertEqual((proofs.proven["m"], proofs.finished, proofs.details["m"]), (5, 9, "no answer"))

if __name__ == "__main__":
    unittest.main()
