"""The verdicts and notes of a plan, its groups, its table and its page, as values. Run by `scripts/lint`; needs no Salt."""

import html.parser
import json
import time
import unittest

from saltext.sidle.fleet import answers, groups, page, table
from saltext.sidle.fleet import plan as planning
from saltext.sidle.fleet.verdicts import Master, sign_in_of, version_key

NEW, OLD = "3007.17-1", "3006.30-1"


def status(current=OLD, **more):
    return {
        "instance": "salt-minion", "current": current, "installed": [OLD, NEW, current], "supervisor": {"version": "1"}, "hold": None,
        "switch": None, "rollout": None, "last": None, **more,
    }  # fmt: skip


def host(family="RedHat", **more):
    return {"family": family, "unseen_days": 0, "releases": [], "status": status(), **more}


def wanted(release=NEW, **more):
    return planning.Wanted("salt-minion", release, **more)


def judged(facts, masters=None, asked=None):
    return planning.make({"a": facts}, asked or wanted(), {"a": masters or {}}).hosts["a"]


def error(kind, message):
    return {"error": {"class": kind, "message": message}}


class Verdicts(unittest.TestCase):
    def test_each_refusal_has_its_kind_and_its_words(self):
        outside = error("held", "cannot switch salt-minion now: it is outside its maintenance windows, Sat 22:00-04:00; the next opens Sat 2026-11-28")
        lacking = status(installed=[OLD])
        claim = {"id": "r1", "epoch": 1, "until": "2026-12-01T00:00:00Z"}
        declined = [{"release": NEW, "marks": [{"mark": "declined"}], "problem": None}]
        cases = [
            (host(status=None, trouble="it lacks this extension"), {}, "no sidle", "it lacks this extension"),
            (host(status=status(hold={"by": "ann", "reason": "", "until": "2027-01-04"})), {}, "held", "held by ann, until 2027-01-04"),
            (host(status=status(rollout=claim)), {}, "rollout", "it belongs to rollout r1, until 2026-12-01T00:00:00Z"),
            (host(rehearsal=outside), {}, "window", "the next opens Sat 2026-11-28"),
            (host(releases=declined), {}, "declined", "marked as declined here"),
            (host(status=lacking, install=error("no-space", "the release needs 251 MiB of space, 3 MiB are free")), {}, "room", "3 MiB are free"),
            (host(status=lacking, install=error("no-space", "the release needs 15464 inodes, 9 are free")), {}, "room", "9 are free"),
            (host(status=lacking, install=error("failed", "the release is built for aarch64, this host is x86_64")), {}, "install", "aarch64"),
            (host(rehearsal=error("failed", "the tree is damaged")), {}, "rehearsal", "the tree is damaged"),
            (host(), {"m1": Master("3006.30", 3)}, "master", "its master m1 runs 3006.30, which is older than 3007.17-1: upgrade the master first"),
        ]
        for facts, masters, kind, words in cases:
            with self.subTest(words):
                found = judged(facts, masters)
                self.assertEqual((found.verdict, found.kinds), ("refused", [kind]))
                self.assertIn(words, found.why[0])

    def test_an_answer_that_cannot_be_read_refuses_its_host_alone(self):
        broken = [host(status={"current": OLD}, releases=[{"release": NEW}]), host(status=status(), releases=5), host(rehearsal={"error": "no"})]
        for facts in broken:
            with self.assertLogs(planning.log, "ERROR"):
                plan = planning.make({"a": facts, "b": host()}, wanted())
            self.assertEqual((plan.hosts["a"].verdict, plan.hosts["b"].verdict), ("refused", "go"))
            self.assertTrue(plan.hosts["a"].why[0].startswith("cannot read its answer"))
        plan = planning.make({"a": host(unreadable="cannot read its answer: it has no last"), "b": host()}, wanted())
        self.assertEqual((plan.hosts["a"].kinds, plan.hosts["a"].why), (["answer"], ["cannot read its answer: it has no last"]))

    def test_a_dry_run_repeats_no_reason_that_the_status_has_named(self):
        held = status(hold={"by": "ann", "reason": "", "until": None}, installed=[OLD])
        found = judged(host(status=held, rehearsal=error("held", "salt-minion is held")))
        self.assertEqual(found.kinds, ["held"])
        found = judged(host(status=held, install=error("no-space", "no room")))
        self.assertEqual(found.kinds, ["held", "room"])
        self.assertEqual(judged(host(rehearsal=error("nothing-to-do", "it is current"))).verdict, "go")

    def test_what_the_host_knows_of_this_master_is_said_once_and_of_another_one_as_its_reason(self):
        older = {**error("failed", "cannot switch salt-minion to 3007.17-1: its master m runs Salt 3006.30 (by a plan of 2026-11-26)"), "mode": None}
        older["error"]["reason"] = "peers"
        found = judged(host(rehearsal=older), {"m": Master("3006.30", 3)})
        self.assertEqual((found.verdict, found.kinds), ("refused", ["master"]))
        self.assertIn("which is older than 3007.17-1", found.why[0])
        found = judged(host(rehearsal=older), {"m": Master()})
        self.assertEqual((found.verdict, found.kinds, found.why), ("refused", ["master"], [older["error"]["message"]]))
        read = answers.dry_run({"code": 1, **older})
        self.assertEqual(read["error"]["reason"], "peers")

    def test_what_hosts_use_of_what_the_release_lacks_is_summed_with_the_last_day(self):
        def lacking(*lines):
            message = "cannot switch to 3007.17-1: would vanish, and is used here (module): vault.read_secret 12 times"
            return host(rehearsal=answers.dry_run({"code": 1, "error": {"class": "failed", "reason": "used", "message": message, "lines": list(lines)}}))

        made = planning.make({"a": lacking("module vault.read_secret 2026-11-19"), "b": lacking("module vault.read_secret 2026-11-20", "states zabbix.present 2026-10-01"), "c": host()}, wanted())
        self.assertEqual([made.hosts[each].verdict for each in "abc"], ["refused", "refused", "go"])
        self.assertIn("used, and not in the release (module): vault.read_secret: 2 hosts, last on 2026-11-20", made.notes)
        self.assertIn("used, and not in the release (states): zabbix.present: 1 host, last on 2026-10-01", made.notes)
        self.assertIn("vault.read_secret: 2 hosts, last on 2026-11-20", table.table(made))
        again = planning.read(json.loads(json.dumps(planning.write(made))))
        self.assertEqual(again.hosts["b"].uses, made.hosts["b"].uses)

    def test_a_release_that_the_master_would_lock_out_is_refused(self):
        newest = Master("3008.5", 3)
        found = judged(host(), {"m": newest}, wanted("3006.9-1"))
        self.assertEqual((found.verdict, found.kinds), ("refused", ["sign-in"]))
        self.assertIn("set minimum_auth_version: 2 there (it is 3)", found.why[0])
        self.assertEqual(judged(host(), {"m": Master("3008.5", 2)}, wanted("3006.9-1")).verdict, "go")
        self.assertEqual(judged(host(), {"m": newest}, wanted("3006.9-1", sign_in=3)).verdict, "go", "a packager's patch")
        demo = planning.Wanted("demo-agent", "1.0-1")
        self.assertEqual(judged(host(), {"m": newest}, demo).verdict, "go", "it has no masters")

    def test_a_way_back_that_is_closed_is_a_note(self):
        marked = [{"release": OLD, "marks": [{"mark": "bad", "reason": "it ended"}], "problem": None}]
        cases = [
            (host(status=status(None)), {}, "no way back by sidle: no release has worked here"),
            (host(releases=marked), {}, "no way back by itself: 3006.30-1 is marked as bad here: it ended"),
            (host(releases=[{"release": OLD, "marks": [], "problem": "cannot read its receipt"}]), {}, "no way back: cannot read its receipt"),
            (host(status=status(installed=[NEW])), {}, "no way back: 3006.30-1 is not installed any more"),
            (host(status=status("3006.9-1")), {"m": Master("3007.17", 3)}, "the way back is locked out: 3006.9-1 signs in with version 2"),
        ]
        for facts, masters, words in cases:
            with self.subTest(words):
                found = judged(facts, masters)
                self.assertEqual(found.verdict, "go")
                self.assertTrue(any(words in note for note in found.notes), found.notes)
        self.assertEqual(judged(host(), {"m": Master("3007.17", 3)}).notes, [])

    def test_what_is_good_to_know_is_a_note(self):
        loss = "3 functions of 2 execution modules would vanish: zfs (2), boto (1)"
        found = judged(host(rehearsal={"mode": "idle", "notes": [loss]}), {"m2": Master()})
        self.assertEqual(found.verdict, "go")
        self.assertEqual(found.notes[0], loss)
        self.assertIn("in mode idle", found.notes[1])
        self.assertIn("not known: the version of its master m2", found.notes[2])
        found = judged(host(status=status(installed=[OLD]), unchecked="not checked: room", install={"mode": "overlap", "notes": []}))
        self.assertEqual((found.lacks, found.notes), (True, ["3007.17-1 has to be installed", "not checked: room"]))

    def test_the_highstates_of_both_releases_are_counted_for_the_fleet_and_told_of_each_host(self):
        same, differs = {"compared": "rendered", "differences": []}, [{"id": "web", "function": "npm.installed"}, {"id": "\x1b[2J", "function": "file.managed"}]
        refused = {"class": "failed", "reason": "highstate", "message": "cannot switch: the highstate differs: web", "lines": ["the highstate differs: web"]}
        said = {
            "a": {"mode": "overlap", "notes": ["the highstate is the same"], "highstate": same},
            "b": {"mode": "overlap", "notes": [], "highstate": {"compared": "tested", "differences": differs}},
            "c": {"mode": "overlap", "notes": [], "highstate": {"compared": "tested", "differences": differs[:1]}},
            "d": {"mode": "overlap", "notes": [], "highstate": {"compared": "nothing", "differences": []}},
            "e": {"error": refused},
            "f": {"mode": "overlap", "notes": []},
        }
        plan = planning.make({minion: host(rehearsal=answers.dry_run(told)) for minion, told in said.items()}, wanted())
        found = {minion: known.highstate for minion, known in plan.hosts.items()}
        self.assertEqual(found, {"a": "same", "b": "differs", "c": "differs", "d": "not compared", "e": "differs", "f": None})
        self.assertEqual((plan.hosts["e"].verdict, plan.hosts["e"].kinds), ("refused", ["highstate"]))
        self.assertEqual(plan.notes[0], "the highstate of both releases: differs on 3 hosts, not compared on 1 host, same on 1 host")
        self.assertEqual(plan.notes[1], "on 2 hosts: web (npm.installed)")
        self.assertFalse(any("\x1b" in note for note in plan.notes), plan.notes)
        self.assertEqual(planning.read(planning.write(plan)), plan)
        self.assertEqual(planning.make({"a": host()}, wanted()).notes, [])

    def test_an_offline_minion_says_what_the_master_knows_of_it(self):
        found = judged(host(status=None, unseen_days=3, runs="3006.9"), {"m": Master("3007.17", 3)})
        self.assertEqual((found.verdict, found.running), ("offline", "3006.9"))
        self.assertIn("it may be locked out: 3006.9 signs in with version 2", found.notes[0])

    def test_the_salt_of_an_offline_minion_says_nothing_of_another_package(self):
        found = planning.make({"a": host(status=None, unseen_days=3, runs="3008.5")}, planning.Wanted("demo-agent", "1.1-1")).hosts["a"]
        self.assertEqual((found.verdict, found.running), ("offline", None), "when it is back, it is not left out for that")

    def test_relax_upgrade_tighten_is_said_of_the_fleet(self):
        facts = {"old": host(status=status("3006.9-1")), "new": host(), "away": host(status=None, unseen_days=2, runs="3005.1")}

        def notes(minimum):
            return planning.make(facts, wanted(), {each: {"m": Master("3008.5", minimum)} for each in facts}).notes

        self.assertEqual(len(notes(3)), 1)
        self.assertTrue(notes(3)[0].startswith("2 minions cannot sign in at master m again"))
        self.assertIn("Relax it (minimum_auth_version: 2), upgrade, then tighten it", notes(3)[0])
        told = "after the rollout tighten master m: minimum_auth_version: 3 (it is 2); for 2 minions that closes the way back"
        self.assertEqual(notes(2), [told])

    def test_sign_ins_are_those_of_the_published_releases(self):
        found = {version: sign_in_of(version) for version in ("2015.5.11", "3004", "3004.2", "3005", "3006.11", "3006.12", "3007.3", "3007.4-2", "3008.5-1")}
        self.assertEqual(list(found.values()), [0, 0, 2, 2, 2, 3, 2, 3, 3])
        self.assertLess(version_key("3006.9"), version_key("3006.30"))


