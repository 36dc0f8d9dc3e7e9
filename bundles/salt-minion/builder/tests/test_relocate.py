"""Tests of search paths: what a library finds beside itself, and in the tree."""

import pathlib
import tempfile
import unittest

from builder import relocate


class TestSearchPath(unittest.TestCase):
    """The search paths that files of a tree get."""

    def setUp(self):
        """Make a tree with libzmq as wheels of pyzmq bring it."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.tree = pathlib.Path(directory.name)
        self.place = self.tree / "lib/python3.11/site-packages/pyzmq.libs"
        self.place.mkdir(parents=True)
        self.libzmq = self.place / "libzmq-e8adeef9.so.5.2.4"
        for path in (self.libzmq, self.place / "libsodium-a0cd10d3.so.23.3.0", self.tree / "lib/libstdc++.so.6"):
            path.touch()

    def path(self, needed, directories):
        """Give the search path of libzmq if it has none, and needs these libraries and these directories of the tree."""
        more = [*relocate.beside(self.libzmq, needed, directories), *directories]
        return relocate.search_path(self.libzmq, self.tree, [], more, None)

    def test_a_library_of_a_wheel_still_finds_what_lies_beside_it(self):
        """Salt 3007.17 did not start from a portable Python: with a search path of its own, libzmq no longer used that of the module."""
        needed = ["libsodium-a0cd10d3.so.23.3.0", "libstdc++.so.6"]
        self.assertEqual(self.path(needed, [self.tree / "lib"]), ["$ORIGIN", "$ORIGIN/../../.."])

    def test_what_needs_nothing_of_the_tree_or_nothing_beside_it_stays_as_it_was(self):
        """The module's search path goes on to count where the library gets none."""
        self.assertEqual(self.path(["libsodium-a0cd10d3.so.23.3.0"], []), [])
        self.assertEqual(self.path(["libstdc++.so.6", "libc.so.6"], [self.tree / "lib"]), ["$ORIGIN/../../.."])
