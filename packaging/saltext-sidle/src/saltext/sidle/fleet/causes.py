"""Why a minion did not return: the table of causes. The first one whose rule applies is the answer."""

import re
from dataclasses import dataclass

from saltext.sidle.fleet import silence
from saltext.sidle.fleet.evidence import span, time_of, when

#: A publication misses minions that have not connected yet; they try every 1 to 10 s, and a busy master lets them wait.
RECONNECT_SECONDS = 30

#: A return that is sent while the master is down is tried again for about so long.
RETURN_SECONDS = 300


@dataclass(frozen=True)
class Cause:
    """
    A row of the table: its name, its meaning as the documentation has it, what is said of a group of minions with it, and the rule, which yields a text and
    remedies if it applies.
    """

    name: str
    meaning: str
    group: str
    rule: object


def _again(e):
    return f"run the job again: `salt {e.minion} {e.job.fun} …`"


def _function_missing(e):
    # As the minion says it of the function itself: what runs there has errors of its own with such words.
    if e.ret and e.ret.failed and re.match(r"'[\w.]+' (is not available|__virtual__ returned False)", e.ret.said):
        yield (
            f"{e.minion} did return: it has no function {e.job.fun}.",
            f"`salt {e.minion} sys.list_functions` lists its functions; `salt {e.minion} saltutil.sync_all` brings it the modules of this master",
        )


def _failed(e):
    if e.ret and e.ret.failed:
        yield f"{e.minion} did return: the job failed there.", f"read the whole return: `salt-run jobs.lookup_jid {e.jid}`"


def _returned_late(e):
    if e.ret and e.ret.at and e.ret.at - e.job.published > e.patience:
        took = span(e.ret.at - e.job.published)
        yield (
            f"{e.minion} did return, but late: {took} after the job was published. A command that waited less did not show it.",
            f"`salt-run jobs.lookup_jid {e.jid}`; next time wait longer: `salt -t 120 …`",
        )


def _returned(e):
    if e.ret:
        yield f"{e.minion} did return.", f"`salt-run jobs.lookup_jid {e.jid}`"


def _expired(e):
    published = time_of(e.jid)
    if e.jid and not e.job and published and e.keep_seconds and e.now - published > e.keep_seconds:
        yield (
            f"Job {e.jid} is no longer in the job cache: it was published {span(e.now - published)} ago, and this master keeps jobs for {span(e.keep_seconds)}.",
            "raise `keep_jobs_seconds` in the master's configuration, or send returns to a database (`master_job_cache`, `ext_job_cache`)",
        )


def _unknown_job(e):
    if e.jid and not e.job:
        yield (
            f"This master knows no job {e.jid}.",
            "`salt-run jobs.list_jobs` lists its jobs; another master of yours may have published it (ask there); with `ext_job_cache` or "
            "`job_cache: False` this master keeps none",
        )


def _accepted_later(e):
    if _is_unexpected(e) and e.accepted_since and e.accepted_since > e.job.published:
        yield f"The key of {e.minion} was accepted after the job was published: the job was not for it.", _again(e)


def _matched_later(e):
    if _is_unexpected(e) and e.matched_now:
        yield (
            f"The job was not for {e.minion}: its target matches it today, but did not when the job was published "
            "(the master evaluates grains and pillar from its cache).",
            _again(e),
        )


def _not_targeted(e):
    if _is_unexpected(e):
        yield (
            f"The job was not for {e.minion}: its target {e.job.tgt} ({e.job.tgt_type}) does not match it.",
            f"`salt-run sidle.why {e.minion}` tells of the newest job that was for it",
        )


def _is_unexpected(e):
    return e.job and e.job.expected is not None and e.minion not in e.job.expected


def _queued(e):
    if e.own.get("queued"):
        yield (
            f"{e.minion} has queued the job: it begins when the jobs before it have ended.",
            f"`salt {e.minion} saltutil.running` shows the jobs before it",
        )


def _running(e):
    if not e.running:
        return
    yield (
        f"{e.minion} still runs the job, in process {e.running.get('pid')}, for {span(e.now - e.job.published) if e.job else 'some time'}.",
        f"wait: `salt-run jobs.lookup_jid {e.jid}`; or end it: `salt {e.minion} saltutil.term_job {e.jid}`",
    )


def _not_understood(e):
    if e.answers and not e.received and (e.match_error or (e.matches is False and e.job and is_by_name(e.job))):
        yield (
            f"{e.minion} cannot evaluate the target {e.job.tgt} ({e.job.tgt_type}), and ignores the job.",
            f"target it by its name, or by a list (`salt -L {e.minion} …`); upgrade it: its Salt is {e.version}, the master's {e.master_version}",
        )


def is_by_name(job):
    """Returns whether the names of minions alone decide whether a target matches: then no cache of the master can be to blame."""
    return job.tgt_type in ("glob", "list", "pcre") or (job.tgt_type == "compound" and not re.search(r"\b(?![LE]@)[A-Z]@", job.tgt))


