"""The plan and the rollout, as values; and fleets that exist only as numbers. Run by `scripts/lint`; needs no Salt."""

import json
import unittest

import simulator
from saltext.sidle.fleet import beginning, states
from saltext.sidle.fleet import plan as planning
from saltext.sidle.fleet.rollout import Rollout
from saltext.sidle.fleet.verdicts import Master

NEW, OLD = "3007.17-1", "3006.30-1"


def status(current=OLD, **more):
    return {
        "instance": "salt-minion", "current": current, "installed": [OLD, NEW], "supervisor": {"version": "1"}, "hold": None, "switch": None,
        "last": None, **more,
    }  # fmt: skip


def host(family="RedHat", **more):
    return {"family": family, "unseen_days": 0, "releases": [], "status": status(), **more}


def wanted(**more):
    return planning.Wanted("salt-minion", NEW, **more)


class Plans(unittest.TestCase):
    def verdict(self, facts, masters=None):
        found = planning.make({"a": facts}, wanted(), {"a": masters or {}}).hosts["a"]
        return found.verdict, " ".join(found.why)

    def test_each_reason_has_its_words(self):
        hold = {"by": "ann", "reason": "year's end"}
        marked = [{"release": NEW, "marks": [{"mark": "bad", "reason": "the agent ended"}]}]
        live = {"id": 7, "to": "3008.5-1", "phase": "probation"}
        cases = [
            (host(), {}, "go", ""),
            (host(status=status(NEW)), {}, "there", f"{NEW} is current"),
            (host(status=None), {}, "refused", "it has no salt-minion under sidle"),
            (host(status=status(hold=hold)), {}, "refused", "held by ann: year's end"),
            (host(status=status(supervisor=None)), {}, "refused", "no supervisor runs"),
            (host(status=status(switch=live)), {}, "refused", "switch 7 to 3008.5-1 is under way, in phase probation"),
            (host(releases=marked), {}, "refused", "marked as bad here: the agent ended"),
            (host(rehearsal={"error": {"class": "failed", "message": "the module x is missing"}}), {}, "refused", "the module x is missing"),
            (host(), {"m1": Master("3006.30")}, "refused", "its master m1 runs 3006.30, which is older than 3007.17-1"),
            (host(), {"m1": Master("3007.17"), "m2": Master("3008.5")}, "go", ""),
            (host(unseen_days=3), {}, "offline", "it goes when it comes back"),
            (host(unseen_days=90), {}, "gone", "not seen for 90 days"),
        ]
        for facts, masters, verdict, words in cases:
            with self.subTest(words):
                found = self.verdict(facts, masters)
                self.assertEqual(found[0], verdict)
                self.assertIn(words, found[1])

    def test_waves_are_canaries_of_each_family_then_percents(self):
        facts = {f"h{number:03}": host(["RedHat", "Debian", "Suse"][number % 3]) for number in range(200)}
        plan = planning.make(facts, wanted(canary=6))
        self.assertEqual([len(wave) for wave in plan.waves], [6, 14, 80, 100])
        self.assertEqual(sorted(plan.hosts[each].family for each in plan.waves[0]), ["Debian"] * 2 + ["RedHat"] * 2 + ["Suse"] * 2)
        self.assertEqual(sorted(each for wave in plan.waves for each in wave), sorted(facts))
        self.assertEqual(plan.waves, planning.make(facts, wanted(canary=6)).waves)
        self.assertNotEqual(plan.waves, planning.make(facts, wanted(canary=6, seed="another")).waves)

    def test_waves_by_a_fact_in_the_order_that_was_asked_for(self):
        facts = {f"h{number}": host(site=["lab", "west", "east"][number % 3]) for number in range(9)}
        plan = planning.make(facts, wanted(canary=[], by="site", order=["lab"]))
        self.assertEqual([{facts[each]["site"] for each in wave} for wave in plan.waves], [{"lab"}, {"east"}, {"west"}])

    def test_what_makes_no_waves_is_an_error(self):
        for wrong in ({"percents": [50]}, {"percents": [50, 10, 100]}, {"percents": []}, {"canary": -1}, {"canary": ["nobody"]}):
            with self.subTest(wrong), self.assertRaises(planning.PlanError):
                planning.make({"a": host()}, wanted(**wrong))

    def test_small_fleets_have_waves_too(self):
        for number in range(1, 12):
            plan = planning.make({f"h{each}": host() for each in range(number)}, wanted())
            self.assertEqual(sum(map(len, plan.waves)), number)
            self.assertTrue(all(plan.waves))


