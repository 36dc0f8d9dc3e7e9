"""Runs Salt's `salt` and `salt-run` again and again, each time in a process of its own, without loading Salt for each: it loads Salt once, and forks.

Each line of standard input is one JSON object: `program`, its `arguments`, `said`, the file that takes its standard output, and `errors`, that of its
standard error, which may be the same. Each is answered with a line on standard output: its exit status. Ends when standard input does.
"""

import importlib
import json
import os
import sys
import traceback

import salt.scripts

# What each program loads.
LOADS = {
    "salt": ("salt.cli.salt", "salt.client", "salt.defaults.exitcodes", "salt.output", "salt.utils.job"),
    "salt-run": (
        "salt.cli.run", "salt.client", "salt.client.ssh.client", "salt.cloud", "salt.fileserver", "salt.key", "salt.minion", "salt.output", "salt.runner",
        "salt.utils.job",
    ),
}
ENTRIES = {"salt": salt.scripts.salt_main, "salt-run": salt.scripts.salt_run}


def run(request):
    """The program itself; gives its exit status."""
    said, errors = (os.open(request[name], os.O_WRONLY | os.O_TRUNC | os.O_APPEND) for name in ("said", "errors"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (said, 1), (errors, 2)):
        os.dup2(source, target)
    sys.argv = [request["program"], *request["arguments"]]
    try:
        ENTRIES[request["program"]]()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main():
    for line in sys.stdin:
        request = json.loads(line)
        for name in LOADS[request["program"]]:
            importlib.import_module(name)
        child = os.fork()
        if not child:
            status = 1
            try:
                status = run(request)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status & 0xFF)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


main()