def _no_match(e):
    if e.answers and e.matches is False and not e.received:
        yield (
            f"The master expected a return, but {e.minion} says that the target {e.job.tgt} ({e.job.tgt_type}) does not match it, and ignores the job: "
            "the grains or the pillar of it that the master has are not what the minion has.",
            f"`salt {e.minion} saltutil.refresh_grains` and `saltutil.refresh_pillar` make them the same"
            + (f"; if they are: its Salt {e.version} may not understand the target" if e.version != e.master_version else ""),
        )


def _cut(e):
    switch = e.cutting if e.answers and e.received else None
    sent = e.own.get("returned_at")
    if switch and not e.own.get("cached") and not (sent and e.here(sent) < switch["down"]):
        yield (
            f"Switch {switch['id']} in mode now ended the minion's process at {when(switch['down'])}, while the job ran: its return is lost.",
            f"look at what the job did on the host; {_again(e)}; next time without `mode=now`",
        )


def _died(e):
    if not e.answers or not (e.unfinished or e.own.get("stale") or (e.received and e.started_later and e.returned is False)):
        return
    ended = e.unfinished
    how = f"process {ended.get('pid')} of {ended.get('release')} {ended.get('how')} at {ended.get('at')}" if ended else "its process is gone"
    yield (
        f"{e.minion} had begun the job, and its process ended before the job was done ({how}).",
        f"look at what the job did on the host (`salt {e.minion} sidle.history`, the kernel's log for the OOM killer); {_again(e)}",
    )


def _missed_in_switch(e):
    if e.answers and e.downtime and not e.received:
        switch = e.downtime
        yield (
            f"The job was published in the downtime of switch {switch['id']} (mode {switch['mode']}), which took {switch['up'] - switch['down']:.1f} s: it is missed for good.",
            _again(e) + "; mode overlap has no downtime",
        )


def _master_restarted(e):
    if not (e.answers and e.returned and e.job and e.master_since and e.master_since > e.job.published):
        return
    sent = e.own.get("returned_at")
    if sent and not -RETURN_SECONDS < e.master_since - e.here(sent) < RETURN_SECONDS:
        return
    yield (
        f"{e.minion} ran the job, and sent its return while this master was down: the master was started again {when(e.master_since)}.",
        f"{e.minion} has the return only if its configuration has `cache_jobs: True`: `salt {e.minion} saltutil.find_cached_job {e.jid}`; else {_again(e)}",
    )


def _return_refused(e):
    if e.answers and e.line("failed to return"):
        yield (
            f"{e.minion} ran the job, but this master did not take its return in time: it is overloaded, or was unreachable.",
            f"raise `worker_threads` in the master's configuration, and look at its load; {_again(e)}",
        )


def _elsewhere(e):
    if e.answers and e.returned and e.masters:
        yield (
            f"{e.minion} ran the job and sent its return, which this master does not have; it has other masters, too.",
            f"on {', '.join(e.masters)}: `salt-run jobs.lookup_jid {e.jid}`; if it is not there either, it is lost: {_again(e)}",
        )


def _return_lost(e):
    if e.answers and e.returned:
        yield (
            f"{e.minion} ran the job and sent its return, but this master does not have it.",
            f"the master's log at {when(e.job.published)}, its disk (`df`, `df -i` of its cachedir), and returners or a syndic between them; "
            f"`salt {e.minion} saltutil.find_cached_job {e.jid}`",
        )


def _ended_silently(e):
    if e.answers and e.received:
        yield (
            f"{e.minion} received the job, does not run it any more, and no return came: the job was killed, or its return was lost.",
            f"on the host: the minion's log, and the kernel's log for the OOM killer; {_again(e)}",
        )


def _was_stopped(e):
    if e.answers and e.received is False and e.started_later:
        yield (
            f"{e.minion} was not connected when the job was published: its minion was started later, {when(e.since)}. Such a job is missed for good.",
            _again(e),
        )


def _not_yet_connected(e):
    if not e.answers or not e.job or e.received or e.started_later:
        return
    begun = ((e.master_since, "the start of this master"), (e.since, "the start of its minion"), (e.accepted_since, "the acceptance of its key"))
    recent = [(at, what) for at, what in begun if at and 0 <= e.job.published - at < RECONNECT_SECONDS]
    if not recent:
        return
    at, what = max(recent)
    yield (
        f"The job was published {span(e.job.published - at)} after {what}, {'most likely ' if e.received is None else ''}before {e.minion} had connected.",
        _again(e),
    )


def _restarted(e):
    if e.answers and e.received is None and e.started_later:
        yield (
            f"The minion of {e.minion} was started {when(e.since)}, after the job was published: it missed the job, or the job died with the process before.",
            _again(e),
        )


def _not_received(e):
    if e.answers and e.job and e.received is False:
        yield (
            f"{e.minion} did not receive the job, although its minion ran: its connection to the publisher was broken at {when(e.job.published)}.",
            f"{_again(e)}; if it happens again: `tcp_keepalive_idle` below the idle limit of firewalls between them, `sidle doctor` on the host",
        )


