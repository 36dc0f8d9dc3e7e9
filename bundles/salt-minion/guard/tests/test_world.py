"""Every job of a switch is run once, whatever comes between any two steps: python3 -m unittest discover -s bundles/salt-minion/guard

Each world is one combination of: which master publishes what and when, how far the old process is behind, when the new one listens to each master,
what blocks it, which of the two steps first, who is killed. The supervisor looks after every single step.
"""

import itertools
import logging
import os
import unittest

from sidle_guard import gate, roles

from tests.world import LONGEST_SECONDS, NEW, OLD, STEP_SECONDS, Main, World

# After the end of a switch: longer than anybody holds a job.
REST_SECONDS = 4.0

# Of the worlds in which every job has to run once, each so many-th is played. All of them, unless the guard is only tried on another Python: the rules
# are the same there.
EVERY = int(os.environ.get("SIDLE_WORLDS_EVERY", "1"))


def play(world, plan, probation=1.0, connects=lambda address: 0.5, needed=None, offsets=(0, 0), new_first=False, events=(),
         configured=None):
    """One switch: `plan` has what is published, as (seconds since the switch began, jid, master, seconds that Salt stands still for it), and
    `events` what else happens, as (seconds, act); `configured`: the masters that the new process's configuration names. Gives what is wrong at the end; None: nothing."""
    for address in world.masters:
        world.old.connect(address)
    world.old.guard.proofs.proven = dict.fromkeys(world.masters, 1)
    for _ in range(6):
        world.old.step()
    needed = set(world.masters) if needed is None else needed
    todo = sorted([(at, 0, entry) for at, *entry in plan] + [(at, 1, act) for at, act in events], key=lambda one: one[:2])
    began = world.clock.now
    begun, rested = False, 0.0
    while world.clock.now - began < LONGEST_SECONDS:
        now = world.clock.now - began
        while todo and todo[0][0] + 1.0 <= now:
            _, kind, what = todo.pop(0)
            world.publish(*what) if kind == 0 else what(world)
        if now >= 1.0 and not begun:
            begun = True
            world.begin(connects, configured)
            world.old.next, world.new.next = offsets
        if begun:
            world.connect_due()
        mains = [main for main in ((world.new, world.old) if new_first else (world.old, world.new)) if main]
        for _ in range(3):
            for main in mains:
                main.step()
                world.look(probation, needed)
        world.clock.now += STEP_SECONDS
        if world.phase == "done" and not todo:
            rested += STEP_SECONDS
            if rested >= REST_SECONDS:
                break
    return world.wrong()


def jid(number):
    return f"202601010000000{number:05d}"


ORDERS = list(itertools.product((0, 1, 2), (0, 1, 2), (False, True)))
MOMENTS = (-0.5, 0.25, 0.5, 1.0, 1.75, 2.5, 4.0, 6.5)


