"""How many jobs were published while minions could not hear them. Run by `scripts/lint`; needs no Salt."""

import unittest
from unittest import mock

import bare_salt

with bare_salt.importable():
    from saltext.sidle.fleet import answers, meanwhile

BEGUN = 1_790_000_000


class FakeMaster:
    """Jobs that were published at these times, for these minions, that did not return them."""

    def __init__(self, _opts):
        pass

    def unreturned_since(self, since, minions):
        jobs = [(BEGUN + 40, {"web1"}), (BEGUN + 31, {"web2"}), (BEGUN + 20, {"web1", "web2"}), (BEGUN + 10, {"web1", "db1"}), (BEGUN - 60, {"web1"})]
        for published, of in jobs:
            if published >= since and of & minions:
                yield published, of & minions


class Meanwhile(unittest.TestCase):
    def counted(self, hosts):
        with mock.patch.object(meanwhile.silent, "Master", FakeMaster):
            return meanwhile.counted({}, hosts)

    def test_only_what_was_published_in_the_downtime_counts(self):
        down = {"seconds": 30.0, "begun": BEGUN, "ended": BEGUN + 30}
        found = self.counted({"web1": {"downtime": down}, "web2": {"downtime": down}, "web3": {"downtime": down}, "db1": {"downtime": None}, "db2": {}})
        self.assertEqual(sorted(found), ["web1", "web2"], "of web3 there is nothing to say")
        self.assertIn("30.0 s of downtime: 2 jobs were published meanwhile", found["web1"])
        self.assertRegex(found["web1"], r"`salt-run sidle.missed web1 since=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`$")
        self.assertIn("1 job was published meanwhile", found["web2"])
        with mock.patch.object(meanwhile, "SECONDS_MAX", -1):
            self.assertIn("at least 0 jobs were", self.counted({"web2": {"downtime": down}})["web2"])

    def test_without_a_downtime_nobody_reads_the_job_cache(self):
        self.assertEqual(meanwhile.counted({}, {"web1": {}}), {})

    def test_a_downtime_is_read_from_the_last_switch(self):
        last = {
            "id": 7, "to": "3007.17-1", "failure": None, "result": "committed", "downtime_milliseconds": 31_200,
            "requested_at": "2026-11-24T09:12:00.5Z", "ended_at": "2026-11-24T09:12:40Z",
        }  # fmt: skip
        read = answers._switch(last, "last")["downtime"]
        self.assertEqual((read["seconds"], read["ended"] - read["begun"]), (31.2, 40))
        self.assertNotIn("downtime", answers._switch({**last, "downtime_milliseconds": 0}, "last"))
        for wrong in ("yesterday", 5, "2026-13-24T09:12:00Z"):
            with self.subTest(wrong), self.assertRaises(answers.Unreadable):
                answers._switch({**last, "ended_at": wrong}, "last")


if __name__ == "__main__":
    unittest.main()
