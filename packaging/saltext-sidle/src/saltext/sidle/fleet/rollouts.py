"""The rollouts of a master, for the functions of its runner: planned, begun, continued and ended."""

import json
import logging
import os
import re
import time

from . import acts, announcing, asking, beginning, driver, jobs, meanwhile, names, states, values
from . import plan as planning
from . import table as tables
from .bus import CHUNK, Bus
from .cards import CardError
from .files import FileError, Files
from .jobs import Away
from .records import Driven, Records
from .rollout import Rollout
from .states import RolloutError

log = logging.getLogger(__name__)

#: Seconds to wait for the answer of a minion, unless the configuration says otherwise.
ANSWER_SECONDS = 20

#: So long a driver is waited for that has not taken a command: it takes them between two steps, and asks the hosts for a while when it ends.
HEARD_SECONDS = 40

#: So often it is looked whether it has.
HEARD_PAUSE_SECONDS = 0.5

#: What prevents an act: the message says why.
ERRORS = (planning.PlanError, RolloutError, names.WrongName, FileError, Away, CardError)


def failed(message):
    """Returns the answer of a function that failed: `salt-run` takes its exit code from it."""
    return {"error": str(message), "retcode": 1}


def summary(record):
    """Returns the state of a rollout in a few lines."""
    told = record.get("announced") or {}
    return {
        "rollout": record["id"],
        "purpose": record["purpose"],
        "release": record["release"],
        "status": record["status"],
        "why": record["why"],
        "wave": f"{record['wave'] + 1} of {record['waves']}",
        **({"master": record["master"]} if "master" in record else {}),
        "counts": Rollout(record).counts(),
        **{key: told[key] for key in ("page", "file", "signature", "problems") if told.get(key)},
    }


def details(record):
    """Returns the state of a rollout with each of its hosts."""
    return {**summary(record), "failures": list(record["failures"].values()), "hosts": record["hosts"]}


def has_work(record):
    """Returns whether somebody should drive a rollout."""
    in_progress = (states.WAITING, *states.IN_FLIGHT_STATES)
    is_late = record["status"] == states.LATE and any(host["state"] in in_progress for host in record["hosts"].values())
    return is_late or record["status"] == states.RUNNING


def index_of(wave):
    """Returns the index of a wave that a person counts from 1; None: all waves. Raises `RolloutError`."""
    if not isinstance(wave, (int, type(None))):
        raise RolloutError("cannot roll back this wave: it is a number, 1 is the first one")
    return None if wave is None else wave - 1


def _outcome(opts, record):
    missed = meanwhile.counted(opts, record["hosts"])
    told = {**summary(record), "missed": missed} if missed else summary(record)
    return {**told, "retcode": 1} if record["status"] in (states.HALTED, states.ABORTED) else told