class Rollouts(unittest.TestCase):
    def begin(self, facts, plan=None, **settings):
        plan = planning.make(facts, wanted(**(plan or {"canary": 1})))
        return Rollout(beginning.new("r1", plan, 0, soak_seconds=10, **settings))

    def order(self, rollout, now):
        orders = rollout.next(now).switch
        for each in orders:
            rollout.on_switch(now, each, {"switch": 1, "pending": True})
        return orders

    def ends(self, rollout, now, hosts, result="committed", cause="release", text="it ended", number=1):
        for each in hosts:
            failure = None if result == "committed" else {"phase": "probation", "cause": cause, "text": text}
            last = {"id": number, "to": NEW, "result": result, "failure": failure}
            rollout.on_status(now, each, status(NEW if result == "committed" else OLD, last=last))

    def test_a_wave_begins_when_the_one_before_has_ended_and_its_soak_is_over(self):
        rollout = self.begin({f"h{number}": host() for number in range(10)})
        canary = self.order(rollout, 0)
        self.assertEqual(len(canary), 1)
        self.assertEqual(self.order(rollout, 5), [])
        self.ends(rollout, 20, canary)
        self.assertEqual(self.order(rollout, 21), [])
        self.assertEqual(len(self.order(rollout, 31)), 4)

    def test_no_more_than_so_many_are_on_their_way_or_ordered_in_a_minute(self):
        rollout = self.begin({f"h{number:03}": host() for number in range(100)}, {"canary": 0, "percents": [100]}, at_once=10, per_minute=15)
        first = self.order(rollout, 0)
        self.assertEqual(len(first), 10)
        self.ends(rollout, 5, first)
        self.assertEqual(len(self.order(rollout, 5)), 5)
        self.assertEqual(len(self.order(rollout, 61)), 5)

    def test_it_halts_on_its_budget_and_says_why_and_resumes(self):
        rollout = self.begin({f"h{number:03}": host() for number in range(40)}, {"canary": 0, "percents": [100]}, budget=1, family_budget="100%")
        hosts = self.order(rollout, 0)
        self.ends(rollout, 20, hosts[:1], "rolled-back")
        self.assertEqual(rollout.record["status"], "running")
        self.ends(rollout, 21, hosts[1:2], "rolled-back")
        self.assertEqual(rollout.record["status"], "halted")
        self.assertEqual(rollout.record["why"], "wave 1: 2 of 40 hosts went wrong, 1 may (1); the last: it ended")
        self.ends(rollout, 22, hosts[2:])
        self.assertEqual(self.order(rollout, 100), [])
        rollout.resume(again=True)
        again = self.order(rollout, 101)
        self.assertEqual(sorted(again), sorted(hosts[:2]))
        # What their status says of the first try is not the second one's end.
        self.ends(rollout, 102, again, "rolled-back", number=1)
        self.assertEqual(rollout.counts()["ordered"], 2)
        self.ends(rollout, 130, again, number=2)
        self.assertEqual(rollout.counts(), {"done": 40})

    def test_what_a_person_accepted_counts_no_more(self):
        rollout = self.begin({f"h{number:03}": host() for number in range(40)}, {"canary": 0, "percents": [100]}, budget=1, family_budget="100%")
        hosts = self.order(rollout, 0)
        self.ends(rollout, 20, hosts[:2], "rolled-back")
        self.assertEqual(rollout.record["status"], "halted")
        rollout.resume()
        self.ends(rollout, 21, hosts[2:3], "rolled-back")
        self.assertEqual(rollout.record["status"], "running")
        self.ends(rollout, 22, hosts[3:4], "rolled-back")
        self.assertEqual(rollout.record["status"], "halted")

    def test_a_family_has_its_own_budget(self):
        facts = {f"r{number:02}": host() for number in range(90)} | {f"s{number:02}": host("Suse") for number in range(10)}
        rollout = self.begin(facts, {"canary": 0, "percents": [100]}, at_once=100, budget="50%", family_budget="20%")
        hosts = self.order(rollout, 0)
        suse = [each for each in hosts if each.startswith("s")]
        self.ends(rollout, 20, suse[:3], "rolled-back")
        self.assertEqual(rollout.record["status"], "halted")
        self.assertIn("family Suse: 3 of 10 hosts went wrong, 2 may (20%)", rollout.record["why"])

    def test_what_one_host_found_bad_is_not_tried_by_the_next_wave_until_a_person_accepts_it(self):
        rollout = self.begin({f"h{number:03}": host() for number in range(100)}, {"canary": 10}, budget="50%", family_budget="50%")
        canaries = self.order(rollout, 0)
        self.ends(rollout, 20, canaries[:1], "rolled-back", text="module /opt/a is missing, 3 times")
        self.ends(rollout, 20, canaries[1:])
        self.order(rollout, 21)
        self.assertEqual(self.order(rollout, 40), [])
        self.assertEqual(rollout.record["status"], "halted")
        self.assertIn(f"wave 1 found {NEW} bad: module /opt/a is missing", rollout.record["why"])
        rollout.resume()
        self.order(rollout, 41)
        second = self.order(rollout, 52)
        self.assertEqual(len(second), 40)
        # The same again is known; and what only the host is to blame for halts no wave's end.
        self.ends(rollout, 60, second[:1], "rolled-back", text="module /srv/b is missing, 4 times")
        self.ends(rollout, 60, second[1:2], "rolled-back", cause="host", text="no memory")
        self.ends(rollout, 60, second[2:])
        self.assertEqual(len(rollout.record["failures"]), 2)
        self.order(rollout, 64)
        self.assertEqual(len(self.order(rollout, 80)), 50)

    def test_a_driver_that_died_after_its_save_asks_before_it_orders_again(self):
        rollout = self.begin({"h1": host(), "h2": host()}, {"canary": 2})
        orders = rollout.next(0).switch
        # Nobody heard of the orders: it died. Another one goes on with what was saved.
        rollout = Rollout(json.loads(json.dumps(rollout.record)))
        # Hours later: nobody was silent while nobody asked.
        now = 7200
        rollout.go_on(now)
        again = rollout.next(now)
        self.assertEqual((again.switch, sorted(again.ask)), ([], sorted(orders)))
        self.assertEqual(rollout.counts(), {"ordered": 2})
        rollout.on_status(now, "h1", status(NEW, last={"id": 1, "to": NEW, "result": "committed", "failure": None}))
        rollout.on_status(now, "h2", status())
        self.assertEqual(rollout.next(now + 1).switch, ["h2"])
        self.assertEqual(rollout.counts(), {"done": 1, "ordered": 1})

    def test_who_does_not_answer_is_lost_and_who_knows_nothing_is_ordered_three_times(self):
        rollout = self.begin({"h1": host(), "h2": host()}, {"canary": 2}, budget=2, family_budget=2)
        rollout.next(0)
        now = 0
        while rollout.record["hosts"]["h1"]["state"] != "lost" and now < 5000:
            now += 50
            rollout.on_status(now, "h1", status())
            rollout.next(now)
        self.assertEqual(rollout.record["hosts"]["h1"]["orders"], 3)
        self.assertIn("began no switch", rollout.record["hosts"]["h1"]["text"])
        rollout.next(1000)
        self.assertEqual(rollout.record["hosts"]["h2"]["state"], "lost")

    def test_an_offline_host_is_taken_up_when_it_comes_back_and_not_waited_for(self):
        rollout = self.begin({"h1": host(), "h2": host(unseen_days=2)}, {"canary": 0, "percents": [100]})
        self.ends(rollout, 20, self.order(rollout, 0))
        self.order(rollout, 21)
        self.order(rollout, 40)
        self.assertEqual(rollout.record["status"], "late")
        # An event is no status: it is asked first.
        rollout.on_online("h2")
        orders = rollout.next(50)
        self.assertEqual((orders.switch, orders.ask), ([], ["h2"]))
        # Its old switch is not judged, and what it lacks it installs.
        old = {"id": 7, "to": NEW, "result": "rolled-back", "failure": {"phase": "probation", "cause": "release", "text": "an old story"}}
        rollout.on_status(51, "h2", status(installed=[OLD], last=old))
        self.assertEqual(rollout.next(52).install, ["h2"])
        rollout.on_install(60, "h2", {"code": 0})
        self.assertEqual(self.order(rollout, 61), ["h2"])
        rollout.on_status(70, "h2", status(last=old))
        self.assertEqual(rollout.counts(), {"done": 1, "ordered": 1})
        self.ends(rollout, 90, ["h2"], number=8)
        self.order(rollout, 91)
        self.assertEqual(rollout.record["status"], "ended")
        self.assertEqual(beginning.back("b1", rollout.record, None, 99)["hosts"]["h2"]["to"], OLD)

    def late(self, **more):
        offline = host(unseen_days=2, status=None, runs="3006.30")
        rollout = self.begin({"h1": host(), "h2": offline}, {"canary": 0, "percents": [100]}, **more)
        self.ends(rollout, 20, self.order(rollout, 0))
        self.order(rollout, 21)
        self.order(rollout, 40)
        self.assertEqual((rollout.record["status"], rollout.counts()), ("late", {"done": 1, "offline": 1}))
        return rollout

    def test_a_host_that_came_back_otherwise_is_left_out(self):
        rollout = self.late()
        # While another rollout has it, it is left alone.
        rollout.on_status(45, "h2", status(rollout={"id": "r2", "epoch": 1}))
        self.assertEqual((rollout.next(46).switch, rollout.counts()), ([], {"done": 1, "offline": 1}))
        rollout.on_status(50, "h2", status("3008.5-1"))
        self.assertEqual(rollout.next(51).switch, [])
        self.assertEqual((rollout.record["status"], rollout.counts()), ("ended", {"done": 1, "left out": 1}))
        self.assertIn("it came back with 3008.5-1, and ran 3006.30", rollout.record["hosts"]["h2"]["text"])
        # With the release already: nothing is ordered, and it does not go back with the others.
        rollout = self.late()
        rollout.on_status(50, "h2", status(NEW))
        self.assertEqual((rollout.next(51).switch, rollout.counts()), ([], {"done": 2}))
        self.assertEqual(list(beginning.back("b1", rollout.record, None, 60)["hosts"]), ["h1"])

    def test_after_its_time_an_offline_host_is_not_taken_up(self):
        rollout = self.late(late_seconds=1000)
        rollout.on_status(2000, "h2", status())
        self.assertEqual((rollout.next(2001).switch, rollout.record["status"]), ([], "ended"))

    def test_no_wave_begins_while_nobody_runs_the_release(self):
        facts = {f"h{number}": host() for number in range(9)} | {"c": host()}
        plan = planning.make(facts, wanted(canary=["c"], percents=[50, 100]))
        plan.hosts["c"].verdict = "offline"
        rollout = Rollout(beginning.new("r1", plan, 0, soak_seconds=10))
        self.order(rollout, 0)
        self.assertEqual(self.order(rollout, 20), [])
        self.assertEqual(rollout.record["why"], f"nobody runs {NEW} yet: no host of wave 1 is done")
        # Unless a person accepts that.
        rollout.resume()
        self.order(rollout, 21)
        self.assertEqual(len(self.order(rollout, 40)), 4)

    def test_a_person_who_goes_on_too_early_has_accepted_nothing(self):
        rollout = self.begin({"c": host(), "a": host(), "b": host()}, {"canary": ["c"], "percents": [100]}, budget=1, family_budget=1)
        self.order(rollout, 0)
        rollout.pause("lunch")
        rollout.resume()
        self.ends(rollout, 20, ["c"], "refused", cause="host")
        self.order(rollout, 21)
        self.assertEqual(self.order(rollout, 40), [])
        self.assertIn("nobody runs", rollout.record["why"])

    def test_a_conflict_is_judged_by_the_status(self):
        conflict = {"error": {"class": "conflict", "message": "switch 1 is proving"}}
        others = status(switch={"id": 1, "to": "3008.5-1", "phase": "proving"})
        claimed = status(rollout={"id": "r2", "epoch": 1})
        newer = status(rollout={"id": "r1", "epoch": 5})
        for seen in (others, claimed, newer):
            with self.subTest(seen):
                rollout = self.begin({"h1": host()}, budget=1, family_budget=1)
                rollout.on_switch(101, *rollout.next(100).switch, conflict)
                self.assertEqual(rollout.next(102).ask, ["h1"])
                rollout.on_status(103, "h1", seen)
                self.assertEqual(rollout.counts(), {"refused": 1})
        # An order that this record does not know, as after the loss of the newest copy.
        rollout = self.begin({"h1": host()})
        rollout.on_switch(1, *rollout.next(0).switch, conflict)
        rollout.on_status(3, "h1", status(switch={"id": 1, "to": NEW, "phase": "proving"}, rollout={"id": "r1", "epoch": 1}))
        self.assertEqual(rollout.counts(), {"ordered": 1})
        self.ends(rollout, 60, ["h1"])
        self.assertEqual(rollout.counts(), {"done": 1})

    def test_an_old_process_that_finishes_its_jobs_is_not_waited_for(self):
        rollout = self.begin({"h1": host()})
        self.order(rollout, 0)
        retiring = status(NEW, switch={"id": 1, "to": NEW, "phase": "finishing-old"})
        rollout.on_status(60, "h1", retiring)
        self.assertEqual(rollout.counts(), {"ordered": 1})
        rollout.on_status(200, "h1", retiring)
        self.assertEqual(rollout.counts(), {"done": 1})

    def test_who_waits_for_a_window_takes_no_other_hosts_place(self):
        rollout = self.begin({f"h{number}": host() for number in range(9)}, {"canary": 0, "percents": [100]}, at_once=3)
        rollout.record["at_window"] = True
        first = self.order(rollout, 0)
        self.assertEqual(self.order(rollout, 1), [])
        # For that long it may be the splay, after which all of them switch.
        for now, more in ((2, 0), (130, 2)):
            for each in first[:2]:
                rollout.on_status(now, each, status(switch={"id": 1, "to": NEW, "phase": "scheduled"}))
            self.assertEqual(len(self.order(rollout, now + 1)), more)

    def test_what_lacks_the_release_installs_first_within_a_budget_of_its_own(self):
        facts = {f"h{number}": host(status=status(installed=[OLD])) for number in range(6)}
        rollout = self.begin(facts, {"canary": 0, "percents": [100]}, install_at_once=2, budget="50%", family_budget="50%")
        first = rollout.next(0)
        self.assertEqual((len(first.install), first.switch), (2, []))
        self.assertEqual(rollout.next(1).install, [])
        one, other = first.install
        rollout.on_install(5, one, {"code": 0})
        second = rollout.next(5)
        self.assertEqual((second.switch, len(second.install)), ([one], 1))
        # Its answer was lost: its status says it.
        rollout.on_status(20, other, status())
        self.assertEqual(rollout.next(20).switch, [other])
        # A source that is away is tried again, what the host refuses is not.
        third = second.install[0]
        rollout.on_install(21, third, {"error": {"class": "failed", "message": "cannot reach the mirror"}})
        self.assertEqual(rollout.next(22).install, [])
        rollout.on_status(60, third, status(installed=[OLD]))
        self.assertEqual(rollout.next(61).install, [])
        rollout.on_status(200, third, status(installed=[OLD]))
        self.assertEqual((rollout.next(201).install, rollout.record["hosts"][third]["orders"]), ([third], 2))
        rollout.on_install(202, third, {"code": 0})
        fourth = next(each for each in rollout.next(203).install)
        rollout.on_install(204, fourth, {"error": {"class": "no-space", "message": "cannot install: 3 GB are missing"}})
        self.assertEqual(rollout.record["hosts"][fourth]["state"], "refused")
        rollout.on_install(205, fourth, {"code": 0})
        self.assertEqual(rollout.record["hosts"][fourth]["state"], "refused", "what has ended has ended")

    def test_time_without_a_master_is_no_silence_of_the_hosts(self):
        rollout = self.begin({"h1": host()}, patience_seconds=100)
        self.order(rollout, 0)
        rollout.skip_outage(5000)
        rollout.next(5050)
        self.assertEqual(rollout.counts(), {"ordered": 1})
        rollout.next(5100)
        self.assertEqual(rollout.counts(), {"lost": 1})

    def test_a_wave_goes_back_to_what_each_host_ran_before(self):
        facts = {"h1": host(), "h2": host(status=status("3006.9-1")), "h3": host(), "h4": host()}
        rollout = self.begin(facts, {"canary": ["h1", "h2"], "percents": [100]}, budget=4, family_budget=4)
        self.ends(rollout, 20, self.order(rollout, 0))
        self.assertEqual(len(self.order(rollout, 21)), 0)
        self.ends(rollout, 50, self.order(rollout, 40)[:1])
        back = Rollout(beginning.back("b1", rollout.record, 0, 60))
        self.assertEqual(sorted(back.next(60).switch), ["h1", "h2"])
        self.assertEqual({each: one["to"] for each, one in back.record["hosts"].items()}, {"h1": OLD, "h2": "3006.9-1"})
        # What its status says of the way there is not the end of the way back.
        back.on_status(61, "h2", status(NEW, last={"id": 1, "to": NEW, "result": "committed", "failure": None}))
        back.on_status(90, "h1", status(OLD, last={"id": 2, "to": OLD, "result": "committed", "failure": None}))
        back.on_status(90, "h2", status("3006.9-1", last={"id": 2, "to": "3006.9-1", "result": "committed", "failure": None}))
        back.next(91)
        self.assertEqual((back.record["status"], back.counts()), ("ended", {"done": 2}))
        self.assertEqual(len(beginning.back("b2", rollout.record, None, 60)["hosts"]), 3)
        with self.assertRaises(states.RolloutError):
            beginning.back("b3", back.record | {"hosts": {}}, None, 60)

    def test_a_person_pauses_and_resumes(self):
        rollout = self.begin({f"h{number}": host() for number in range(4)}, {"canary": 0, "percents": [100]}, at_once=1)
        hosts = self.order(rollout, 0)
        rollout.pause("the office is empty")
        self.ends(rollout, 20, hosts)
        self.assertEqual(self.order(rollout, 21), [])
        rollout.resume()
        self.assertEqual(len(self.order(rollout, 22)), 1)

    def test_a_failed_host_is_forced_when_a_person_wants_it_again(self):
        rollout = self.begin({"h1": host()}, budget=0)
        self.ends(rollout, 20, self.order(rollout, 0), "rolled-back")
        rollout.resume(again=True)
        self.assertTrue(rollout.record["hosts"]["h1"]["force"])

    def test_wrong_settings_are_errors(self):
        for wrong in ({"budget": "2 hosts"}, {"budget": "200%"}, {"at_once": 0}, {"atonce": 3}, {"patience_seconds": "long"}):
            with self.subTest(wrong), self.assertRaises(states.RolloutError):
                self.begin({"a": host()}, **wrong)


