"""What the runner shows: plans, and why minions did not return, as text, as data or as a page; in a file where the caller names one."""

import json
import time

from . import names, page, table
from . import plan as planning

#: How long a job that is run again may take before the next one, and how often its return is looked for.
RETURN_SECONDS = 600
RETURN_LOOK_SECONDS = 0.5


def plan(own, target, wanted, form, source, at_window, groups, verbose, file):
    """Makes a plan and shows it. `own`: the rollouts of this master. Raises `plan.PlanError`."""
    if form not in ("table", "data", "html") or (form == "html" and not file):
        raise planning.PlanError("cannot give the plan in this format: formats are table, data and html; html needs a file, as in file=plan.html")
    if file:
        # A wrong name is refused before minions are asked.
        own.files.path(file)
    made = own.plan(target, wanted, source, at_window, groups)
    if not file:
        return table.table(made, verbose) if form == "table" else planning.write(made)
    if form == "html":
        text = page.render(made, f"{target[0]} ({target[1]})", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))
    else:
        text = table.table(made, verbose) if form == "table" else json.dumps(planning.write(made), indent=1)
    return f"{made.package} {made.release}: {made.words()}; written to {own.files.write(file, text + chr(10))}"


def why(opts, own, minion, jid, form):
    """Asks a minion why it did not return, and shows it."""
    from . import collect
    from . import why as reasons

    own_id = names.minion(str(minion))
    found = collect.collect(opts, own_id, str(jid) if jid else None, _seconds(opts), own.readable())
    answer = reasons.answer(found)
    return reasons.render(answer) if form == "text" else dict(vars(answer), minion=own_id, jid=found.jid)


def missing(opts, own, jid, target, form, file, run_again):
    """Asks all minions that did not return a job, and shows them; runs the job again where that is wanted."""
    from . import again, silent
    from . import missing as report

    if form not in ("text", "data"):
        raise report.MissingError("cannot use this format: formats are text and data")
    if run_again is True:
        raise report.MissingError(
            f"cannot run a job again unseen: any accepted minion can store another job under its id. `salt-run sidle.missing {jid or ''}` "
            "shows what would be run, and its digest: `run_again=DIGEST`"
        )
    if file:
        own.files.path(file)

    def ask(ids, function, arguments, **options):
        return own.ask(ids, function, arguments, seconds=_seconds(opts), **options)

    found = report.report(silent.collect_all(opts, ask, str(jid) if jid else None, target, own.readable()))
    publisher = again.Again(opts)
    if found.can_run_again:
        _describe(publisher, found.jid, found, found.notes)
    if run_again:
        done = publisher.run(found.jid, found.can_run_again, str(run_again)) if found.can_run_again else None
        new, ids = done or (None, [])
        found.notes.append(_again(new, ids, found.can_run_again))
    if file:
        text = report.render(found) if form == "text" else json.dumps(report.written(found), indent=1)
        return f"{found.missing} of {found.expected} minions have not returned job {found.jid}; written to {own.files.write(file, text + chr(10))}"
    return report.render(found) if form == "text" else report.written(found)


def missed(opts, own, minion, since, form, run):
    """Asks a minion what became of the jobs that it did not return, and shows them; runs the chosen ones again."""
    from . import again
    from . import missed as report

    own_id = names.minion(str(minion))
    if form not in ("text", "data"):
        raise report.MissingError("cannot use this format: formats are text and data")

    def ask(ids, function, arguments):
        return own.ask(ids, function, arguments, seconds=_seconds(opts), read=lambda told: told)

    found = report.collect_jobs(opts, ask, own_id, report.seconds_of(since))
    publisher = again.Again(opts)
    for job in found.jobs:
        if job.can_run_again:
            _describe(publisher, job.jid, job, found.notes)
    _run(opts, publisher, found, report.chosen(found, run) if run else [])
    return report.render(found) if form == "text" else report.written(found)


def _describe(publisher, jid, found, notes):
    """Writes what would be run again, and its digest, or why it cannot be."""
    from . import missing as report

    try:
        found.job, found.digest = publisher.wanted(jid)
    except report.MissingError as error:
        notes.append(str(error))


def _run(opts, publisher, found, jobs):
    """Runs jobs again, one after the other: states refuse to run beside each other, and a job may rest on the one before."""
    for number, job in enumerate(jobs):
        done = publisher.run(job.jid, [found.minion], job.digest)
        found.notes.append(f"{job.jid} runs again, as job {done[0]}" if done else f"{job.jid} was run again before: it is not run twice")
        left = jobs[number + 1 :]
        if done and left and not _returned(opts, done[0], found.minion):
            choice = ", ".join(each.choice for each in left)
            found.notes.append(f"{done[0]} has not returned within {RETURN_SECONDS} s: the others are not published yet: run='[{choice}]'")
            return


def _returned(opts, jid, minion):
    """Returns whether a return came within the time; True where this master keeps none."""
    from .returns import Returns

    returns, until = Returns(opts), time.monotonic() + RETURN_SECONDS
    while returns.missing is None and not list(returns.of(jid, [minion])):
        if time.monotonic() >= until:
            return False
        time.sleep(RETURN_LOOK_SECONDS)
    return True


def masters(opts, own, via, form):
    """Compares this master with the others of its minions, and shows what differs."""
    from . import agree

    if form not in ("text", "data"):
        raise planning.PlanError("cannot use this format: formats are text and data")
    ids = [names.minion(str(each)) for each in (via if isinstance(via, (list, tuple)) else str(via).split(","))] if via else None

    def ask(ids, function, arguments=(), **options):
        return own.ask(ids, function, arguments, seconds=_seconds(opts), most=1, **options)

    report = agree.compare(opts, ask, own.readable(), ids)
    return agree.render(opts, report) if form == "text" else agree.written(report)


def _again(jid, ids, able):
    if jid:
        return f"{len(ids)} of them run it again, as job {jid}: `salt-run jobs.lookup_jid {jid}`"
    return "nobody runs it again: " + ("each of them was asked to, once" if able else "of nobody it is sure that the job did not begin there")


def _seconds(opts):
    return (opts.get("sidle") or {}).get("answer_seconds", 15)
