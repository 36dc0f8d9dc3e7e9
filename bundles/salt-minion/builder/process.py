"""Run other programs, and say what went wrong in one line."""

import subprocess
import sys

# A failing pip or compiler explains itself in its last lines; more would bury the cause.
ERROR_LINES_SHOWN = 15
# pip lists all versions of a package in one line.
ERROR_CHARACTERS_SHOWN = 200


class Refusal(Exception):
    """A build that cannot go on: what failed, and what the reader can do about it."""

    def __init__(self, cause, remedy):
        super().__init__(f"{cause}\n  help: {remedy}")


def say(line):
    """Tell the person who waits; standard output stays empty."""
    print(f"build-tree: {line}", file=sys.stderr, flush=True)


def run(command, cause, remedy, **options):
    """Run `command`, give its standard output; a failure becomes a Refusal."""
    done = attempt(command, cause, remedy, **options)
    if done.returncode:
        raise failed(done, cause, remedy)
    return done.stdout


def attempt(command, cause, remedy, **options):
    """Run `command`, give how it ended; only one that cannot be started becomes a Refusal."""
    try:
        return subprocess.run(
            [str(word) for word in command],
            check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options,
        )
    except OSError as error:
        raise Refusal(f"{cause}: cannot run {command[0]}: {error.strerror}", remedy) from error


def failed(done, cause, remedy):
    """The Refusal of a program that failed: its last lines say why."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()[-ERROR_LINES_SHOWN:]
    told = [line[:ERROR_CHARACTERS_SHOWN] for line in lines]
    return Refusal("\n    ".join([f"{cause}: exit {done.returncode}", *told]), remedy)
