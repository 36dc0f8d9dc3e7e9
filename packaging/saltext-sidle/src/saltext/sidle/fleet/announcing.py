"""
Tells of what becomes of a rollout: an event at each new state, a command of the site at a halt, and its page and file.

Told at least once: the record says which state was told last, so that the next driver, or `sidle.go_on`, tells what a killed runner has not. Nothing here
ends a rollout: what fails is a line in the record.
"""

import json
import logging
import os
import shlex
import shutil
import subprocess
import time

from . import meanwhile, report, report_page, states, values
from .files import FileError, Files

log = logging.getLogger(__name__)

#: Events of a rollout, `TAG/NAME/STATUS`.
TAG = "salt/sidle/rollout"

#: The command at a halt, and the signature, may take so long: the driver waits.
COMMAND_SECONDS = 30

#: Where the program is if PATH lacks it.
PROGRAMS = ("/usr/bin/sidle", "/usr/local/bin/sidle")


class Announcer:
    """Tells of the rollouts of the master with this configuration. `fire`: takes a tag and data."""

    def __init__(self, opts, fire, now=time.time):
        self._opts, self._own, self._fire, self._now = opts, opts.get("sidle") or {}, fire, now
        self.files = Files(self._own.get("reports", os.path.join(opts["cachedir"], "sidle", "reports")))

    def announce(self, record):
        """Tells of the state of a rollout; the record has then what was told, and what failed. Its caller writes the record."""
        told = {"status": record["status"], "problems": []}
        if record["status"] != states.RUNNING:
            told.update(self._written(record, told["problems"]))
        data = self._data(record, told)
        self._try(told["problems"], "fire an event", lambda: self._fire(f"{TAG}/{record['id']}/{record['status']}", data))
        if record["status"] == states.HALTED and self._own.get("on_halt"):
            self._try(told["problems"], "run on_halt", lambda: self._call(data))
        record["announced"] = told

    def write(self, record):
        """Writes page and file of a rollout that was told of, as its hosts are now."""
        told = record.get("announced") or {"status": record["status"]}
        told["problems"] = [each for each in told.get("problems", ()) if not each.startswith(("cannot write", "cannot sign"))]
        told.update(self._written(record, told["problems"]))
        record["announced"] = told

    def _data(self, record, told):
        known = {key: record[key] for key in ("purpose", "package", "release", "status", "why", "waves")}
        paths = {key: told[key] for key in ("file", "page", "signature") if told.get(key)}
        counts = report.Rollout(record).counts()
        by = record["acts"][-1]["by"] if record.get("acts") else None
        return {"rollout": record["id"], **known, "wave": record["wave"] + 1, "counts": counts, "last_act_by": by, "master": self._opts.get("id"), **paths}

    def _try(self, problems, what, work):
        """Runs a part; what it says of its failure is a problem, and no end of the rollout."""
        try:
            return work()
        except Exception as error:  # pylint: disable=broad-except
            log.exception("rollout: cannot %s", what)
            problems.append(str(error) if isinstance(error, FileError) else f"cannot {what}: {values.text(str(error) or type(error).__name__)}")
        return None

    def _written(self, record, problems):
        """Writes the file and the page; returns where they are."""
        missed = self._try(problems, "count missed jobs", lambda: meanwhile.numbers(self._opts, record["hosts"]))
        made = report.made(record, self._opts.get("id"), self._now(), missed)
        found = {}
        for key, end, text in (("file", "json", json.dumps(made, indent=1, allow_nan=False)), ("page", "html", report_page.render(made))):
            path = self._try(problems, f"write the {key}", lambda end=end, text=text: self.files.write(f"{record['id']}.{end}", text + "\n"))
            if path:
                found[key] = path
        key = self._own.get("sign")
        if key and "file" in found:
            signature = self._try(problems, f"sign {found['file']}", lambda: self._sign(str(key), found["file"]))
            found.update({"signature": signature} if signature else {})
        return found

    def _sign(self, key, path):
        # A signature of the file's former content must not stay beside it.
        signature = f"{path}.minisig"
        if os.path.lexists(signature):
            os.unlink(signature)
        _run([sidle_program(self._opts), "key", "sign", key, path])
        return signature

    def _call(self, data):
        command = self._own["on_halt"]
        words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
        if not words or not os.path.isabs(words[0]):
            raise ValueError("the command begins with the whole path of a program, as in on_halt: [/usr/local/sbin/call-oncall]")
        named = {"SIDLE_ROLLOUT": data["rollout"], "SIDLE_STATUS": data["status"], "SIDLE_PAGE": data.get("page", ""), "SIDLE_FILE": data.get("file", "")}
        _run(words, json.dumps(data), {**os.environ, **named})


def sidle_program(opts):
    """Returns the path of sidle on this master. Raises `OSError`."""
    program = (opts.get("sidle") or {}).get("program") or shutil.which("sidle") or next((place for place in PROGRAMS if os.access(place, os.X_OK)), None)
    if not program:
        raise OSError("this master has no program sidle: install it, or name it, `sidle: {program: …}` in the master's configuration")
    return program


def _run(words, given="", environment=None):
    """Runs a program to its end, and raises what it says if it fails."""
    ran = subprocess.run(
        words, input=given, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=COMMAND_SECONDS,
        check=False,
    )  # fmt: skip
    if ran.returncode:
        raise OSError(f"{words[0]} ended with code {ran.returncode}: {ran.stdout.strip() or 'it said nothing'}")