class WorldTest(unittest.TestCase):
    """Each job once, and every switch comes to an end."""

    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.worlds = itertools.count()

    def check(self, masters=1, mutate=lambda world: None, done=True, **options):
        world = World(masters)
        mutate(world)
        wrong = play(world, **options)
        if wrong is None and done and world.phase != "done":
            wrong = f"stuck in {world.phase}"
        return wrong

    def test_jobs_that_were_held_are_started_one_in_each_round_of_the_loop(self):
        # Each child connects to main's bus, which main accepts between two rounds; its socket holds 128 that wait.
        world = World()
        main, held = world.old, 200
        world.roles = roles.Roles(2, {OLD: roles.SlotRole("draining", "boot")}, frozenset(), 0)
        for number in range(held):
            verdict = main.guard.judge(main.minions[0], {"jid": jid(number), "fun": "test.ping"})
            self.assertEqual(verdict, gate.HOLD)
        world.clock.now += REST_SECONDS
        for _ in range(4 * held):
            main.step()
        self.assertEqual((len(main.processes), main.most_at_once, main.guard.jobs.starting), (held, 1, {}))

    def all_right(self, **options):
        wrong = None if next(self.worlds) % EVERY else self.check(**options)
        if wrong:
            self.fail(f"{wrong}: {options}")

    def test_one_or_two_jobs_at_any_moment(self):
        for first, second in itertools.product(MOMENTS, repeat=2):
            for offset in ((0, 0, False), (2, 1, True), (1, 2, False)):
                self.all_right(plan=[(first, jid(1), "tcp://m0", 0.0), (second, jid(2), "tcp://m0", 0.0)],
                               offsets=offset[:2], new_first=offset[2])

    def test_three_jobs_of_two_masters(self):
        for moments in itertools.combinations_with_replacement(MOMENTS, 3):
            for number, masters in enumerate(itertools.product((0, 1), repeat=3)):
                order = ORDERS[(number * 7) % len(ORDERS)]
                self.all_right(masters=2, offsets=order[:2], new_first=order[2], plan=[
                    (moment, jid(job), f"tcp://m{master}", 0.0) for job, (moment, master) in enumerate(zip(moments, masters, strict=True))])

    def test_an_old_process_that_is_behind(self):
        for behind, moment, probation in itertools.product((1.0, 3.0, 8.0), MOMENTS, (1.0, 5.0)):
            self.all_right(probation=probation, plan=[
                (0.0, jid(1), "tcp://m0", behind), (0.1, jid(2), "tcp://m0", behind), (moment, jid(3), "tcp://m0", 0.0)])

    def test_a_new_process_that_stands_still(self):
        for length, start, moment in itertools.product((1.0, 2.5, 4.0), (1.0, 2.0, 3.0), MOMENTS):
            for order in ORDERS[::4]:
                def block(world, length=length):
                    world.new.blocked_until = world.clock.now + length

                self.all_right(plan=[(moment, jid(1), "tcp://m0", 0.0)], events=[(start, block)], offsets=order[:2], new_first=order[2])

    def test_two_masters_one_of_which_comes_late(self):
        for late, moment, needed in itertools.product((0.5, 3.0, 9.0), MOMENTS, ({"tcp://m0"}, {"tcp://m0", "tcp://m1"})):
            self.all_right(masters=2, needed=needed, connects=lambda address, late=late: late if address == "tcp://m1" else 0.5, plan=[
                (moment, jid(1), "tcp://m1", 0.0), (moment, jid(2), "tcp://m0", 0.0), (moment + 4.0, jid(3), "tcp://m1", 0.0)])

    def test_a_master_that_is_configured_away_is_read_to_its_end(self):
        for behind in (0.0, 2.0, 6.0):
            self.all_right(masters=2, needed={"tcp://m0"}, configured=["tcp://m0"], plan=[
                (-0.5, jid(0), "tcp://m1", behind), (0.0, jid(1), "tcp://m1", behind), (0.25, jid(2), "tcp://m1", 0.0)])

    def test_an_older_process_that_only_finishes_its_jobs_proves_nothing(self):
        def finishing(world):
            world.finishing = {50: "closed"}
            world.assign({OLD: "active"})
            world.reports[50] = {"leader": 50, "role": "closed", "peers": [
                {"name": "tcp://m0", "address": "tcp://m0", "proven": 1, "first": jid(1), "rescued": []}]}

        for behind, moment in itertools.product((2.0, 6.0), MOMENTS):
            self.all_right(mutate=finishing, plan=[(-0.9, jid(1), "tcp://m0", 0.0), (0.0, jid(2), "tcp://m0", behind),
                                                   (0.1, jid(3), "tcp://m0", behind), (moment, jid(4), "tcp://m0", 0.0)])

    def test_ids_that_are_no_times_and_times_out_of_order(self):
        for names in itertools.permutations((jid(5), jid(0), jid(2))):
            for moment in MOMENTS:
                self.all_right(plan=[(moment + number / 4, name, "tcp://m0", 1.0) for number, name in enumerate(names)])
        for moment in MOMENTS:
            self.all_right(plan=[(moment, "deploy-42", "tcp://m0", 0.0), (5.0, jid(1), "tcp://m0", 0.0)])

    def test_a_claim_for_which_there_is_no_room(self):
        for full, moment in itertools.product((0.5, 1.5, 3.0), MOMENTS):
            def fill(world, full=True):
                world.directory.full = full

            self.all_right(plan=[(moment, jid(1), "tcp://m0", 0.0)],
                           events=[(full, fill), (full + 2.0, lambda world: fill(world, full=False))])

    def test_the_directory_of_claims_is_lost(self):
        def lose(world):
            world.directory.names.clear()

        for at, moment in itertools.product((1.0, 2.0, 3.0), MOMENTS):
            self.all_right(plan=[(moment, jid(1), "tcp://m0", 0.0)], events=[(at, lose)])

    # The phases in which files of claims are deleted: (when the old process stops, when the files go, when it goes on), in seconds.
    DELETIONS = ((1.0, 4.5, 5.0), (1.5, 4.5, 6.0), (2.0, 3.0, 7.0), (2.5, 4.0, 4.25), (3.0, 5.0, 9.0))

    def deletions(self, which, mutate=lambda world: None):
        """What is wrong after each of these worlds; `which`: of the claims, oldest first, those that are deleted."""
        wrong = []
        for (stops, deleted, goes_on), moment, main in itertools.product(self.DELETIONS, (0.25, 0.75, 2.0), ("old", "new")):
            def freeze(world, frozen, main=main):
                getattr(world, main).frozen = frozen

            def delete(world):
                for claim in which(list(world.directory.names)):
                    del world.directory.names[claim]

            events = [(stops, lambda world: freeze(world, True)), (deleted, delete), (goes_on, lambda world: freeze(world, False))]
            # Before that it has claimed something, and it is to run something after that.
            plan = [(-0.5, jid(0), "tcp://m0", 0.0), *((stops + moment + number / 4, jid(number + 1), "tcp://m0", 0.0) for number in range(4))]
            wrong.append(self.check(plan=plan, events=events, probation=5.0, done=False, mutate=mutate))
        return [found for found in wrong if found]

    def test_files_of_claims_that_are_deleted_double_no_job(self):
        for which in (lambda claims: claims, lambda claims: claims[::2], lambda claims: claims[1::2], lambda claims: claims[:-2]):
            self.assertEqual(self.deletions(which), [])

    def test_it_finds_that_only_a_lost_directory_was_noticed(self):
        def blind(world):
            world.old.guard.gate.owed._search = lambda: None
            began = world.begin

            def begin(*arguments):
                began(*arguments)
                world.new.guard.gate.owed._search = lambda: None

            world.begin = begin

        wrong = self.deletions(lambda claims: claims, blind)
        self.assertTrue(wrong and all(found.startswith("run twice") for found in wrong), wrong)

    def test_who_is_killed_takes_no_more_than_what_it_had(self):
        for at, moment in itertools.product((1.5, 2.5, 3.5), MOMENTS):
            def kill(world):
                had = {held.jid for held in world.old.guard.gate.held.values()} | {
                    data["jid"] for socket in world.old.sockets.values() for data in socket}
                world.excused |= {jid for jid in had if not world.new.guard.gate.heard("tcp://m0", jid)}
                world.old.kill()
                world.assign({NEW: "active"})
                world.phase = "done"

            self.all_right(plan=[(moment, jid(1), "tcp://m0", 0.0), (moment, jid(2), "tcp://m0", 0.0)], events=[(at, kill)])

    def test_a_process_that_hears_nothing_is_not_committed(self):
        def deafen(world):
            world.deafened = True
            publish = world.publish

            def published(jid, address, refresh=0.0):
                publish(jid, address, refresh)
                if world.new:
                    world.new.sockets[address].clear()

            world.publish = published

        for moment in (4.0, 4.5):
            world = World()
            deafen(world)
            wrong = play(world, [(moment + number, jid(number), "tcp://m0", 0.0) for number in range(4)], probation=8.0)
            self.assertEqual((wrong, world.phase), (None, "probation"))

    @staticmethod
    def behind_a_silent_publisher(answers_at, handshakes=True, probation=1.0, mutate=lambda world: None):
        """A new process whose connection to the publisher stands long before its subscription; None: the publisher never answers. Jobs come all
        the time. The world at its end, and what is wrong there."""
        world = World()
        world.handshakes = handshakes
        mutate(world)

        def silence(world):
            world.silent_publishers = True

        def answer(world):
            world.silent_publishers = False
            world.new.subscribe("tcp://m0")

        events = [(-0.5, silence)] + ([(answers_at, answer)] if answers_at else [])
        plan = [(number * 1.5, jid(number), "tcp://m0", 0.0) for number in range(20)]
        return world, play(world, plan, probation=probation, events=events)

    def test_a_connection_without_a_subscription_is_never_committed(self):
        for answers_at, probation in itertools.product((2.0, 3.1, 6.0, 12.0), (0.5, 1.0, 5.0)):
            world, wrong = self.behind_a_silent_publisher(answers_at, probation=probation)
            self.assertEqual((wrong, world.phase), (None, "done"), (answers_at, probation))
        world, wrong = self.behind_a_silent_publisher(None)
        self.assertEqual((wrong, world.phase), (None, "proving"))

    def test_without_handshakes_the_jobs_themselves_tell_however_short_the_probation(self):
        for probation in (0.5, 1.0, 5.0):
            world, wrong = self.behind_a_silent_publisher(None, handshakes=False, probation=probation)
            self.assertEqual((wrong, world.phase), (None, "probation"), probation)

    # What the world finds: each of these was so once.

    def test_it_finds_that_only_the_jobs_of_a_process_that_had_caught_up_were_missed(self):
        def blind(world):
            world.missing = lambda theirs, ended: False

        _, wrong = self.behind_a_silent_publisher(None, handshakes=False, mutate=blind)
        self.assertTrue(wrong and wrong.startswith("lost"), wrong)

    def test_it_finds_a_job_that_is_on_record_only_once_it_runs(self):
        def late(world):
            def run(self, minion, data):
                async def execute():
                    await self.execute(minion, data, self.note(minion, data))

                self.spawn(execute)

            world.old.guard.gate.run = run.__get__(world.old.guard)

        def block(world):
            world.new.blocked_until = world.clock.now + 6.0

        found = [self.check(mutate=late, plan=[(moment, jid(1), "tcp://m0", 0.0)], probation=0.5, events=[(start, block)], offsets=order[:2])
                 for moment in MOMENTS for start in (1.5, 1.75, 2.0, 2.25) for order in ORDERS[::2]]
        self.assertTrue(any(wrong and wrong.startswith("lost") for wrong in found), "the world has become blind for it")

    @staticmethod
    def by_order(mine, theirs):
        """The rule that was: silence of the other proves that nothing is on its way, and ids are an order."""
        for peer in mine["peers"]:
            first = next((other["first"] for other in theirs["peers"] if other["name"] == peer["name"]), None)
            if first is not None and peer["last"] is not None and peer["last"] < first:
                return False
        return True

    def test_it_finds_that_silence_of_the_other_proves_nothing(self):
        def blind(world):
            world.caught_up_rule = self.by_order

        wrong = self.check(mutate=blind, plan=[(0.0, jid(number), "tcp://m0", 4.0) for number in range(3)])
        self.assertTrue(wrong and wrong.startswith("lost"), wrong)

    def test_it_finds_that_ids_are_no_order(self):
        def blind(world):
            world.caught_up_rule = self.by_order

        behind = [(number / 10, jid(5 + number), "tcp://m0", 3.0) for number in range(4)]
        wrong = self.check(mutate=blind, plan=[*behind, (0.45, jid(0), "tcp://m0", 0.0), (1.0, jid(2), "tcp://m0", 0.0)])
        self.assertTrue(wrong and wrong.startswith("lost"), wrong)
        wrong = self.check(mutate=blind, plan=[(0.0, jid(5), "tcp://m0", 0.0), (1.0, "zz-42", "tcp://m0", 0.0), (1.25, jid(6), "tcp://m0", 0.0)])
        self.assertTrue(wrong and wrong.startswith("stuck"), wrong)


class BeginningAgainTest(unittest.TestCase):
    """Every half minute Salt gives a silent publisher up and begins again: in between nobody said that nothing was subscribed, and jobs went there."""

    def test_a_master_with_whom_salt_begins_again_is_not_subscribed(self):
        main = Main(World(), 1, "active")
        address = main.masters[0]

        def told():
            main.guard.write_report()
            return [peer["subscribed"] for peer in main.world.reports[1]["peers"]]

        self.assertEqual(told(), [0])
        main.connect(address)
        self.assertEqual(told(), [1])
        main.minions[0].connected = False
        self.assertEqual(told(), [0])
