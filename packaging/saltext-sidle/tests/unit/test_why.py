"""Why a minion did not return: evidence in, one cause out. Run by `scripts/lint`; needs no Salt."""

import pathlib
import unittest

from saltext.sidle.fleet import causes, evidence, why

DOCS = pathlib.Path(__file__).parents[4] / "docs/why.md"

#: When the job of these tests was published; the question comes ten minutes later.
THEN = 1_790_000_000.0
NOW = THEN + 600
DAY = 86400

#: The id of a job that was published then.
JID = "20260921141320000000"


def job(**more):
    known = {"fun": "state.apply", "tgt": "web*", "tgt_type": "glob", "user": "root", "published": THEN, "expected": ["web1", "web17"], "returned": ["web1"]}
    return evidence.Job(**{**known, **more})


def found(**more):
    known = {
        "keys": frozenset({"accepted"}), "accepted_since": THEN - DAY, "jid": JID, "job": job(), "master_version": "3008.5", "master_is_up": True,
        "master_since": THEN - DAY, "minimum_auth": 3, "version": "3007.17", "seen": THEN - 60, "seen_how": "it returned a job",
    }  # fmt: skip
    return evidence.Evidence("web17", NOW, **{**known, **more})


def answering(own=None, **more):
    known = {"now": NOW, "started": THEN - DAY, "master": "m1", "masters": ["m1"], "log_is_detailed": False, "log": []}
    return found(**{"answers": True, "matches": True, "own": {**known, **(own or {})}, **more})


def silent(**more):
    return found(**{"answers": False, "connected": False, "connection": "no connection comes from 10.0.0.17", **more})


def returned(after=3, failed=False, said="True"):
    return found(ret=evidence.Return(THEN + after, failed, said))


def refused(kind, **more):
    return silent(log=[(kind, THEN, "the line")], **more)


def switch(**more):
    known = {"id": 7, "purpose": "switch", "to": "3008.5-1", "mode": "idle", "result": "committed", "down": THEN - 2, "up": THEN + 3}
    return {**known, **more}


DETAILED = {"log_is_detailed": True, "log_since": THEN - DAY}
EXECUTED = "[INFO] Executing command state.apply with jid " + JID
SENT = "[INFO] Returning information for job: " + JID
TIMED_OUT = "[WARNING] The minion failed to return the job information for job " + JID
ENDED = {"at": "2026-09-21T14:14:00Z", "release": "3007.17-1", "pid": 9, "how": "was killed", "unfinished": [{"id": JID, "what": "state.apply", "pid": 10}]}

#: The minion's process was started beside the one before.
HANDED_OVER = {"started": THEN + 60, "switches": [switch(mode="overlap", down=None, begun=THEN + 50, ended=THEN + 90)]}

