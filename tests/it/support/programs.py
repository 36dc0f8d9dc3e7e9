"""Runs Salt's `salt-master`, `salt` and `salt-run`, and code that speaks to a master, each in a process of its own, without loading Salt for each: it loads Salt
once, and forks.

Each line of standard input is one JSON object:

    program     salt-master, salt, salt-run or code: a file of Python's, `path`, or its text, `code`
    arguments   of the program
    said        the file that takes its standard output
    errors      that of its standard error, which may be the same
    input       what it reads as standard input: then it goes on beside what is asked next. Without this it reads nothing, and is waited for

Each is answered with a line on standard output: its exit status, or, where it goes on, its process number. Ends when standard input does.
"""

import importlib
import json
import os
import runpy
import sys
import traceback

import salt.scripts
import setproctitle

# What each program loads; what reaches a master loads nearly all of one.
LOADS = {
    "salt-master": ("salt.cli.daemons", "salt.master"),
    "salt": ("salt.cli.salt", "salt.client", "salt.defaults.exitcodes", "salt.output", "salt.transport.tcp", "salt.utils.job"),
    "salt-run": (
        "salt.cli.run", "salt.client", "salt.client.ssh.client", "salt.cloud", "salt.fileserver", "salt.key", "salt.minion", "salt.output", "salt.runner",
        "salt.transport.tcp", "salt.utils.job",
    ),
    "code": ("salt.client", "salt.config", "salt.transport.tcp", "salt.utils.args", "salt.utils.event", "salt.utils.jid"),
}


def code(request):
    """Python's own way to run a program."""
    if "path" in request:
        runpy.run_path(request["path"], run_name="__main__")
    else:
        exec(compile(request["code"], "-c", "exec"), {"__name__": "__main__"})


def master(request):
    """In a process group of its own, under its own name: processes are looked for by their arguments."""
    os.setpgid(0, 0)
    setproctitle.setproctitle(" ".join(["salt-master", *request["arguments"]]))
    salt.scripts.salt_master()


ENTRIES = {"salt-master": master, "salt": lambda _: salt.scripts.salt_main(), "salt-run": lambda _: salt.scripts.salt_run(), "code": code}


def run(request):
    """The program itself; gives its exit status."""
    said, errors = (os.open(request[name], os.O_WRONLY | os.O_TRUNC | os.O_APPEND) for name in ("said", "errors"))
    read = os.open(request.get("input", os.devnull), os.O_RDONLY)
    for source, target in ((read, 0), (said, 1), (errors, 2)):
        os.dup2(source, target)
        os.close(source)
    sys.argv = [request.get("path", request["program"]), *request["arguments"]]
    try:
        ENTRIES[request["program"]](request)
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main():
    going_on = set()
    for line in sys.stdin:
        request = json.loads(line)
        for name in LOADS[request["program"]]:
            importlib.import_module(name)
        going_on -= {pid for pid in going_on if os.waitpid(pid, os.WNOHANG)[0]}
        child = os.fork()
        if not child:
            status = 1
            try:
                status = run(request)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(status & 0xFF)
        if "input" in request:
            going_on.add(child)
            print(child, flush=True)
            continue
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


main()
