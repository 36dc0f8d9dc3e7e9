"""The verdict on each host of a plan: whether it goes; and if not, each reason why not."""

import re
from dataclasses import dataclass, field

#: A minion that was not seen for so long is listed, and not waited for: the host is most likely gone.
GONE_DAYS = 90

#: What a host is in a plan. Only `GO` and `OFFLINE` hosts are in waves: the others need a person, or nothing.
GO, THERE, REFUSED, OFFLINE, GONE = "go", "there", "refused", "offline", "gone"

VERDICTS = (GO, OFFLINE, REFUSED, GONE, THERE)

#: Marks of a release that keep a host from trying it again.
FAILED_MARKS = ("bad", "declined")

#: What a refused dry run is about, by the class of its error.
CLASSES = {"held": "window", "no-space": "room", "conflict": "switch", "integrity": "files", "not-trusted": "trust"}

#: What a rollout can do about a refusal, by the class of its error. A hold is named by the status.
HINTS = {"held": "; at_window=True waits for the window, outside_window=True begins all the same"}

#: From which release on minions sign in with a version, for each line that changed (`version` in the payload of `salt/channel/client.py`,
#: before 3005 `salt/transport/zeromq.py`). Releases that a distribution has patched may be ahead of this table.
SIGN_INS = ((3, {3006: 12, 3007: 4}, 3008), (2, {3004: 1}, 3005))


@dataclass(frozen=True)
class Master:
    """A master that a host listens to."""

    #: None: not known.
    version: "str | None" = None
    #: The version of the sign-in that it asks for at least (`minimum_auth_version`); None: not known.
    minimum_auth: "int | None" = None


@dataclass
class HostPlan:
    """One host of a plan."""

    id: str
    verdict: str
    #: Each reason for the verdict, as an administrator reads it.
    why: "list[str]" = field(default_factory=list)
    #: What each reason is about, in one word.
    kinds: "list[str]" = field(default_factory=list)
    #: What is good to know, and keeps nobody.
    notes: "list[str]" = field(default_factory=list)
    running: "str | None" = None
    family: str = "unknown"
    #: The number of its last switch: what ends later is of the rollout.
    last_switch: int = 0
    #: The release has to be installed there.
    lacks: bool = False
    wave: "int | None" = None
    #: Whether its highstate is the `same` in both releases, `differs`, or was `not compared`; None: nobody asked.
    highstate: "str | None" = None
    #: What differs, by id and function.
    differences: "list[str]" = field(default_factory=list)
    #: What it uses of what the release lacks: kind, function, and the last day.
    uses: "list[list[str]]" = field(default_factory=list)
    #: The masters that it listens to, by the names that it has for them.
    masters: "list[str]" = field(default_factory=list)

    def becomes(self, verdict, reasons):
        """Returns this host with its verdict, and the reasons for it: pairs of a kind and a text."""
        self.verdict = verdict
        self.kinds, self.why = [kind for kind, _ in reasons], [text for _, text in reasons]
        return self


def version_key(version):
    """Orders versions of Salt: 3006.9 < 3006.30 < 3007.1."""
    return [int(number) for number in re.findall(r"\d+", version.split("-")[0])]


def sign_in_of(release):
    """Returns the version of the sign-in with which minions of a release come to their masters."""
    line, *rest = [*version_key(release), 0, 0]
    for version, since, always in SIGN_INS:
        if line >= always or (line in since and rest[0] >= since[line]):
            return version
    return 0


def is_salt(package):
    """Returns whether the agents of a package have masters."""
    return package.endswith("salt-minion")


def judge(host_id, facts, wanted, masters):
    """
    Judges what becomes of one host. `facts`: what is known of it, with the keys

    - `status`: what `sidle.status` says of the instance; None: the host has no sidle, or nothing of the package: `trouble` says why
    - `unreadable`: why an answer of the host cannot be read; None: each one can
    - `releases`: what `sidle.list` says
    - `rehearsal`: what the dry run of the switch says (`sidle.rehearse`), and `install`: what the dry run of an upgrade says, for a host that
      lacks the release; None where it was not asked
    - `family`, `unseen_days` (0: it answers), `runs` (the version of its minion, from the master's cache if it does not answer), and whatever
      `Wanted.by` names

    `masters`: each master that the host listens to, by its name.
    """
    status, unseen = facts.get("status"), facts.get("unseen_days", 0)
    if facts.get("unreadable"):
        plan = HostPlan(host_id, REFUSED, family=facts.get("family") or "unknown", masters=sorted(masters))
        return plan.becomes(REFUSED, [("answer", facts["unreadable"])])
    running = status.get("current") if status else facts.get("runs") if is_salt(wanted.package) else None
    plan = HostPlan(host_id, GO, running=running, family=facts.get("family") or "unknown", masters=sorted(masters))
    if unseen >= GONE_DAYS:
        return plan.becomes(GONE, [("gone", f"not seen for {unseen} days")])
    if unseen:
        plan.notes += _lockouts(facts.get("runs"), wanted, masters)
        return plan.becomes(OFFLINE, [("offline", "it does not answer: it goes when it comes back")])
    if status is None:
        trouble = facts.get("trouble") or f"it has no {wanted.package} under sidle: `sidle setup`, then `sidle adopt`"
        return plan.becomes(REFUSED, [("no sidle", trouble)])
    if status.get("current") == wanted.release and not status.get("switch"):
        return plan.becomes(THERE, [("there", f"{wanted.release} is current")])
    plan.last_switch = (status.get("last") or {"id": 0})["id"]
    highstate = (facts.get("rehearsal") or {}).get("highstate")
    plan.uses = (facts.get("rehearsal") or {}).get("used") or []
    if highstate:
        plan.highstate, plan.differences = highstate["found"], highstate["states"]
    plan.lacks = wanted.release not in status.get("installed", [])
    plan.notes += [*_notes(facts, wanted), *_way_back(facts, wanted, masters), *_unknown(wanted, masters)]
    reasons = list(_refusals(facts, wanted, masters))
    return plan.becomes(REFUSED if reasons else GO, reasons)


