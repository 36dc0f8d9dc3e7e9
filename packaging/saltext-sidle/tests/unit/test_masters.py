"""Whether masters agree: cards are made, carried by a minion, read and compared. Run by `scripts/lint`; needs no Salt."""

import json
import os
import shutil
import stat
import tempfile
import time
import unittest

import bare_salt

with bare_salt.importable():
    from saltext.sidle.fleet import agree, answers, cards, masters
    from saltext.sidle.modules import _sidle_cards as kept

NOW = time.time()


class Place(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)

    def master(self, name, key="the key of both", **more):
        """Gives the options of a master with files of its own."""
        own = os.path.join(self.place, name)
        for directory in ("pki/minions", "pki/minions_pre", "cache", "files/web", "pillar"):
            os.makedirs(os.path.join(own, directory))
        for path, text in (("pki/master.pem", key), ("pki/minions/web1", "KEY 1"), ("files/top.sls", "base: {}"), ("files/web/init.sls", "web: []"), ("pillar/top.sls", "x: 1")):
            self.write(name, path, text)
        roots = {"file_roots": {"base": [f"{own}/files"]}, "pillar_roots": {"base": [f"{own}/pillar"]}}
        return {"id": name, "pki_dir": f"{own}/pki", "cachedir": f"{own}/cache", "minimum_auth_version": 3, "nodegroups": {"web": "web*"}, **roots, **more}

    def write(self, name, path, text):
        with open(os.path.join(self.place, name, path), "w", encoding="ascii") as file:
            file.write(text)

    def card(self, opts, records=(), now=None):
        return cards.make(opts, cards.own(opts, records), cards.Seal(opts), now)


class Cards(Place):
    def compared(self, here, there, records=()):
        """Gives what differs by the card of the other one, by section."""
        seal, found = cards.Seal(here), cards.own(here, records)
        card = cards.read(self.card(there), seal)
        self.assertTrue(card.is_sealed)
        guesses = agree._other_keys(here)
        every = [cards.compare(section, found.entries[section], card.sections[section], seal, guesses) for section in cards.SECTIONS]
        return {each.section: each for each in every if each}

    def test_masters_that_have_the_same_agree_and_each_difference_is_named(self):
        here, there = self.master("m1"), self.master("m2")
        self.assertEqual(self.compared(here, there), {})
        self.write("m1", "pki/minions/web9", "KEY 9")
        self.write("m2", "pki/minions/web1", "ANOTHER KEY")
        self.write("m2", "pki/minions/db1", "KEY OF DB1")
        self.write("m1", "pki/minions_pre/db1", "KEY OF DB1")
        self.write("m2", "files/web/init.sls", "web: [other]")
        self.write("m1", "pillar/secret.sls", "password: 1")
        there["nodegroups"] = {"web": "web* and not web9"}
        there["keep_jobs_seconds"] = 7
        found = self.compared(here, there, [{"id": "r1", "epoch": 3, "status": "running"}])
        self.assertEqual((found["keys"].only_here, found["keys"].differs, found["keys"].only_there, found["keys"].guessed), (["web9"], ["web1"], 1, ["db1"]))
        self.assertEqual((found["file_roots"].differs, found["file_roots"].only_here), (["base:web/"], []))
        self.assertEqual((found["pillar_roots"].only_here, found["nodegroups"].differs), (["base:secret.sls"], ["web"]))
        self.assertEqual((found["settings"].differs, found["rollouts"].only_here), (["keep_jobs_seconds"], ["r1"]))
        text = agree.render(here, agree.Report("m1", "3008.5", 3, [agree.Other("m2", "m2", "web1", NOW, "3008.5", 2, True, list(found.values()))]))
        for words in ("! Salt 3008.5, minimum_auth_version 2", "only here: web9", "only there, and known here: db1", "on both, and not the same: base:web/", "rsync -rcni"):
            self.assertIn(words, text)

    def test_of_many_keys_those_are_named_among_which_one_differs(self):
        here, there = self.master("m1"), self.master("m2")
        for number in range(2_000):
            for name in ("m1", "m2"):
                self.write(name, f"pki/minions/host{number}", f"KEY {number}")
        self.assertEqual(self.compared(here, there), {})
        self.write("m1", "pki/minions/host77", "ANOTHER KEY")
        found = self.compared(here, there)["keys"]
        self.assertIn("host77", found.among)
        self.assertLess(len(found.among), 40)

    def test_a_card_tells_a_minion_nothing_and_is_small(self):
        opts = self.master("m1")
        for number in range(500):
            self.write("m1", f"pki/minions/host{number}", f"KEY {number}")
        text = self.card(opts)
        self.assertLess(len(text), cards.CARD_BYTES)
        self.assertFalse([word for word in ("web1", "host7", "top.sls", "KEY") if word in text])

    def test_a_card_of_another_key_or_that_was_changed_is_not_sealed_and_nonsense_is_no_card(self):
        here = self.master("m1")
        seal = cards.Seal(here)
        self.assertFalse(cards.read(self.card(self.master("m2", key="another one")), seal).is_sealed)
        told = json.loads(self.card(here))
        told["body"] = told["body"].replace('"minimum_auth_version":3', '"minimum_auth_version":0')
        changed = cards.read(json.dumps(told), seal)
        self.assertEqual((changed.minimum_auth, changed.is_sealed), (0, False))
        for wrong in (None, 5, "", "[]", "{}", '{"body": "{}"}', "[" * 5000, "x" * (cards.CARD_BYTES + 1), '{"body": 5, "seal": []}'):
            with self.subTest(str(wrong)[:20]), self.assertRaises(answers.Unreadable):
                cards.read(wrong, seal)
        for section in ({}, {"form": "entries", "count": 1, "data": "AAA"}, {"form": "entries", "count": -1, "data": ""}, {"form": "groups", "count": 1, "data": ""}):
            body = json.loads(json.loads(self.card(here))["body"])
            body["sections"]["keys"] = section
            with self.subTest(section), self.assertRaises(answers.Unreadable):
                cards.read(json.dumps({"body": json.dumps(body), "seal": ""}), seal)