class Groups(unittest.TestCase):
    def test_old_minions_that_a_target_misses_are_named_with_their_version(self):
        versions = {f"old{number:02}": "2015.5.11" for number in range(31)} | {"new": "3007.17", "late": "3007.17"}
        found = groups.reach("web", [*versions, "silent"], ["new", "late"], versions)
        self.assertEqual((found.expected, found.deaf, found.silent), (34, ["2015.5.11"], 1))
        (line,) = found.lines()
        self.assertTrue(line.startswith("web would not reach old00, old01, old02, old03, old04 and 26 more, because they are 2015.5.11"), line)

    def test_a_version_that_is_reached_elsewhere_is_not_the_cause(self):
        found = groups.reach("web", ["a", "b"], ["a", "c"], {"a": "3007.17", "b": "3007.17", "c": "3007.17"})
        self.assertEqual((found.lost, found.deaf, found.surplus), ({"3007.17": ["b"]}, [], ["c"]))
        missed, more = found.lines()
        self.assertIn("their grains or pillar differ from the master's cache", missed)
        self.assertIn("would reach c, too", more)

    def test_what_reaches_all_says_nothing_and_what_reaches_nobody_says_so(self):
        self.assertEqual(list(groups.reach("web", ["a"], ["a"], {"a": "3007.17"}).lines()), [])
        self.assertEqual(list(groups.reach("web", [], [], {}).lines()), ["web matches no minion"])
        self.assertEqual(list(groups.reach("web", ["a"], [], {}).lines()), ["web: none of its 1 minions answers"])