class Simulations(unittest.TestCase):
    def test_ten_thousand_hosts_end_with_none_stuck_and_none_ordered_in_vain(self):
        for seed in range(3):
            result = simulator.run(simulator.World(seed=seed, deaths=3), at_once=200, per_minute=200)
            self.assertEqual((result.status, result.stuck, result.twice), ("ended", 0, 0), result)
            self.assertLessEqual(result.most_in_flight, 200)
            self.assertLessEqual(result.over_budget, 0)
            self.assertEqual(sum(result.counts.values()), 10_000)

    def test_a_release_that_fails_on_one_family_halts_with_the_canaries(self):
        result = simulator.run(simulator.World(failing={"Suse": 1.0}))
        self.assertEqual(result.status, "halted")
        self.assertEqual(result.counts.get("failed"), 2)
        self.assertLessEqual(sum(result.counts.get(state, 0) for state in ("done", "failed")), 6)

    def test_a_budget_is_never_exceeded_by_more_than_what_was_on_its_way(self):
        for seed in range(20):
            world = simulator.World(hosts=1000, seed=seed, failing={"Suse": 0.3, "Debian": 0.02})
            wanted_here = planning.Wanted("salt-minion", simulator.NEW, canary=0, percents=[20, 100], seed=str(seed))
            result = simulator.run(world, wanted_here, at_once=40, per_minute=100)
            self.assertEqual((result.status, result.stuck), ("halted", 0), result)
            self.assertLessEqual(result.over_budget, 40)


if __name__ == "__main__":
    unittest.main()
