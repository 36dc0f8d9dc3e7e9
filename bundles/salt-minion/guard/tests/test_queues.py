"""Salt's queues on disk, without Salt: python3 -m unittest discover -s bundles/salt-minion/guard"""

import os
import pathlib
import sys
import tempfile
import time
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from sidle_guard import queues, report, roles, singletons, slot, wraps  # noqa: E402


class QueuesTest(unittest.TestCase):
    """What waits on disk is run once: by whoever reads that place."""

    class Salt:
        """A minion object, and what of Salt tells where its queues are."""

        def __init__(self, cache):
            self.opts = {"cachedir": cache, "master": "m"}

        def process_state_queue(self):
            """As 3006.21 and later have it."""

    class Guard:
        """As much of one as the queues look at."""

        def __init__(self, gate_directory, leader, salt):
            self.slot = slot.Slot(gate_directory, leader, "active")
            self.salt = salt
            self.others = report.Others(self.slot)
            self.is_role, self.slots, self.by_switch = "active", {}, True
            self.singletons = unittest.mock.Mock(held=True)
            self.queues = queues.Queues(self)
            self.report_file = report.ReportFile(self.slot)

        def role(self):
            return self.is_role

        def roles(self):
            return roles.Roles(1, self.slots, frozenset(), 0)

        def minions(self):
            return [self.salt]

        def started_by_switch(self):
            return self.by_switch

        def beside_others(self):
            return len(self.slots) > 1

        def attempt(self, _what, act):
            return act()

        def say(self):
            """Write a report, as the guard does at each look."""
            self.report_file.forget()
            self.report_file.write({
                "role": self.is_role, "queued": self.queues.left(), "queues": self.queues.directories(),
                "queue_layout": self.queues.layout}, urgent=True)

    # Processes that live, and one that does not.
    OLD, NEW, GONE = os.getpid(), os.getppid(), 2**22 + 1

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cache, self.gate = os.path.join(folder.name, "cache"), os.path.join(folder.name, "gate")
        os.makedirs(os.path.join(self.gate, "slots"))
        modules = unittest.mock.patch.dict(sys.modules)
        modules.start()
        self.addCleanup(modules.stop)
        # Time stands still: on a busy machine a report may be old before the next line is run.
        now = slot.seconds_since_boot()
        for module in (queues, report):
            clock = unittest.mock.patch.object(module, "seconds_since_boot", lambda: now)
            clock.start()
            self.addCleanup(clock.stop)

    def process(self, leader, layout):
        """One of that layout."""
        guard = self.Guard(self.gate, leader, self.Salt(self.cache))
        guard.queues._layout = layout
        state = unittest.mock.Mock()
        state.job_queue_dir = lambda opts: os.path.join(opts["cachedir"], "queues", opts["master"], "job_queue")
        state.state_queue_dir = lambda opts: os.path.join(opts["cachedir"], "queues", opts["master"], "state_queue")
        sys.modules["salt.utils.state"] = state
        return guard

    def put(self, place, name):
        directory = os.path.join(self.cache, place)
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, name), "w", encoding="utf-8"):
            pass
        return os.path.join(directory, name)

    def switch(self, old, new, roles_of):
        """Both get these roles, and have reported."""
        for guard, role in zip((old, new), roles_of, strict=True):
            guard.is_role = role
            guard.singletons.held = role == "active"
            old.slots = new.slots = {guard.slot.leader: None for guard in (old, new)}
        for guard in (old, new, old, new):
            guard.say()

    def pair(self, old_layout, new_layout):
        old, new = self.process(self.OLD, old_layout), self.process(self.NEW, new_layout)
        old.by_switch = False
        old.queues.take_up()
        return old, new

    def test_each_salt_is_known_by_what_it_has(self):
        self.assertEqual(queues.layout(object), queues.NONE)
        self.assertEqual(queues.layout(self.Salt), queues.ONE)
        sys.modules["salt.utils.state"] = unittest.mock.Mock(job_queue_dir=None)
        self.assertEqual(queues.layout(self.Salt), queues.BY_MASTER)

    def test_a_process_without_singletons_goes_on_with_what_only_it_reads_and_the_new_one_waits_for_it(self):
        old, new = self.pair(queues.ONE, queues.BY_MASTER)
        waits = self.put("state_queue", "queued_1_11.p")
        new.queues.take_up()
        self.switch(old, new, ("draining", "active"))
        self.assertEqual((old.queues.left(), old.queues.pops(old.salt), new.queues.pops(new.salt)), (1, True, False))
        self.switch(old, new, ("closed", "active"))
        self.assertEqual((old.queues.left(), old.queues.pops(old.salt), new.queues.pops(new.salt)), (1, True, False))
        # Popped, and not started yet: it counts as waiting still.
        os.rename(waits, self.put("state_queue", "running_1_11.p"))
        self.assertEqual(old.queues.left(), 1)
        os.unlink(os.path.join(self.cache, "state_queue", "running_1_11.p"))
        self.switch(old, new, ("closed", "active"))
        self.assertEqual((old.queues.left(), old.queues.pops(old.salt), new.queues.pops(new.salt)), (0, True, True))

    def test_what_both_read_is_the_new_ones(self):
        for layout in (queues.ONE, queues.BY_MASTER):
            old, new = self.pair(layout, layout)
            self.put("state_queue", "queued_1_11.p"), self.put("queues/m/state_queue", "queued_1_11.p")
            new.queues.take_up()
            self.switch(old, new, ("draining", "active"))
            self.assertEqual((old.queues.left(), old.queues.pops(old.salt), new.queues.pops(new.salt)), (0, False, True), layout)

    def test_a_trial_has_no_part_in_what_lies_in_its_queues_from_another_time(self):
        old, new = self.pair(queues.BY_MASTER, queues.ONE)
        self.put("state_queue", "queued_1_11.p")
        new.queues.note(new.salt.opts)
        for role in ("standby", "draining", "closed"):
            self.switch(old, new, ("active", role))
            self.assertEqual((new.queues.left(), new.queues.pops(new.salt), old.queues.pops(old.salt)), (0, False, True), role)
        # Nor has it once it serves: that was weeks ago. What its own jobs have queued since then waits.
        self.put("state_queue", "queued_2_22.p")
        new.queues.take_up()
        self.switch(old, new, ("draining", "active"))
        self.assertTrue(new.queues.pops(new.salt))
        self.assertEqual(sorted(os.listdir(os.path.join(self.cache, "state_queue"))), ["left_queued_1_11.p", "queued_2_22.p"])

    def test_that_is_so_in_each_place(self):
        old, new = self.pair(queues.ONE, queues.BY_MASTER)
        self.put("queues/m/job_queue", "queued_1_11.p"), self.put("queues/m/state_queue", "running_1_12.p")
        new.queues.note(new.salt.opts)
        self.switch(old, new, ("active", "standby"))
        new.queues.take_up()
        self.switch(old, new, ("draining", "active"))
        self.assertTrue(new.queues.pops(new.salt))
        self.assertEqual(queues.waiting(new.queues.directories(), lambda path: True), [])

    def test_of_two_on_their_way_out_none_relies_on_the_other(self):
        old, new = self.pair(queues.ONE, queues.ONE)
        self.put("state_queue", "queued_1_11.p")
        new.queues.take_up()
        self.switch(old, new, ("draining", "closed"))
        self.assertEqual((old.queues.left(), old.queues.pops(old.salt), new.queues.pops(new.salt)), (1, True, True))

    def test_a_new_one_that_hangs_or_is_gone_is_not_waited_for(self):
        old, new = self.pair(queues.ONE, queues.BY_MASTER)
        self.put("state_queue", "queued_1_11.p")
        new.queues.take_up()
        self.switch(old, new, ("draining", "active"))
        with unittest.mock.patch.object(queues, "seconds_since_boot", lambda: slot.seconds_since_boot() + 11):
            self.assertTrue(new.queues.pops(new.salt))

    def test_what_a_killed_process_has_queued_is_taken_over_and_what_it_may_have_begun_is_not(self):
        gone, new = self.process(self.GONE, queues.ONE), self.process(self.NEW, queues.BY_MASTER)
        gone.queues.take_up()
        self.put("state_queue", "queued_2_22.p"), self.put("job_queue", "queued_1_11.p"), self.put("job_queue", "running_0_10.p")
        gone.say()
        new.queues.take_up()
        self.assertTrue(new.queues.pops(new.salt))
        found = [os.path.relpath(path, self.cache) for path in queues.waiting(new.queues.directories(), lambda path: True)]
        self.assertEqual(found, ["queues/m/job_queue/queued_1_11.p", "queues/m/state_queue/queued_2_22.p"])

    def test_a_salt_without_queues_says_what_will_not_be_run(self):
        gone, new = self.process(self.GONE, queues.BY_MASTER), self.process(self.NEW, queues.NONE)
        gone.queues.take_up()
        self.put("queues/m/state_queue", "queued_2_22.p")
        gone.say()
        with self.assertLogs("sidle_guard.queues", "ERROR") as told:
            new.queues.take_up()
        self.assertIn("queued_2_22.p", told.output[0])

    def test_what_waits_is_kept_by_one_that_has_the_singletons_once_more(self):
        old, new = self.pair(queues.ONE, queues.BY_MASTER)
        waits = self.put("state_queue", "queued_1_11.p")
        old.by_switch = True
        old.queues.note(old.salt.opts)
        new.queues.take_up()
        self.switch(old, new, ("draining", "active"))
        old.queues.take_up()
        self.switch(old, new, ("active", "draining"))
        self.assertTrue(old.queues.pops(old.salt))
        self.assertTrue(os.path.exists(waits))

    def test_after_a_boot_everything_is_as_salt_does_it(self):
        gone = self.process(self.GONE, queues.BY_MASTER)
        gone.queues.take_up()
        gone.say()
        guard = self.process(self.NEW, queues.ONE)
        guard.by_switch = False
        self.put("state_queue", "queued_1_11.p")
        guard.queues.note(guard.salt.opts)
        guard.queues.take_up()
        self.assertTrue(guard.queues.pops(guard.salt))
        self.assertEqual(os.listdir(os.path.join(self.cache, "state_queue")), ["queued_1_11.p"])

    def test_a_lock_is_kept_from_the_start_of_a_trial_and_not_from_that_of_a_process_alone(self):
        _, new = self.pair(queues.ONE, queues.ONE)
        for name in ("minion_queue.lock", "queues/m/queue.lock"):
            path = self.put(os.path.dirname(name), os.path.basename(name))
            new.slots = {self.OLD: None, self.NEW: None}
            with self.assertRaises(OSError), new.queues.locks_kept():
                os.remove(path)
            self.assertTrue(os.path.exists(path))
            new.slots = {self.GONE: None, self.NEW: None}
            with new.queues.locks_kept():
                os.remove(path)

    def test_a_lock_whose_owner_is_gone_goes(self):
        guard = self.process(self.NEW, queues.BY_MASTER)
        lock = self.put("queues/m", "queue.lock")
        now = time.monotonic()
        for after, there in ((0, True), (59, True), (61, False)):
            with unittest.mock.patch("time.monotonic", lambda after=after: now + after):
                guard.queues.clean()
            self.assertEqual(os.path.exists(lock), there, after)

    def test_a_lock_that_is_another_one_each_time_stays(self):
        guard = self.process(self.NEW, queues.BY_MASTER)
        now = time.monotonic()
        for after in (0, 59, 118):
            lock = self.put("queues/m", "queue.lock")
            os.utime(lock, (after, after))
            with unittest.mock.patch("time.monotonic", lambda after=after: now + after):
                guard.queues.clean()
            self.assertTrue(os.path.exists(lock))

    def test_a_popped_job_that_never_began_blocks_no_other_for_ever(self):
        guard = self.process(self.NEW, queues.BY_MASTER)
        popped, waits = self.put("queues/m/state_queue", "running_1_11.p"), self.put("queues/m/state_queue", "queued_1_12.p")
        now = time.monotonic()
        for after, there in ((0, True), (299, True), (301, False)):
            with unittest.mock.patch("time.monotonic", lambda after=after: now + after):
                guard.queues.clean()
            self.assertEqual((os.path.exists(popped), os.path.exists(waits)), (there, True), after)