def fleet(number):
    """So many hosts; each tenth is held, each tenth lacks the release."""
    facts = {}
    for each in range(number):
        hold = {"by": "ann", "reason": "year's end", "until": None} if each % 10 == 0 else None
        installed = [OLD] if each % 10 == 1 else [OLD, NEW]
        facts[f"host{each:05}"] = host(["RedHat", "Debian"][each % 2], status=status(hold=hold, installed=installed))
    return facts


class Kept(unittest.TestCase):
    def plan(self, number=50, **more):
        facts = fleet(number)
        plan = planning.make(facts, wanted(canary=4, **more), {each: {"m": Master("3007.17", 3)} for each in facts})
        plan.groups = [vars(groups.reach("web", ["a", "b"], ["a"], {"a": "3007.17", "b": "2015.5.11"}))]
        return plan

    def test_a_plan_that_was_written_down_is_read_as_it_was(self):
        plan = self.plan(seed="r1")
        self.assertEqual(planning.read(json.loads(json.dumps(planning.write(plan)))), plan)
        self.assertEqual(plan.seed, "r1")
        self.assertEqual(plan.masters, [{"name": "m", "version": "3007.17", "minimum_auth": 3, "hosts": 50}])

    def test_what_is_no_plan_is_not_read(self):
        good = planning.write(self.plan())
        first = good["waves"][0]
        wrong = [
            [], {}, {**good, "schema": 2}, {**good, "hosts": None}, {**good, "waves": [first]}, {**good, "waves": [*good["waves"], first]},
            {key: value for key, value in good.items() if key != "seed"}, {**good, "hosts": {**good["hosts"], "x": {"verdict": "perhaps"}}},
            {**good, "waves": 5}, {**good, "hosts": {**good["hosts"], "x": {"unknown": 1}}},
        ]  # fmt: skip
        for values in wrong:
            with self.subTest(str(values)[:60]), self.assertRaises(planning.PlanError):
                planning.read(values)

    def test_the_waves_of_an_earlier_plan_are_kept_without_those_that_do_not_go_any_more(self):
        old = self.plan(100, seed="r1")
        facts = fleet(100)
        canary, later = old.waves[0][0], old.waves[2][0]
        gone = old.waves[1][0]
        facts[canary]["status"]["hold"] = {"by": "ann", "reason": "", "until": None}
        facts[later]["status"]["current"] = NEW
        del facts[gone]
        again = planning.make(facts, wanted(canary=0, percents=[100]))
        made = planning.renewed(planning.read(planning.write(old)), again)
        left_out = {canary, later, gone}
        self.assertEqual(made.waves, [[each for each in wave if each not in left_out] for wave in old.waves])
        self.assertTrue(all(made.hosts[each].wave == number for number, wave in enumerate(made.waves) for each in wave))
        self.assertEqual([made.hosts[each].verdict for each in (canary, later)], ["refused", "there"])
        self.assertIn("in the plan, but do not go any more", made.notes[-1])
        self.assertEqual(planning.read(planning.write(made)), made)

    def test_a_plan_whose_canaries_do_not_go_any_more_is_not_used(self):
        old = self.plan()
        facts = fleet(50)
        for each in old.waves[0]:
            facts[each]["status"]["hold"] = {"by": "ann", "reason": "", "until": None}
        again = planning.make(facts, wanted(canary=0, percents=[100]))
        with self.assertRaisesRegex(planning.PlanError, "nobody of its first wave goes now .*held by ann.*plan again"):
            planning.renewed(old, again)

    def test_ten_thousand_hosts_take_less_than_two_seconds(self):
        begun = time.process_time()
        plan = self.plan(10_000)
        table.table(plan)
        page.render(plan, "* (glob)", "today")
        planning.read(planning.write(plan))
        self.assertLess(time.process_time() - begun, 2)