#: For each cause what leads to it, and words of the answer.
CASES = {
    "function-missing": [(returned(failed=True, said="'web.up' is not available."), "has no function state.apply")],
    "failed": [
        (returned(failed=True, said="[Rendering SLS failed]"), "the job failed there"),
        (returned(failed=True, after=90, said="The named service nginx is not available"), "the job failed there"),
        (returned(failed=True, said="Passed invalid arguments to test.ping: ping() takes 0 arguments"), "the job failed there"),
    ],
    "returned-late": [(returned(after=90), "90 s after the job was published")],
    "returned": [(returned(), "web17 did return.")],
    "key-rejected": [(found(keys=frozenset({"rejected"})), "rejects the key")],
    "key-pending": [(found(keys=frozenset({"pending"}), jid=None, job=None), "waits for a person")],
    "no-key": [(found(keys=frozenset(), jid=None, job=None), "has no key")],
    "job-expired": [(found(job=None, keep_seconds=60), "this master keeps jobs for 60 s")],
    "job-unknown": [(found(job=None), f"knows no job {JID}"), (found(job=None, jid="deploy-42"), "knows no job deploy-42")],
    "accepted-later": [(found(job=job(expected=["web1"]), accepted_since=THEN + 9), "accepted after the job")],
    "matched-later": [(found(job=job(expected=["web1"]), matched_now=True), "matches it today")],
    "not-targeted": [(found(job=job(expected=["web1"]), matched_now=False), "its target web* (glob) does not match it")],
    "master-down": [(found(master_is_up=False), "does not run")],
    "sign-in-refused": [
        (silent(version="3004.2"), "its Salt 3004.2 is older than minimum_auth_version: 3 allows"),
        (refused(evidence.TOO_OLD, version=None), "older than minimum_auth_version: 3"),
    ],
    "too-many-minions": [(refused(evidence.TOO_MANY, max_minions=100), "max_minions is 100")],
    "clock": [(refused(evidence.EXPIRED), "the clocks differ")],
    "signature": [(refused(evidence.UNSIGNED), "their signature is missing or wrong")],
    "key-changed": [(silent(keys=frozenset({"accepted", "denied"})), "another key"), (refused(evidence.OTHER_KEY), "another key")],
    "gone": [(silent(seen=NOW - 91 * DAY), "not seen for 91 days")],
    "never-seen": [(silent(seen=None), "was never seen")],
    "hung": [(silent(connected=True), "is connected, but does not answer")],
    "offline": [
        (silent(), "web17 is offline; it was last seen 2026-09-21 14:12:20 UTC"),
        (silent(connected=None), "does not answer; it was last seen"),
        (refused(evidence.TOO_MANY, seen=NOW), "is offline"),
    ],
    "running": [(answering(running={"pid": 4711}), "still runs the job, in process 4711, for 10 minutes")],
    "queued": [(answering({"queued": "/q/queued_1_2.p"}), "has queued the job")],
    "cut-by-switch": [(answering({"claimed": True, "switches": [switch(mode="now", down=THEN + 60, up=THEN + 63)]}), "Switch 7 in mode now")],
    "died": [
        (answering({"ended": ENDED}), "process 9 of 3007.17-1 was killed"),
        (answering({"stale": 12}), "its process is gone"),
        (answering({**DETAILED, "log": [EXECUTED], "started": THEN + 60}), "its process is gone"),
    ],
    "target-not-understood": [
        (answering(match_error="TypeError: unexpected (", matches=None), "cannot evaluate the target"),
        (answering(job=job(tgt="not L@db1,db2 and E@web++.*", tgt_type="compound"), matches=False), "cannot evaluate the target"),
        (answering(job=job(tgt="web++.*", tgt_type="pcre"), matches=False), "cannot evaluate the target"),
    ],
    "target-does-not-match": [
        (answering(job=job(tgt="role:db", tgt_type="grain"), matches=False), "says that the target role:db (grain) does not match it"),
        (answering(job=job(tgt="( web* and G@role:db )", tgt_type="compound"), matches=False), "are not what the minion has"),
    ],
    "missed-in-switch": [(answering({"claimed": False, "switches": [switch()]}), "in the downtime of switch 7 (mode idle), which took 5.0 s")],
    "master-restarted": [(answering({"cached": True, "returned_at": THEN + 30}, master_since=THEN + 50), "while this master was down")],
    "return-timed-out": [(answering({"log": [EXECUTED, TIMED_OUT]}), "did not take its return in time")],
    "returned-elsewhere": [(answering({"cached": True, "masters": ["m1", "m2"]}), "it has other masters, too")],
    "return-lost": [
        (answering({"log": [EXECUTED, SENT]}), "but this master does not have it"),
        # The return was sent long before the master was started again: it was not lost by that.
        (answering({"cached": True, "returned_at": THEN + 1}, master_since=THEN + 500), "but this master does not have it"),
    ],
    "ended-silently": [
        (answering({"claimed": True}), "does not run it any more"),
        (answering({"claimed": True, "started": THEN + 60}), "does not run it any more"),
        (answering({"claimed": True, **HANDED_OVER}), "does not run it any more"),
    ],
    "was-stopped": [
        (answering({"claimed": False, "started": THEN + 60}), "was not connected when the job was published"),
        (answering({**DETAILED, "started": THEN + 60}), "started later, 2026-09-21 14:14:20 UTC"),
    ],
    "not-yet-connected": [
        (answering(master_since=THEN - 4), "published 4 s after the start of this master, most likely before"),
        (answering({"claimed": False, "started": THEN - 9}, accepted_since=THEN - 2), "published 2 s after the acceptance of its key, before"),
        (answering({"started": THEN - 9}), "published 9 s after the start of its minion"),
    ],
    "restarted": [
        (answering({"started": THEN + 60}), "missed the job, or the job died"),
        (answering({"started": THEN + 60}, master_since=THEN - 4), "missed the job, or the job died"),
    ],
    "not-received": [
        (answering({"claimed": False}), "although its minion ran"),
        (answering(DETAILED), "although its minion ran"),
        (answering({"claimed": False, **HANDED_OVER}), "although its minion ran"),
    ],
    "nothing-missing": [(answering(jid=None, job=None), "has returned each job")],
    "undecided": [(answering(), "cannot be told"), (found(answers=True, own_lack="it has no function sidle.job"), "cannot be told")],
}