class DutiesTest(unittest.TestCase):
    """What only one process may do is done by one."""

    def test_a_main_that_was_blocked_at_the_hand_over_fires_nothing_once_more(self):
        guard, fired = unittest.mock.Mock(), []
        guard.acts.return_value = True
        guard.singletons = singletons.Singletons(guard)
        guard.singletons.held = True
        wrapper = wraps._Wrapper(guard)
        schedule = wrapper._process_schedule(lambda _minion, loop_interval: fired.append("schedule") or loop_interval)
        beacons = wrapper._process_beacons(lambda _minion, _functions: fired.append("beacons") or ["event"])
        for role, expected in (("active", ["schedule", "beacons"]), ("draining", []), ("closed", [])):
            guard.role.return_value = role
            del fired[:]
            self.assertEqual(schedule(None, 1), 1)
            self.assertEqual(beacons(None, {}), ["event"] if expected else [])
            self.assertEqual(fired, expected, role)

    def test_the_queues_too_and_they_go_on_where_that_can_not_be_decided(self):
        guard, fired = unittest.mock.Mock(), []
        guard.acts.return_value = True
        guard.attempt = lambda _what, act: act()
        guard.singletons = singletons.Singletons(guard)
        guard.singletons.held = True
        pop = wraps._Wrapper(guard)._pop_queue(lambda _minion: fired.append("pop"))
        for pops, role, expected in ((True, "draining", ["pop"]), (False, "active", []), (None, "active", ["pop"]), (None, "closed", [])):
            guard.queues.pops.return_value, guard.role.return_value = pops, role
            del fired[:]
            pop(None)
            self.assertEqual(fired, expected, (pops, role))


