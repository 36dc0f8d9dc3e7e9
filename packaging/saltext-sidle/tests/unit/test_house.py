"""The rules of the house for Python, as `tests/it/pure/architecture.rs` has those for Rust. Run by `scripts/lint`; needs no Salt."""

import ast
import unittest
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

#: Longest file. A longer one has more than one job.
LINES_MAX = 400

#: Longest function, its docstring left out: that of a function of Salt is its page.
FUNCTION_LINES_MAX = 50

#: What a docstring of a function begins with: what the function does. A new verb is added here.
VERBS = frozenset(
    ["Adds", "Aligns", "Answers", "Applies", "Asks", "Begins", "Calls", "Cancels", "Checks", "Claims", "Collects", "Compares", "Continues", "Counts", "Deletes", "Drives", "Ends", "Ensures", "Fires", "Gives", "Goes", "Hears", "Holds", "Installs", "Judges", "Leaves", "Lets", "Lists", "Makes", "Notes", "Orders", "Pins", "Plans", "Publishes", "Raises", "Reads", "Refuses", "Rehearses", "Remembers", "Removes", "Renders", "Renews", "Repairs", "Replaces", "Resolves", "Restarts", "Returns", "Runs", "Says", "Sends", "Shows", "Stops", "Switches", "Takes", "Tells", "Trusts", "Turns", "Upgrades", "Writes", "Yields"]
)


def breaches(name, text):
    """Returns which rules a file breaks."""
    if text.count("\n") > LINES_MAX:
        yield f"{name} has {text.count(chr(10))} lines, more than {LINES_MAX}"
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        doc, lines = ast.get_docstring(node), node.end_lineno - node.lineno + 1
        if doc is not None:
            lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            first = doc.split()[0].rstrip(",.:;")
            if first not in VERBS:
                yield f"{name}: the docstring of {node.name} begins with {first}, and not with a verb that this test knows"
        if lines > FUNCTION_LINES_MAX:
            yield f"{name}: {node.name} has {lines} lines, more than {FUNCTION_LINES_MAX}"


class House(unittest.TestCase):
    def test_files_and_functions_are_short_and_docstrings_begin_with_a_verb(self):
        files = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
        self.assertGreater(len(files), 25)
        found = [breach for name, text in sorted(files.items()) for breach in breaches(name, text)]
        self.assertEqual(found, [])

    def test_each_rule_can_be_broken(self):
        long_function = "def a():\n" + "    b()\n" * FUNCTION_LINES_MAX
        cases = [
            ("x = 1\n" * (LINES_MAX + 1), "lines, more than 400"), (long_function, "a has 51 lines"),
            ('class A:\n    def b(self):\n        """The path."""\n', "begins with The"),
        ]  # fmt: skip
        for text, expected in cases:
            self.assertIn(expected, "\n".join(breaches("x.py", text)))
        page = 'def a():\n    """\n    Returns it.\n' + "    more\n" * 60 + '    """\n'
        self.assertEqual(list(breaches("x.py", page)), [])


if __name__ == "__main__":
    unittest.main()