def _nothing_missing(e):
    if e.answers and not e.jid:
        yield (
            f"{e.minion} answers, and has returned each job in the job cache that was for it.",
            f"a job of its own, such as a scheduled one, or a job of another master: `salt-run sidle.why {e.minion} JID`",
        )


def _undecided(e):
    yield (
        f"Why {e.minion} did not return cannot be told: what would decide it is missing.",
        *([_again(e)] if e.job else []),
    )


CAUSES = (
    Cause("function-missing", "it did return: the function is not there", "have returned: the function is not there", _function_missing),
    Cause("failed", "it did return: the job failed there", "have returned: the job failed there", _failed),
    Cause("returned-late", "it did return, after the command had ended", "have returned, late", _returned_late),
    Cause("returned", "it did return", "have returned", _returned),
    Cause("key-rejected", "the master rejects its key", "key rejected", silence.rejected),
    Cause("key-pending", "its key waits to be accepted", "key waits to be accepted", silence.pending),
    Cause("no-key", "the master has no key of this name", "no key of this name", silence.no_key),
    Cause("job-expired", "the job is older than what the job cache keeps", "job no longer kept", _expired),
    Cause("job-unknown", "the master has no such job", "job not known", _unknown_job),
    Cause("accepted-later", "its key was accepted after the job was published", "key accepted after the job was published", _accepted_later),
    Cause("matched-later", "the target matches it now, but did not when the job was published", "match the target only since then", _matched_later),
    Cause("not-targeted", "the target of the job does not match it", "not matched by the target of the job", _not_targeted),
    Cause("master-down", "the master does not run", "the master does not run", silence.master_down),
    Cause("sign-in-refused", "it is too old for the master's `minimum_auth_version`", "too old for minimum_auth_version", silence.sign_in_refused),
    Cause("too-many-minions", "the master has reached `max_minions`", "over max_minions", silence.too_many),
    Cause("clock", "the master refuses its messages as too old: clocks differ (`request_server_ttl`)", "refused because of their clock", silence.clock),
    Cause("signature", "the master drops its messages: no valid signature", "messages dropped: no valid signature", silence.signature),
    Cause("key-changed", "it signs in with another key than the accepted one", "sign in with another key than the accepted one", silence.key_changed),
    Cause("gone", "not seen for 90 days", "not seen for 90 days", silence.gone),
    Cause("never-seen", "its key is accepted, but it never came", "never came", silence.never_seen),
    Cause("hung", "it is connected, but does not answer", "connected, but do not answer", silence.hung),
    Cause("offline", "it does not answer; since when", "offline", silence.offline),
    Cause("running", "the job still runs there", "still run it", _running),
    Cause("queued", "the job waits there behind other jobs", "have it in their queue", _queued),
    Cause("cut-by-switch", "a switch in mode `now` ended the minion while the job ran", "ran it when a switch in mode now ended the minion", _cut),
    Cause("died", "the process of the job ended before the job was done", "began it, and their process ended", _died),
    Cause("target-not-understood", "it cannot evaluate the target (an older Salt or Python)", "cannot evaluate the target", _not_understood),
    Cause("target-does-not-match", "it ignored the job: the grains or the pillar that the master has of it are not its own", "ignored it: the target does not match them", _no_match),
    Cause("missed-in-switch", "published in the downtime of a switch (mode `idle` or `now`)", "missed it in the downtime of a switch", _missed_in_switch),
    Cause("master-restarted", "the return was sent while the master was down", "returned while the master was down", _master_restarted),
    Cause("return-timed-out", "the master did not take the return in time", "returned, and the master did not take it in time", _return_refused),
    Cause("returned-elsewhere", "it returned; it has other masters, too", "returned; they have other masters, too", _elsewhere),
    Cause("return-lost", "it returned, but the master has no return", "returned, and the master has no return", _return_lost),
    Cause("ended-silently", "it received the job, which runs no more and sent no return", "received it, and sent no return", _ended_silently),
    Cause("was-stopped", "its minion did not run when the job was published", "missed it: their minion did not run", _was_stopped),
    Cause("not-yet-connected", "published seconds after the start of the master or of its minion, or the acceptance of its key", "not connected yet when it was published", _not_yet_connected),
    Cause("restarted", "its minion was started after the job was published", "started after it was published", _restarted),
    Cause("not-received", "it ran, but was not connected when the job was published", "missed it: ran, but were not connected", _not_received),
    Cause("nothing-missing", "no job in the job cache lacks its return", "nothing missing", _nothing_missing),
    Cause("undecided", "what would decide it is missing; the answer names it", "not to be told", _undecided),
)

#: The causes for which more evidence would tell more.
UNCERTAIN = ("offline", "ended-silently", "not-yet-connected", "restarted", "return-lost", "undecided")