class Rollouts:
    """The rollouts of the master with this configuration. `by`: the user who calls, as Salt says."""

    def __init__(self, opts, by=None):
        self._opts, self._own, self._by = opts, opts.get("sidle") or {}, by
        place = self._own.get("rollouts", os.path.join(opts["cachedir"], "sidle", "rollouts"))
        self.records = Records(place, os.path.join(opts["sock_dir"], "sidle"))
        self.files = Files(self._own.get("files", os.path.join(opts["cachedir"], "sidle", "files")))
        self.package = self._own.get("package", "salt-minion")
        #: The id of this master: the record of a rollout names the master whose driver began last.
        self._master = str(opts.get("id"))

    def _bus(self):
        return Bus(self._opts, self._own.get("chunk", CHUNK))

    def ask(self, ids, function, arguments=(), kwarg=None, seconds=None, **options):
        """Returns the answers of those minions that answer in time. `options`: those of `Bus.ask`."""
        if not ids:
            return {}
        with self._bus() as bus:
            return bus.ask(list(ids), function, arguments, kwarg, seconds or self._own.get("answer_seconds", ANSWER_SECONDS), **options)

    def details(self, name):
        """Returns the state of a rollout with each of its hosts, and what was published while they could not hear."""
        record = self.records.read(name)
        missed = meanwhile.counted(self._opts, record["hosts"])
        return {**details(record), **({"missed": missed} if missed else {})}

    # --- plans -----------------------------------------------------------------------------------------------------

    def _asking(self, source, timing):
        return asking.Asking(self._opts, self.ask, source, timing)

    def plan(self, target, wanted, source, timing, groups=None):
        """Returns a new plan. `target`: a target and its type; `timing`: as of `wanted.timing`."""
        return asking.planned(self._asking(source, timing), wanted, target, groups)

    def written_plan(self, name):
        """Returns the plan in a file."""
        text = self.files.read(name)
        try:
            return planning.read(json.loads(text))
        except planning.PlanError:
            raise
        except (ValueError, RecursionError):
            raise planning.PlanError(f"cannot read the plan {name}: it is no JSON: `sidle.plan` writes it with format=data") from None

    def plan_again(self, old, source, timing, sign_in):
        """Returns an earlier plan for the minions that still go."""
        return asking.planned_again(self._asking(source, timing), old, sign_in)

    # --- rollouts --------------------------------------------------------------------------------------------------

    def free_name(self, name, package, release):
        """Returns the name of a new rollout: this one, or one made of package, release and time."""
        names.package(package)
        names.release(str(release))
        made = re.sub(r"[^A-Za-z0-9._-]", "-", f"{package}-{release}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
        name = names.rollout(str(name or "") or made)
        self._check_new(name)
        return name

    def _check_new(self, name):
        """Raises `RolloutError` if there is a rollout of this name."""
        if self.records.has(name):
            raise RolloutError(f"cannot begin rollout {name}: there is a rollout of this name; choose another name, or go on with `salt-run sidle.resume {name}`")

    def check_failures(self, package, release):
        """Raises `RolloutError` if another rollout of this master found the release bad: a person has to look first."""
        for name in self.records.names():
            record = self.records.read(name)
            if (record["package"], record["release"], record["purpose"]) != (package, release, states.SWITCH):
                continue
            for failure in record["failures"].values():
                if failure["cause"] == "release" and not failure["accepted"]:
                    raise RolloutError(
                        f"cannot begin a rollout of {release}: rollout {name} found it bad: {failure['text']} (on {', '.join(failure['hosts'])}); "
                        "despite_failures=True begins all the same"
                    )

    def begin(self, name, plan, settings, options):
        """Drives a new rollout of this plan to its end, or to a halt. `options`: `source`, `install_rate`, `splay`, `at_window`, `outside_window`."""
        if not plan.waves:
            raise planning.PlanError(f"cannot begin a rollout: nobody goes\n{tables.table(plan)}")
        record = beginning.new(name, plan, time.time(), **settings)
        if options["install_rate"] is not None:
            jobs.bytes_of(options["install_rate"])
        return self._drive({**record, **options}, "rollout")

    def _drive(self, record, act):
        """Drives a new rollout. Another one may have begun by its name while this one was planned."""
        acts.note(record, time.time(), act, self._by)
        record["master"] = self._master
        with self.records.driving(record["id"]), self._bus() as bus:
            self._check_new(record["id"])
            return _outcome(self._opts, driver.drive(record, bus, self.records, announcer=self._announcer(bus)))

    def _announcer(self, bus):
        return announcing.Announcer(self._opts, bus.fire)

    def _tell(self, record, bus):
        """Tells of the state of a rollout that has no driver, if nobody was told."""
        if states.is_untold(record):
            self._announcer(bus).announce(record)
            self.records.write(record)

    def report(self, name):
        """Writes the page and the file of a rollout again; gives its summary."""
        with self.records.driving(name), self._bus() as bus:
            record = self.records.read(name)
            self._announcer(bus).write(record)
            if "acts" in record:
                self.records.write(record)
            return summary(record)

    def resume(self, name, again, take_over):
        """Continues a rollout, as a person asks."""

        def prepare(record):
            if record["status"] == states.HALTED:
                Rollout(record).resume(again)
            elif record["status"] not in (states.RUNNING, states.LATE):
                raise RolloutError(f"cannot resume rollout {name}: it is {record['status']}")
            if take_over:
                driver.take_newest_epoch(self.ask, record)
            return True

        act = ("resume", " ".join(word for word, is_so in ((driver.AGAIN, again), ("take_over=True", take_over)) if is_so))
        try:
            return self._continue(name, prepare, act, is_resumed=True)
        except Driven:
            if take_over or self.records.read(name)["status"] != states.HALTED:
                raise
        # The driver still listens to the switches that were in progress at the halt.
        return self._say(name, act, lambda: self._continue(name, prepare, act, is_resumed=True))

    def _say(self, name, command, act):
        """Gives a command to the driver of a rollout. Where nobody drives it, or its driver ends without having taken the command, does `act`."""
        number = self.records.ask_driver(name, *command, self._by)
        until = time.monotonic() + HEARD_SECONDS
        while True:
            try:
                return act()
            except Driven:
                if not self.records.is_waiting(name, number):
                    return f"the runner that drives rollout {name} has heard it"
                if time.monotonic() > until:
                    return f"the runner that drives rollout {name} has not heard it for {HEARD_SECONDS} s: the command waits for it, or for the next one"
            time.sleep(HEARD_PAUSE_SECONDS)

    def _continue(self, name, prepare, act, is_resumed=False):
        """Drives a rollout that is on record, if `prepare` says so; read when nobody else can change it any more. `act`: its name, and how."""
        with self.records.driving(name), self._bus() as bus:
            record = self.records.read(name)
            # Said to a driver that has not heard it. Who resumes knows better than an earlier pause.
            if self._apply_commands(record, ("abort",) if is_resumed else driver.COMMANDS) and record["status"] == states.ABORTED:
                driver.unclaim(bus, record, list(record["hosts"]))
            if prepare(record):
                acts.note(record, time.time(), act[0], self._by, act[1])
                record["master"] = self._master
                driver.drive(record, bus, self.records, announcer=self._announcer(bus))
            elif states.is_untold(record):
                # Its driver was killed between its last state and the word of it.
                if record["status"] in (states.ENDED, states.ABORTED):
                    driver.unclaim(bus, record, list(record["hosts"]))
                self._tell(record, bus)
            return _outcome(self._opts, record)

    def _apply_commands(self, record, of=driver.COMMANDS):
        """Applies the commands that no driver has taken, of these acts; returns whether there were some. Its caller holds the lock of the rollout."""
        with self.records.commands(record["id"]) as commands:
            driver.apply_commands(Rollout(record), commands, time.time(), of)
            if commands:
                self.records.write(record)
        return bool(commands)

    def continue_all(self, has_work, act):
        """
        Drives each rollout that has work and no driver, and tells of what a killed driver has not told. Those of another master are left alone: whether somebody
        drives them there, only a person knows.
        """
        found = {}
        for name in self.records.names():
            try:
                record = self.records.read(name)
                is_own = record.get("master", self._master) == self._master
                if not is_own or not (has_work(record) or states.is_untold(record)):
                    continue
                found[name] = self._continue(name, has_work, (act, None))
            except Driven:
                continue
            except ERRORS as error:
                found[name] = failed(error)
            except Exception as error:  # pylint: disable=broad-except
                # A rollout that cannot be driven must not keep the others.
                log.exception("rollout %s", name)
                found[name] = failed(f"cannot drive rollout {name}: {error}")
        return found

    def roll_back(self, name, wave, test, settings, outside_window=None):
        """
        Drives a rollout that takes minions of a former rollout back. `wave`: counted from 0; None: all. `test`: only says which. `outside_window`: also outside of
        maintenance windows; None: as in the former rollout.
        """
        with self.records.driving(name):
            former = self.records.read(name)
            driver.ask_unsure(self.ask, former)
            number = 1 + sum(other.startswith(f"{name}-back") for other in self.records.names())
            record = beginning.back(f"{name}-back" + (f"-{number}" if number > 1 else ""), former, wave, time.time(), **settings)
            stay = {minion: host["state"] for minion, host in former["hosts"].items() if states.is_unsure(host) and wave in (None, host["wave"])}
            if test:
                found = {minion: f"{host['from']} -> {host['to']}" for minion, host in record["hosts"].items()}
                return found | {minion: f"stays as it is: {state}" for minion, state in stay.items()}
            if former["status"] not in (states.ENDED, states.ABORTED):
                Rollout(former).abort("rolled back by sidle.rollback")
            former["epoch"] += 1
            acts.note(former, time.time(), "rollback", self._by, record["id"])
            self.records.write(former)
            with self._bus() as bus:
                driver.unclaim(bus, former, list(former["hosts"]))
                self._tell(former, bus)
        is_outside = former.get("outside_window") if outside_window is None else bool(outside_window)
        record.update(splay=former.get("splay") or "60s", at_window=None if is_outside else former.get("at_window"), outside_window=is_outside)
        try:
            answer = self._drive(record, "rollback")
        except ERRORS as error:
            answer = failed(error)
        # Nobody knows what these run.
        return {**answer, "not_taken_back": stay} if stay else answer

    def command(self, name, act, reason):
        """Gives a command to the driver, or where no driver runs, applies it to the record: `pause` or `abort`."""
        reason = values.text(str(reason))
        getattr(Rollout(self.records.read(name)), act)(reason)

        def apply():
            with self.records.driving(name):
                record = self.records.read(name)
                self._apply_commands(record)
                with self._bus() as bus:
                    if record["status"] == states.ABORTED:
                        driver.unclaim(bus, record, list(record["hosts"]))
                    self._tell(record, bus)
                return summary(record)

        return self._say(name, (act, reason), apply)

    def summaries(self):
        """Returns the summary of each rollout, or why it cannot be read."""
        found = {}
        for name in self.records.names():
            try:
                found[name] = summary(self.records.read(name))
            except RolloutError as error:
                found[name] = {"error": str(error)}
        return found

    def readable(self):
        """Returns the records of the rollouts that can be read: `summaries` says what is wrong with the others."""
        found = []
        for name in self.records.names():
            try:
                found.append(self.records.read(name))
            except RolloutError:
                continue
        return found
