"""The clock of a driver. Run by `scripts/lint`; needs no Salt."""

import unittest

from saltext.sidle.fleet import clocks


class Clocks(unittest.TestCase):
    def test_a_gap_is_what_no_clock_explains_or_what_no_step_takes(self):
        for wall, steady, gap in ((2, 2, 0), (1202, 2, 1200), (-3598, 2, -3600), (31, 2, 0), (1200, 1200, 1140), (50, 50, 0), (2402, 1202, 2342)):
            times = {"wall": 5.0, "steady": 5.0}
            clock = clocks.Clock(lambda times=times: times["wall"], lambda times=times: times["steady"])
            times.update(wall=5.0 + wall, steady=5.0 + steady)
            self.assertEqual((clock.gap(), clock.gap()), ((gap, 5.0 + wall), (0, 5.0 + wall)))


if __name__ == "__main__":
    unittest.main()
