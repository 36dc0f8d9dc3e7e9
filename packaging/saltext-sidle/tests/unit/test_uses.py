"""What a fleet uses is added up by function, whatever a host says. Run by `scripts/lint`; needs no Salt."""

import itertools
import json
import unittest

import bare_salt

with bare_salt.importable():
    from saltext.sidle.fleet import answers, uses


def told(*each, enough=True):
    found = [{"kind": kind, "name": name, "times": times, "days": 1, "last": last} for kind, name, times, last in each]
    return {"code": 0, "enough": enough, "days": 40, "uses": found}


VAULT, PING = ("module", "vault.read_secret"), ("module", "test.ping")


class Counts(unittest.TestCase):
    def test_hosts_are_added_up_and_those_without_a_count_are_named_with_the_cause(self):
        found = {
            "web1": told((*VAULT, 12, "2026-11-20"), (*PING, 1, "2026-11-01")),
            "web2": told((*VAULT, 3, "2026-10-02"), enough=False),
            "web3": {"code": 1, "error": {"class": "failed", "code": 1, "message": "cannot tell what salt-minion uses: no guard has counted yet", "hint": None}},
            "web4": "'sidle.uses' is not available.",
        }
        made = uses.added("salt-minion", {minion: answers.taken(uses.read, each) for minion, each in found.items()}, [*found, "web5"])
        self.assertEqual((made.hosts, made.enough), (2, 1))
        self.assertEqual(made.uses[0], {"kind": "module", "name": "vault.read_secret", "hosts": 2, "times": 15, "last": "2026-11-20", "named": 0})
        self.assertEqual(sorted(itertools.chain(*made.uncounted.values())), ["web3", "web4", "web5"])
        shown = uses.text(made)
        self.assertIn("module vault.read_secret:  2 hosts, 15 times, last on 2026-11-20", shown)
        for part in ("2 hosts have counted what they use, 1 of them", "web3: cannot tell", "web4: it lacks this extension", "web5: it does not answer"):
            self.assertIn(part, shown)

    def test_hosts_without_a_count_say_what_is_named_there_and_it_is_said_which_of_the_two_it_is(self):
        named = {**told((*VAULT, 0, None), ("states", "zabbix_host.present", 0, None), enough=False), "counted": False, "why": "no guard has counted yet"}
        logged = {**told((*VAULT, 0, "2026-11-21"), enough=False), "counted": False, "why": "no guard has counted yet"}
        found = {"web1": told((*VAULT, 12, "2026-11-20")), "web2": named, "web3": logged}
        made = uses.added("salt-minion", {minion: answers.taken(uses.read, each) for minion, each in found.items()}, found)
        self.assertEqual((made.hosts, made.enough, made.told, made.uncounted), (1, 1, 2, {"no guard has counted yet": ["web2", "web3"]}))
        self.assertEqual(made.uses[0], {"kind": "module", "name": "vault.read_secret", "hosts": 1, "times": 12, "last": "2026-11-21", "named": 2})
        shown = uses.text(made)
        self.assertIn("vault.read_secret:    1 hosts, 12 times, named, not counted, on 2, last on 2026-11-21", shown)
        self.assertIn("states zabbix_host.present:  named, not counted, on 1", shown)
        self.assertIn("2 of them say what their configuration, highstate and log name: more may be used there", shown)

    def test_what_no_guard_counts_is_unreadable_and_the_others_go_on(self):
        evil = [
            None, 5, [], {"uses": None}, told(("module", "a\x1b[2J", 1, "2026-11-20")), told(("module", "x" * 121, 1, "2026-11-20")),
            told((*VAULT, -1, "2026-11-20")), told((*VAULT, True, "2026-11-20")), told((*VAULT, 1, "yesterday")), told((*VAULT, 1, "2026-11-20"), enough="yes"),
            told(*[("module", f"a.b{number}", 1, "2026-11-20") for number in range(uses.USES_MAX + 1)]), told(([], {}, 1, "2026-11-20")),
        ]  # fmt: skip
        found = {f"m{number}": answers.taken(uses.read, each) for number, each in enumerate(evil)}
        self.assertTrue(all(isinstance(each, answers.Unreadable) for each in found.values()), found)
        found["good"] = answers.taken(uses.read, told((*PING, 1, "2026-11-01")))
        made = uses.added("salt-minion", found, found)
        self.assertEqual((made.hosts, len(made.uses), sum(map(len, made.uncounted.values()))), (1, 1, len(evil)))
        self.assertTrue(uses.text(made).replace("\n", "").isprintable())

    def test_a_fleets_uses_are_written_for_the_packager(self):
        written = {}

        class Files:
            def path(self, name):
                return f"/files/{name}"

            def write(self, name, text):
                written[name] = text
                return self.path(name)

        class Own:
            files, package = Files(), "salt-minion"

            def ask(self, ids, function, arguments, read):
                assert (function, arguments) == ("sidle.uses", ["salt-minion"])
                return {minion: answers.taken(read, told((*VAULT, 1, "2026-11-20"))) for minion in ids}

        original, uses.asking.resolve = uses.asking.resolve, lambda *_: (["a", "b"], [])
        self.addCleanup(setattr, uses.asking, "resolve", original)
        said = uses.show({}, Own(), ("*", "glob"), None, "data", "uses.json")
        self.assertEqual(said, "salt-minion: functions used: 1, on 2 hosts; written to /files/uses.json")
        found = json.loads(written["uses.json"])
        self.assertEqual((found["schema"], found["hosts"], found["uses"][0]["hosts"]), (1, 2, 2))
        with self.assertRaisesRegex(uses.UsesError, "formats are text and data"):
            uses.show({}, Own(), ("*", "glob"), None, "html", None)


if __name__ == "__main__":
    unittest.main()