class Tables(unittest.TestCase):
    def test_equal_reasons_of_many_hosts_are_one_line(self):
        plan = planning.make(fleet(2000), wanted(canary=4))
        lines = table.table(plan).splitlines()
        self.assertEqual(lines[0], "salt-minion 3007.17-1: 1800 go, 200 refused; waves of 4, 176, 720, 900")
        self.assertLess(len(lines), 10)
        (held,) = (line for line in lines if "held by ann" in line)
        self.assertEqual(held.split()[:2], ["refused", "200"])
        self.assertTrue(held.endswith("host00000, host00010, host00020, host00030, host00040 and 195 more"), held)
        self.assertEqual(len(table.table(plan, verbose=True).splitlines()), 2003)

    def test_reasons_that_differ_by_a_number_are_one_line_with_an_example(self):
        facts = {f"h{number}": host(install=error("no-space", f"{number} MiB are free")) for number in range(30)}
        (line,) = (line for line in table.table(planning.make(facts, wanted())).splitlines() if "MiB" in line)
        self.assertIn("30     such as 0 MiB are free: h0", line)

    def test_small_plans_have_a_line_for_each_host_and_nobody_commands_the_terminal(self):
        plan = planning.make({"a\x1b[2J": host(), "b": host(status=status(hold={"by": "\x1b]0;x\x07", "reason": ""}))}, wanted())
        text = table.table(plan)
        self.assertIn("b", text)
        self.assertFalse([each for each in text if not each.isprintable() and each != "\n"])