class Causes(unittest.TestCase):
    def test_each_cause_is_found_by_its_evidence(self):
        self.assertEqual(list(CASES), [cause.name for cause in causes.CAUSES])
        for name, cases in CASES.items():
            for known, words in cases:
                with self.subTest(name, words=words):
                    answer = why.answer(known)
                    self.assertEqual(answer.cause, name, answer.text)
                    self.assertIn(words, answer.text)
                    self.assertTrue(answer.remedy)
                    self.assertIn(answer.text, why.render(answer).splitlines()[0])

    def test_what_is_not_known_is_named_where_it_would_decide(self):
        own = why.answer(answering()).missing
        self.assertTrue(any("log_level_logfile: info" in line for line in own) and any("cache_jobs" in line for line in own), own)
        lacking = why.answer(found(answers=True, own_lack="it has no function sidle.job")).missing
        self.assertIn("it has no function sidle.job", lacking[0])
        hidden = why.answer(silent(connected=None, connection="a connection comes from 10.0.0.1, which web1 has, too")).missing
        self.assertIn("which web1 has, too", hidden[0])
        self.assertEqual(why.answer(returned()).missing, [])

    def test_a_clock_that_differs_is_told_and_reckoned_with(self):
        ahead = answering({"now": NOW + 3600, "started": THEN + 3600 - 60, "claimed": False})
        answer = why.answer(ahead)
        self.assertEqual(answer.cause, "not-received")
        self.assertIn("clock: the minion's is 60 minutes ahead", answer.evidence)
        downtime = switch(down=THEN + 3598, up=THEN + 3603)
        self.assertEqual(why.answer(answering({"now": NOW + 3600, "switches": [downtime]})).cause, "missed-in-switch")

    def test_a_job_that_is_done_before_the_downtime_is_not_cut_by_it(self):
        now = switch(mode="now", down=THEN + 60, up=THEN + 63)
        done = answering({"claimed": True, "log": [EXECUTED, SENT], "returned_at": THEN + 5, "switches": [now]})
        self.assertEqual(why.answer(done).cause, "return-lost")
        self.assertEqual(why.answer(answering({"cached": True, "switches": [now]})).cause, "return-lost")

    def test_versions_that_sign_in_with_protocol_3(self):
        for version, is_so in {"2015.5.3": False, "3006.11": False, "3006.12": True, "3007.3": False, "3007.17": True, "3008.0": True, "?": True}.items():
            self.assertEqual(evidence.speaks_3(version), is_so, version)

    def test_the_documentation_has_this_table(self):
        rows = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
        for cause in causes.CAUSES:
            self.assertIn(f"| `{cause.name}` | {cause.meaning} |", rows)


if __name__ == "__main__":
    unittest.main()