class Carried(Place):
    """Two masters, and minions that both command."""

    def setUp(self):
        super().setUp()
        self.minion = os.path.join(self.place, "minion")

    def ask(self, master):
        def ask(ids, function, arguments=(), read=lambda told: told):
            self.assertEqual(function, "sidle.masters_card")
            opts = {"cachedir": self.minion, "master": master, "master_uri": f"tcp://{master}:4506", "multimaster": True}
            return {minion: answers.taken(read, kept.exchange(opts, *arguments)) for minion in ids}

        return ask

    def test_each_master_reads_the_card_of_the_other_one_and_the_plan_knows_its_version(self):
        here, there = self.master("m1"), self.master("m2")
        first = agree.compare(here, self.ask("m1"), [], ["web1"])
        self.assertIn("have left no card there", " ".join(first.notes))
        second = agree.compare(there, self.ask("m2"), [], ["web1"])
        self.assertEqual([(each.name, each.is_sealed, any(each.differences)) for each in second.others], [("m1", True, False)])
        self.assertIn("They agree.", agree.render(there, second))
        self.assertEqual(masters.Masters(there).of(["m1"])["m1"], masters.Master(second.version, 3))
        self.assertEqual(masters.Masters(there).of(["m1:4506"])["m1:4506"].minimum_auth, 3)
        told = masters.Masters({**there, "sidle": {"masters": {"m1": {"version": "3007.17"}}}}).of(["m1"])["m1"]
        self.assertEqual(told.version, "3007.17", "the table of the configuration counts first")
        self.assertEqual(agree.heard(there, time.time() + agree.OLD_SECONDS + 60), {}, "an old card is forgotten")

    def test_a_card_without_a_seal_is_shown_and_not_used(self):
        agree.compare(self.master("m1", key="another one"), self.ask("m1"), [], ["web1"])
        there = self.master("m2")
        report = agree.compare(there, self.ask("m2"), [], ["web1"])
        self.assertEqual([(each.is_sealed, each.differences) for each in report.others], [(False, [])])
        self.assertIn("is not sealed with the key of this master", " ".join(report.notes))
        self.assertEqual(agree.heard(there), {})

    def test_a_minion_keeps_what_its_masters_say_of_themselves_and_the_card_says_it_too(self):
        agree.compare(self.master("m1"), self.ask("m1"), [], ["web1"])
        kept.tell({"cachedir": self.minion, "master": "m2", "master_uri": "tcp://m2:4506"}, "3007.17", 2, "a plan")
        place = os.path.join(self.minion, "sidle", "masters")
        found = {}
        for name in (name for name in os.listdir(place) if name.endswith(".told")):
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(place, name)).st_mode), 0o600)
            with open(os.path.join(place, name), encoding="utf-8") as file:
                told = json.load(file)
            self.assertLess(abs(told.pop("at") - NOW), 3600)
            found[told["master"]] = told
        self.assertEqual(found["m2"], {"master": "m2", "version": "3007.17", "minimum_auth_version": 2, "source": "a plan"})
        self.assertEqual((found["m1"]["minimum_auth_version"], found["m1"]["source"]), (3, "its card"))
        # Of no use to the other masters, and in nobody's way.
        self.assertEqual(len(kept.exchange({"cachedir": self.minion, "master": "m3", "master_uri": "tcp://m3:4506"})["cards"]), 1)

    def test_what_is_no_version_is_not_kept_and_a_flood_of_masters_leaves_few_files(self):
        opts = {"cachedir": self.minion, "master": "m1", "master_uri": "tcp://m1:4506"}
        for wrong in ((None,), ("",), ("x" * 80,), ("3007\x1b[2J",), (5,), ("3007.17", "3"), ("3007.17", -1), ("3007.17", True), ("3007.17", 1 << 40)):
            with self.subTest(wrong), self.assertRaises(ValueError):
                kept.tell(opts, *wrong)
        self.assertFalse(os.path.exists(os.path.join(self.minion, "sidle")))
        for number in range(40):
            kept.tell({**opts, "master_uri": f"tcp://m{number}:4506"}, "3007.17")
        self.assertEqual(len(os.listdir(os.path.join(self.minion, "sidle", "masters"))), kept.CARDS_MAX)

    def test_a_minion_keeps_few_small_cards_for_its_user_alone(self):
        for number in range(40):
            opts = {"cachedir": self.minion, "master": f"m{number}", "master_uri": f"tcp://m{number}:4506"}
            kept.exchange(opts, "a card")
        place = os.path.join(self.minion, "sidle", "masters")
        self.assertEqual(len(os.listdir(place)), kept.CARDS_MAX)
        self.assertEqual({stat.S_IMODE(os.stat(os.path.join(place, name)).st_mode) for name in os.listdir(place)}, {0o600})
        for wrong in ("x" * (kept.CARD_BYTES + 1), 5, ["a"]):
            with self.subTest(str(wrong)[:9]), self.assertRaises(ValueError):
                kept.exchange(opts, wrong)


if __name__ == "__main__":
    unittest.main()