class Reader(html.parser.HTMLParser):
    """What a page's tags and texts are."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.texts.append(data)


class Pages(unittest.TestCase):
    EVIL = '"><img src=x onerror=alert(1)><script>alert(2)</script>&lt;'

    def test_nothing_that_a_host_or_a_person_says_is_markup(self):
        evil = self.EVIL
        facts = {
            evil: host(evil, status=status(hold={"by": evil, "reason": evil}), rehearsal={"notes": [evil]}),
            "b": host(evil, rehearsal={"notes": [evil]}),
            "c": host(status=None, unseen_days=2, runs=evil),
        }
        plan = planning.make(facts, wanted(), {each: {evil: Master(evil, None)} for each in facts})
        plan.groups, plan.notes = [vars(groups.reach(evil, ["a"], ["b"], {"a": evil}))], [evil]
        plain = Reader(page.render(planning.make({"b": host()}, wanted()), "*", "today"))
        found = Reader(page.render(plan, evil, evil))
        self.assertNotIn("img", found.tags)
        self.assertEqual(found.tags.count("script"), 1)
        self.assertFalse([name for name, _ in found.attributes if name.startswith("on")])
        self.assertEqual({name for name, _ in found.attributes} - {name for name, _ in plain.attributes}, set())
        self.assertGreaterEqual(found.texts.count(evil), 4)
        self.assertIn(("data-family", evil), found.attributes)

    def test_invisible_characters_turn_no_line_around(self):
        text = page.render(planning.make({"a\u202eb": host()}, wanted()), "*", "today")
        self.assertNotIn("\u202e", text)

    def test_the_page_needs_no_other_file_and_has_each_host(self):
        plan = planning.make(fleet(30), wanted(canary=4))
        text = page.render(plan, "* (glob)", "today")
        found = Reader(text)
        self.assertFalse([value for name, value in found.attributes if name in ("src", "href", "action")])
        self.assertNotIn("url(", text)
        self.assertTrue(all(each in found.texts for each in plan.hosts))
        self.assertIn(("scope", "row"), found.attributes)
        self.assertIn("No wave: nobody goes.", page.render(planning.make({"a": host(status=None)}, wanted()), "*", "today"))


if __name__ == "__main__":
    unittest.main()