def _refusals(facts, wanted, masters):
    of_status, of_masters = list(_of_status(facts, wanted)), list(_of_masters(wanted, masters)) if is_salt(wanted.package) else []
    yield from of_status
    for asked in ("rehearsal", "install"):
        error = (facts.get(asked) or {}).get("error")
        # A dry run names the first obstacle only: a hold, a mark or a switch that the status has named already.
        if error and error["class"] != "nothing-to-do" and not (of_status and error["class"] not in ("no-space", "not-trusted")):
            is_of_peers = error.get("reason") == "peers"
            if is_of_peers and of_masters:
                # The host knows what this plan has told it.
                continue
            other = "master" if is_of_peers else "install" if asked == "install" else "highstate" if error.get("reason") == "highstate" else "rehearsal"
            yield CLASSES.get(error["class"], other), error["message"] + HINTS.get(error["class"], "")
    yield from of_masters


def _of_status(facts, wanted):
    status = facts["status"]
    hold, live, claim = status.get("hold"), status.get("switch"), status.get("rollout")
    if hold:
        until = f", until {hold['until']}" if hold.get("until") else ""
        yield "held", f"held by {hold['by']}" + (f": {hold['reason']}" if hold["reason"] else "") + until
    if live and live["to"] != wanted.release:
        yield "switch", f"switch {live['id']} to {live['to']} is under way, in phase {live['phase']}"
    if claim:
        yield "rollout", f"it belongs to rollout {claim['id']}, until {claim['until']}"
    if not status.get("supervisor"):
        yield "supervisor", "no supervisor runs: `systemctl start sidle@" + status["instance"] + "`"
    for mark, reason in _failed(facts, wanted.release):
        yield mark, f"{wanted.release} is marked as {mark} here" + reason


def _failed(facts, release):
    """Returns the marks that keep a host from a release, each with its reason."""
    for known in facts.get("releases", []):
        for mark in known["marks"] if known["release"] == release else []:
            if mark["mark"] in FAILED_MARKS:
                yield mark["mark"], f": {mark['reason']}" if mark.get("reason") else ""


def _of_masters(wanted, masters):
    signs_in = wanted.signs_in()
    for name, master in sorted(masters.items()):
        if master.version and version_key(master.version) < version_key(wanted.release):
            yield "master", f"its master {name} runs {master.version}, which is older than {wanted.release}: upgrade the master first"
        if master.minimum_auth and signs_in < master.minimum_auth:
            yield "sign-in", (
                f"its master {name} would lock out {wanted.release}, which signs in with version {signs_in}: set minimum_auth_version: {signs_in} "
                f"there (it is {master.minimum_auth})"
            )


def _notes(facts, wanted):
    status, answers = facts["status"], [facts.get("rehearsal") or {}, facts.get("install") or {}]
    if wanted.release not in status.get("installed", []):
        yield f"{wanted.release} has to be installed"
    if facts.get("unchecked"):
        yield facts["unchecked"]
    for answer in answers:
        yield from answer.get("notes", [])
        if answer.get("mode") not in (None, "overlap"):
            yield f"the switch would be made in mode {answer['mode']}: jobs that are published during its downtime are missed"


def _way_back(facts, wanted, masters):
    status = facts["status"]
    current = status.get("current")
    if current is None:
        yield "no way back by sidle: no release has worked here"
        return
    known = next((each for each in facts.get("releases", []) if each["release"] == current), None)
    if current not in status.get("installed", []):
        yield f"no way back: {current} is not installed any more"
    elif known and known.get("problem"):
        yield f"no way back: {known['problem']}"
    for mark, reason in _failed(facts, current):
        yield f"no way back by itself: {current} is marked as {mark} here{reason}"
    if is_salt(wanted.package):
        for name, master in sorted(masters.items()):
            if master.minimum_auth and sign_in_of(current) < master.minimum_auth:
                yield (
                    f"the way back is locked out: {current} signs in with version {sign_in_of(current)}, and minimum_auth_version is "
                    f"{master.minimum_auth} at its master {name}"
                )


def _unknown(wanted, masters):
    names = sorted(name for name, master in masters.items() if master.version is None)
    if names and is_salt(wanted.package):
        yield f"not known: the version of its master {', '.join(names)}: `salt-run sidle.masters` there, then here; or `sidle: {{masters: …}}` in this master's configuration"


def _lockouts(runs, wanted, masters):
    for name, master in sorted(masters.items()):
        if runs and is_salt(wanted.package) and master.minimum_auth and sign_in_of(runs) < master.minimum_auth:
            yield (
                f"it may be locked out: {runs} signs in with version {sign_in_of(runs)}, and minimum_auth_version is {master.minimum_auth} at its "
                f"master {name}"
            )
