"""Runs Salt's `salt` again and again, each time in a process of its own, without loading Salt for each: it loads Salt once, and forks.

Each line of standard input is one JSON object: `arguments` of the program, and `said`, the file that takes what it says. Each is answered with a line
on standard output: its exit status. Ends when standard input does.
"""

import json
import os
import sys
import traceback

import salt.cli.salt
import salt.client
import salt.defaults.exitcodes
import salt.output
import salt.scripts
import salt.utils.job


def run(request):
    """The program itself; gives its exit status."""
    said = os.open(request["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(source, target)
    sys.argv = ["salt-salt", *request["arguments"]]
    try:
        salt.scripts.salt_main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main():
    for line in sys.stdin:
        child = os.fork()
        if not child:
            status = 1
            try:
                status = run(json.loads(line))
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status & 0xFF)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


main()
