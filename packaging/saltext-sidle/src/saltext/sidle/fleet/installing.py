"""
What a fleet needs on its master and minions besides the extension: the modules in the file root, a schedule and a reactor of the master, the beacon of the
minions, a copy of the repository. Each part is looked at first; what is so already is left alone.
"""

import json
import os
import subprocess
import tempfile

import salt.config
import salt.exceptions
import salt.utils.yaml

from . import answers, asking, values
from .announcing import sidle_program
from .states import RolloutError

#: What a file root has of the extension for minions, and where.
KINDS = {"modules": "_modules", "states": "_states", "grains": "_grains", "beacons": "_beacons"}

#: The file of the master's configuration, and the state file of the reactor, beside the main file.
CONFIGURATION, REACTION = "sidle-fleet.conf", "reactor.d/sidle.sls"

TAG = "salt/minion/*/start"

#: A copy of a repository may take so long, seconds.
MIRROR_SECONDS = 3_600

#: Of many minions so many are named.
NAMED = 5

REACTION_TEXT = """take it up:
  runner.sidle.take_up:
    - minion: {{ data['id'] }}
"""


class Installing:
    """One look at a fleet. `ask`: as `Rollouts.ask`; `test`: nothing is changed."""

    def __init__(self, opts, ask, test):
        self._opts, self._ask, self._test = opts, ask, test
        #: Whether minions must take modules that were not there before.
        self._has_new_modules = False
        self._found = {"changed": [], "is so": [], "failed": [], "next": []}

    def run(self, target, minutes, interval, repository):
        """Checks each part, and changes what is not so; returns what was changed, by lines."""
        for part in (self._files, lambda: self._master(minutes), lambda: self._repository(repository), lambda: self._beacons(target, interval)):
            try:
                part()
            except (OSError, ValueError, salt.exceptions.SaltException, salt.utils.yaml.YAMLError) as error:
                self._found["failed"].append(values.text(str(error), limit=2_000))
        found = {key: lines for key, lines in self._found.items() if lines}
        if self._test and "changed" in found:
            found["would change"] = found.pop("changed")
        return {**found, **({"retcode": 1} if "failed" in found else {})}

    def _so(self, line):
        self._found["is so"].append(line)

    def _changed(self, line):
        self._found["changed"].append(line)

    # --- the file root ---------------------------------------------------------------------------------------------

    def _root(self):
        roots = self._opts["file_roots"].get("base") or []
        if not roots or "roots" not in (self._opts.get("fileserver_backend") or ["roots"]):
            raise RolloutError("cannot copy into the file root: this master has no file_roots with base; put saltext-sidle-sync.zip where its file server looks")
        return str(roots[0])

    def _files(self):
        """Writes the modules of minions into the file root."""
        root, own = self._root(), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        if not os.path.isfile(os.path.join(own, "modules", "sidle.py")):
            # It came to this master by a sync, out of a file root.
            self._so(f"the modules of minions came from a file root of this master: {own} is a copy of it")
            return
        new = []
        for kind, place in KINDS.items():
            for name in sorted(os.listdir(os.path.join(own, kind))):
                if name.endswith(".py") and name != "__init__.py":
                    with open(os.path.join(own, kind, name), encoding="utf-8") as file:
                        new += self._write(os.path.join(root, place, name), file.read())
        if new:
            self._has_new_modules = not self._test
            self._changed(f"{len(new)} modules of minions in {root}: {', '.join(os.path.relpath(path, root) for path in new)}")
        else:
            self._so(f"the modules of minions are in {root}")

    def _write(self, path, text):
        """Writes a file that has another text; returns its path, or nothing where it is so."""
        if _read(path) == text:
            return []
        if not self._test:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            # Beside it, and then renamed: the file server and a master that starts see all of it or the old one.
            descriptor, new = tempfile.mkstemp(prefix=".sidle-", dir=os.path.dirname(path))
            try:
                with open(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fchmod(file.fileno(), 0o644)
                    os.fsync(file.fileno())
                os.replace(new, path)
            except BaseException:
                os.unlink(new)
                raise
        return [path]

    # --- the master ------------------------------------------------------------------------------------------------

    def _master(self, minutes):
        """Writes the schedule and the reactor into the master's configuration, where it has none."""
        directory = os.path.dirname(os.path.abspath(self._opts["conf_file"]))
        path, reaction = os.path.join(directory, os.path.dirname(self._opts["default_include"]), CONFIGURATION), os.path.join(directory, REACTION)
        before = _known(self._opts)
        # What this file has is not what the site has by itself.
        own = _yaml(_read(path)) or {}
        wanted = {}
        if not _goes_on(before) or "schedule" in own:
            wanted["schedule"] = {"sidle": {"function": "sidle.go_on", "minutes": minutes, "maxrunning": 10}}
        if not self._takes_up(before) or "reactor" in own:
            wanted["reactor"] = [{TAG: [reaction]}]
        for name, has in (("schedule", "calls sidle.go_on"), ("reactor", f"calls sidle.take_up on {TAG}")):
            if name not in wanted:
                self._so(f"the master's {name} {has}")
        if not wanted:
            return
        hidden = sorted(set(wanted) & set(_yaml(_read(self._opts["conf_file"])) or {}))
        if hidden:
            raise RolloutError(f"cannot write {path}: {self._opts['conf_file']} has {' and '.join(hidden)} itself, which this would hide; add there: {_text(wanted)}")
        new = (self._write(reaction, REACTION_TEXT) if "reactor" in wanted else []) + self._write_checked(path, _text(wanted), before)
        if new:
            self._changed(f"the master's {' and '.join(wanted)}: {', '.join(new)}")
            self._found["next"].append("restart salt-master: it reads its schedule and its reactor when it starts")
        else:
            self._so(f"the master's {' and '.join(wanted)} are in {path}")

    def _write_checked(self, path, text, before):
        """Writes the file of the configuration, and takes it back if Salt reads less than before, or not what it says."""
        old = _read(path)
        new = self._write(path, text)
        if not new or self._test:
            return new
        after = _known(salt.config.master_config(self._opts["conf_file"]))
        lost = [name for name in ("schedule", "reactor") if any(each not in after[name] for each in before[name] if "sidle" not in str(each))]
        if lost or not _goes_on(after) or not self._takes_up(after):
            if old is None:
                os.unlink(path)
            else:
                self._write(path, old)
            what = f"the site's own {' and '.join(lost)} would be lost" if lost else "another file hides it"
            raise RolloutError(f"cannot write {path}: {what}; nothing was changed there. Add to the file that has them: {text}")
        return new

    @staticmethod
    def _takes_up(known):
        for each in known["reactor"]:
            for files in each.values() if isinstance(each, dict) else ():
                if any("sidle.take_up" in (_read(str(file)) or "") for file in (files if isinstance(files, list) else [files])):
                    return True
        return False

    # --- the repository ----------------------------------------------------------------------------------------------

    def _repository(self, repository):
        """Makes a copy of a repository in the file root, verified."""
        if not repository:
            return
        program, place = sidle_program(self._opts), os.path.join(self._root(), "sidle", "repo")
        root = (self._opts.get("sidle") or {}).get("root", "/")
        command = [program, "--json", f"--root={root}", "mirror", place, f"--repository={repository}", "--delete", *(["--dry-run"] if self._test else [])]
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=MIRROR_SECONDS, check=False)
        said = _json(ran.stdout)
        error = said.get("error") or {}
        if ran.returncode not in (0, 3) or error.get("class", "nothing-to-do") != "nothing-to-do":
            words = ". ".join(each for each in (error.get("message") or ran.stderr.strip(), error.get("hint")) if each)
            raise RolloutError(f"cannot copy {repository} to {place}: {words}")
        self._so(f"{place} is a copy of {repository}") if ran.returncode == 3 else self._changed(f"{place}, a copy of {repository}: source=salt://sidle/repo")

    # --- the minions -------------------------------------------------------------------------------------------------

    def _beacons(self, target, interval):
        """Adds the beacon to each minion that has sidle and no such beacon: after the modules have come."""
        ids, _ = asking.resolve(self._opts, *target)
        if not ids:
            raise RolloutError(f"cannot configure the beacon: no accepted key matches {target[0]} ({target[1]})")
        versions = {} if self._has_new_modules else self._ask(ids, "sidle.version", read=_taken, most=1)
        without = [minion for minion in ids if not _is_version(versions.get(minion))]
        if without and not self._test:
            self._ask(without, "saltutil.sync_all", read=_taken, most=1)
            versions.update(self._ask(without, "sidle.version", read=_taken, most=1))
        able = [minion for minion in ids if _is_version(versions.get(minion))]
        listed = self._ask(able, "beacons.list", kwarg={"return_yaml": False}, read=_taken, most=1)
        lacking = [minion for minion in able if isinstance(listed.get(minion), dict) and "sidle" not in listed[minion]]
        has = [minion for minion in able if isinstance(listed.get(minion), dict) and minion not in lacking]
        if has:
            self._so(f"{len(has)} minions have the beacon sidle")
        self._left_out(ids, versions, able, listed)
        if self._test or not lacking:
            if lacking:
                self._changed(f"the beacon sidle on {_some(lacking)}")
            return
        added = self._ask(lacking, "beacons.add", ["sidle", [{"interval": interval}]], read=_taken, most=1)
        good = [minion for minion in lacking if _is_true(added.get(minion))]
        # In memory only until then.
        saved = self._ask(good, "beacons.save", read=_taken, most=1)
        kept = [minion for minion in good if _is_true(saved.get(minion))]
        if kept:
            self._changed(f"the beacon sidle on {_some(kept)}")
        for minion in lacking:
            if minion not in kept:
                said = saved.get(minion, added.get(minion))
                comment = said.get("comment") if isinstance(said, dict) else said or "it did not answer; call this again when it does"
                self._found["failed"].append(f"cannot configure the beacon on {minion}: {values.text(str(comment))}")

    def _left_out(self, ids, versions, able, listed):
        silent = [minion for minion in ids if minion not in versions] + [minion for minion in able if not isinstance(listed.get(minion), dict)]
        if silent:
            self._found["next"].append(f"{_some(silent)} did not answer: call this again when they are back")
        lack = [minion for minion in ids if minion in versions and minion not in able]
        if lack:
            why = "were not given the modules yet" if self._test else "have no program sidle"
            self._found["next"].append(f"{_some(lack)} {why}: they have no beacon")


def _is_version(said):
    return isinstance(said, str) and "is not available" not in said


def _is_true(said):
    return isinstance(said, dict) and said.get("result") is True


def _taken(told):
    if isinstance(told, (str, dict, type(None))):
        return told
    raise answers.Unreadable("it is of another kind")


def _some(ids):
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return f"{len(ids)} minions ({', '.join(sorted(ids)[:NAMED])}{more})"


def _known(opts):
    reactor = opts.get("reactor") or []
    return {"schedule": list((opts.get("schedule") or {}).items()), "reactor": reactor if isinstance(reactor, list) else [reactor]}


def _goes_on(known):
    return any(isinstance(job, dict) and job.get("function") == "sidle.go_on" for _, job in known["schedule"])


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _yaml(text):
    found = salt.utils.yaml.safe_load(text) if text else None
    return found if isinstance(found, dict) else None


def _text(wanted):
    return salt.utils.yaml.safe_dump(wanted, default_flow_style=False)


def _json(text):
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
