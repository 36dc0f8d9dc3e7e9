"""What the beacon says of a switch with a downtime. Run by `scripts/lint`; needs no Salt."""

import unittest

from saltext.sidle.beacons import sidle as beacon

SWITCH = {
    "id": 7, "to": "3007.17-1", "from": "3006.30-1", "purpose": "switch", "failure": None, "downtime_milliseconds": 31_200,
    "requested_at": "2026-11-24T09:12:00.123456Z",
}  # fmt: skip


class Downtime(unittest.TestCase):
    def setUp(self):
        beacon.__opts__ = {"id": "web17"}
        self.addCleanup(delattr, beacon, "__opts__")

    def test_the_event_has_its_length_and_the_command_for_the_master(self):
        told = beacon._told(SWITCH)
        self.assertEqual((told["downtime"], told["missed"]), (31.2, "salt-run sidle.missed web17 since=2026-11-24T09:12:00Z"))

    def test_a_switch_without_a_downtime_says_nothing_of_it(self):
        told = beacon._told({**SWITCH, "downtime_milliseconds": 0})
        self.assertFalse({"downtime", "missed"} & set(told))


if __name__ == "__main__":
    unittest.main()
