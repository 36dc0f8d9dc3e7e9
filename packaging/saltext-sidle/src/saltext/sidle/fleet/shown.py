"""What the runner shows: plans, and why minions did not return, as text, as data or as a page; in a file where the caller names one."""

import json
import time

from . import names, page, table
from . import plan as planning


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
    if file:
        own.files.path(file)

    def ask(ids, function, arguments, **options):
        return own.ask(ids, function, arguments, seconds=_seconds(opts), **options)

    found = report.report(silent.collect_all(opts, ask, str(jid) if jid else None, target, own.readable()))
    if run_again:
        done = again.Again(opts).run(found.jid, found.can_run_again)
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
    for jid in report.chosen(found, run) if run else ():
        done = again.Again(opts).run(jid, [own_id])
        found.notes.append(f"{jid} runs again, as job {done[0]}" if done else f"{jid} was run again before: it is not run twice")
    return report.render(found) if form == "text" else report.written(found)


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