class Manager:
    """Salt's manager of processes: as much as the guard asks of it."""

    def __init__(self):
        self._process_map, self._restart_processes, self.looks = {}, True, 0

    def check_children(self):
        self.looks += 1


class EnginesTest(unittest.TestCase):
    """Engines run in the process with the singletons, and are started again there."""

    def setUp(self):
        self.guard, self.started = unittest.mock.Mock(), []
        self.guard.attempt = lambda _what, act: act()
        self.guard.minions.return_value, self.guard.schedule.return_value = [], None
        self.guard.original.return_value = lambda _opts, manager: self.started.append(manager)
        self.guard.paths.show.return_value = True
        self.guard.singletons.missed = {}
        self.singletons = self.guard.singletons = singletons.Singletons(self.guard)
        self.singletons._take_over = self.singletons._hand_over = lambda roles: None

    def at(self, role, *seconds):
        for second in seconds:
            self.singletons.follow(role, None, second)

    def test_who_takes_them_up_looks_after_them_as_salt_does(self):
        manager = Manager()
        self.singletons.start_engines({"engines": ["a"]}, manager)
        self.at("standby", 100, 110, 120)
        self.assertEqual((self.started, manager.looks), ([], 0))
        self.at("active", 130, 131, 139, 140, 141, 150)
        self.assertEqual((self.started, manager.looks), ([manager], 3))
        self.at("draining", 160, 170)
        self.assertEqual(manager.looks, 3, "they are another process's")
        self.at("active", 180, 190)
        self.assertEqual((self.started, manager.looks), ([manager, manager], 5), "given back")

    def test_a_minion_object_that_salt_has_left_gets_none(self):
        for held in (False, True):
            first, second = Manager(), Manager()
            self.singletons.held = held
            self.singletons.start_engines({"engines": ["a"]}, first)
            first._restart_processes = False
            self.singletons.start_engines({"engines": ["a"]}, second)
            self.at("draining", 200)
            self.started.clear()
            self.at("active", 300)
            self.assertEqual(self.started, [second], held)
            self.at("draining", 400)
            self.singletons.engines.clear()
