"""
The program sidle, as the execution module runs it: its command line, its answer, and the error where the program is missing or too old. A part of the
execution module; Salt loads no module whose name begins with ``_``.
"""

import importlib
import json
import os
import shutil

try:
    import _sidle_files as files
except ImportError:
    # Whoever imports the installed package, and not Salt's loader: its pages.
    from saltext.sidle.modules import _sidle_files as files
else:
    # After a sync a minion that runs has the module of before.
    importlib.reload(files)

#: The sidle that this extension belongs to: a test compares both. An older one may lack a verb.
NEEDED = "0.1.0"

#: Where the program is if PATH lacks it: sudo, cron and old units have short ones.
PLACES = ("/usr/bin/sidle", "/usr/local/bin/sidle")

#: Exit codes that are no failures: done, nothing to do, goes on without the command.
SUCCESSES = (0, 3, 4)

#: What the verbs take that begin a switch, beside what their functions name.
SWITCH_OPTIONS = (
    "instance", "mode", "deadline", "reason", "force", "at_window", "outside_window", "splay", "force_place",
    "rollout", "epoch",
)  # fmt: skip

#: The exit code of a command line that sidle does not understand; without JSON it is one of an unknown verb or option.
USAGE = 2

#: The exit code of a shell that finds no such program.
ABSENT = 127


class Minion:
    """The minion in which a function runs: its configuration, and the program sidle on its host."""

    def __init__(self, opts, salt, context):
        self.opts, self.salt, self.context = opts, salt, context

    def option(self, name, default=None):
        """Returns ``sidle: {NAME: …}`` of the minion's configuration or pillar."""
        return self.salt["config.get"](f"sidle:{name}", default)

    def package(self, package=None):
        """Returns what a function is about: this package, or the one of the configuration."""
        return package or self.option("package", "salt-minion")

    def dry(self, test):
        """Returns whether nothing may be changed."""
        return bool(self.opts.get("test")) if test is None else bool(test)

    def program(self):
        """Returns the path of the program; None: this host has none."""
        named = self.option("program")
        if named:
            return named if os.access(named, os.X_OK) else None
        return shutil.which("sidle") or next((place for place in PLACES if os.access(place, os.X_OK)), None)

    def ran(self, command):
        """Runs a command that may fail; returns its output and its exit code."""
        return self.salt["cmd.run_all"](command, python_shell=False, ignore_retcode=True, output_loglevel="quiet")

    def version(self):
        """Returns the version of the program; None: there is none, or it says none."""
        program = self.program()
        said = self.ran([program, "--version"])["stdout"].split() if program else []
        return said[1] if len(said) > 1 else None

    def answered(self, answer):
        """Returns an answer of the program; its exit code becomes that of the job."""
        if answer["code"] not in SUCCESSES:
            self.context["retcode"] = answer["code"]
        return answer

    def failed(self, message, hint, code=1, kind="failed"):
        """Returns a failure in the form of sidle's own."""
        return self.answered(_failure(message, hint, code, kind))

    def run(self, verb, operands=(), given=None, repository=None, rate=None, **options):
        """Runs a verb of the program; returns what it says. ``given`` is what a caller gave by name."""
        # Salt adds names of its own.
        given = {name: value for name, value in (given or {}).items() if not name.startswith("__")}
        unknown = ", ".join(sorted(set(given) - set(SWITCH_OPTIONS)))
        if unknown:
            return self.failed(f"sidle.{verb} has no option {unknown}", f"the options are: {', '.join(SWITCH_OPTIONS)}", USAGE, "usage")
        return self.answered(_run(self, verb, operands, {**options, **given}, repository, rate))

    def switch(self, verb, operands, wait, test, given, **options):
        """Begins a switch."""
        dry = self.dry(test)
        return self.run(verb, operands, given, dry_run=dry, no_wait=not wait and not dry, **options)


def _words(options):
    """Returns options as words of a command line. Each value stays in the word of its option, so that none is taken for an option itself."""
    found = []
    for name, value in options.items():
        if value is None or value is False or value == []:
            continue
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            found.append(option)
        else:
            found.extend(f"{option}={each}" for each in (value if isinstance(value, list) else [value]))
    return found


def _failure(message, hint, code=1, kind="failed"):
    return {"code": code, "error": {"class": kind, "code": code, "message": message, "hint": hint}}


def _run(minion, verb, operands, options, repository, rate):
    program = minion.program()
    if program is None:
        return _failure(
            f"cannot run sidle {verb}: this host has no program sidle",
            "install the package sidle, or name the program: `sidle: {program: …}` in the minion's configuration",
            ABSENT,
        )
    command = [program, "--json"]
    root = minion.option("root", "/")
    if root != "/":
        command.append(f"--root={root}")
    try:
        places, served, rate = files.places(repository, rate, minion.option("rate"))
    except ValueError as error:
        return _failure(str(error), "`salt MINION sys.doc sidle.install` shows the forms", USAGE, "usage")
    command += [*verb.split(), *_words({"repository": places, **options}), "--", *(str(operand) for operand in operands if operand is not None)]
    ran = files.carry(command, served, rate, minion.opts) if served else minion.ran(command)
    try:
        answer = json.loads(ran["stdout"])
    except ValueError:
        return _unread(minion, program, verb, ran)
    answer.pop("schema", None)
    if served and answer.get("error"):
        answer["error"] = files.explained(answer["error"], served)
    return {"code": ran["retcode"], **answer}


def _unread(minion, program, verb, ran):
    """Returns the failure of a program that did not answer with JSON: a program that lacks the verb, or its own words."""
    if ran["retcode"] == USAGE and minion.ran([program, *verb.split(), "--help"])["retcode"] != 0:
        return _failure(
            f"cannot run sidle {verb}: this host's sidle {minion.version() or '(of an unknown version)'} lacks this verb; sidle {NEEDED} or later is needed",
            "upgrade the package sidle on this host, or run `sidle upgrade sidle` there",
            USAGE,
            "usage",
        )
    said = (ran["stderr"] or ran["stdout"]).strip()
    return _failure(said or f"sidle {verb} said nothing", None, ran["retcode"] or 1)
