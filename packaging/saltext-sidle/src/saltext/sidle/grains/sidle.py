"""
The grain ``sidle``: what this host has of sidle, for targeting and for the plan of a rollout.

.. code-block:: yaml

    sidle:
      version: 0.1.0
      instances:
        salt-minion:
          package: salt-minion
          current: 3007.17-1       # what a boot starts
          running: 3007.17-1       # what the agent runs from
          previous: 3006.30-1
          installed: [3006.30-1, 3007.17-1]
          phase: null              # of the switch under way
          to: null                 # the release of that switch
          last: {id: 4, purpose: switch, to: 3007.17-1, result: committed, cause: null}
          bad: []                  # releases that failed here
          declined: []             # releases from which an administrator rolled back
          held: false

A host without sidle has no such grain. The beacon ``sidle`` refreshes it when a switch ends; without the beacon, ``saltutil.refresh_grains`` does.
Target by it: ``salt -G 'sidle:instances:salt-minion:current:3006.30-1' …``.
"""

import json
import os
import shutil
import subprocess

#: Where the program is if PATH lacks it.
PLACES = ("/usr/bin/sidle", "/usr/local/bin/sidle")

#: Reading the state takes milliseconds; a disk that hangs must not keep the minion from its start.
SECONDS = 10


def sidle():
    """Returns the grain."""
    options = __opts__.get("sidle") or {}
    found = options.get("program") or shutil.which("sidle") or next(filter(os.path.exists, PLACES), None)
    if not found:
        return {}
    status = _ask(found, options, "status", "--no-trees")
    releases = _ask(found, options, "list")
    if status is None or releases is None:
        return {}
    return {"sidle": {"version": _version(found), "instances": _instances(status, releases["releases"])}}


def _instances(status, releases):
    return {each["instance"]: _instance(each, releases) for each in status["instances"]}


def _instance(status, releases):
    last, live, agent = status["last"], status["switch"], (status["supervisor"] or {}).get("agent")
    return {
        "package": status["package"],
        "current": status["current"],
        "running": agent["release"] if agent else None,
        "previous": status["previous"],
        "installed": status["installed"],
        "phase": live["phase"] if live else None,
        "to": live["to"] if live else None,
        "last": {
            **{key: last[key] for key in ("id", "purpose", "to", "result")},
            "cause": last["failure"]["cause"] if last["failure"] else None,
        }
        if last
        else None,
        "bad": _marked(releases, status["instance"], "bad"),
        "declined": _marked(releases, status["instance"], "declined"),
        "held": status["hold"] is not None,
    }


def _marked(releases, instance, mark):
    return [
        each["release"]
        for each in releases
        if any(own["instance"] == instance and own["mark"] == mark for own in each["marks"])
    ]


def _ask(program, options, *words):
    answer = _output([program, "--json", f"--root={options.get('root', '/')}", *words])
    try:
        told = json.loads(answer or "")
    except ValueError:
        return None
    return None if "error" in told else told


def _version(program):
    words = (_output([program, "--version"]) or "").split()
    return words[1] if len(words) > 1 else None


def _output(command):
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=SECONDS, check=False
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return None
