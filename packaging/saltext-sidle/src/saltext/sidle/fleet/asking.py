"""What a plan has to know, asked of the minions and of this master. Used by the runner, which gives Salt's configuration and its way to send jobs."""

import os
import re
import time
from functools import partial

import salt.cache
import salt.client
import salt.exceptions
import salt.utils.minions

from . import answers, groups, plan
from .masters import LOOK_UP_SECONDS, LOOKED_UP_MAX, Masters
from .verdicts import is_salt

DAY_SECONDS = 86400

#: What a host says of itself for a plan; grains come beside them.
QUESTIONS = ("sidle.status", "sidle.list", "config.get", "grains.item")

#: Targets for which the master looks into its cache of grains and pillars.
CACHED_TARGETS = ("grain", "grain_pcre", "pillar", "pillar_pcre", "pillar_exact", "compound", "compound_pillar_exact", "ipcidr", "nodegroup", "range")

#: The dry run of a switch starts the release, the one of an install fetches metadata: so many times longer than an answer they may take. Only those
#: are asked that have just answered, so that each one is waited for: a slow host must not be refused because the others were quick.
DRY_RUN_ANSWERS = 9

#: A bundle would have to be copied to each host before its room can be judged.
UNCHECKED = "not checked: room and platform, since a bundle of the master's file server would have to be copied to the host first"


def resolve(opts, tgt, tgt_type):
    """
    Returns the accepted ids of a target; and those of which nobody knows whether they match, since the master has no grains of them in its cache. Some
    releases of Salt count these as matching; a rollout must not.
    """
    minions = salt.utils.minions.CkMinions(opts)
    found = set(minions.check_minions(tgt, tgt_type, greedy=False)["minions"])
    if tgt_type not in CACHED_TARGETS or (tgt_type == "compound" and not re.search(r"\b[GPIJSRN]@", str(tgt))):
        return sorted(found), []
    accepted = set(minions.check_minions("*", "glob")["minions"])
    cache = salt.cache.factory(opts)
    # Salt keeps what it knows of minions whose keys are gone.
    return sorted(found & accepted), sorted(accepted - found - set(cache.list("grains")) - set(cache.list("minions")))


def syndics(opts):
    """Returns the ids of the syndics that a master of masters has heard of: Salt keeps a file of each."""
    try:
        return sorted(os.listdir(os.path.join(opts["cachedir"], "syndics"))) if opts.get("order_masters") else []
    except FileNotFoundError:
        return []


def _of_masters(opts, target):
    below = syndics(opts)
    known = f" (known here: {', '.join(below)})" if below else ""
    return plan.PlanError(
        f"cannot plan: no minion of this master itself matches {target[0]} ({target[1]}). It is a master of masters: minions below a syndic have their keys "
        f"on the syndic's own master, and only that one can say who of them has answered. Run this on the syndic's own master{known}"
    )


def cached(store, minion):
    """Returns the grains of a minion, as the master has cached them, and when it did."""
    # From 3008 on grains have a bank of their own.
    for bank, key in (("grains", minion), (f"minions/{minion}", "data")):
        try:
            found = store.fetch(bank, key)
        except salt.exceptions.SaltCacheError:
            continue
        if found:
            grains = found if bank == "grains" or not isinstance(found, dict) else found.get("grains")
            return grains or {}, store.updated(bank, key)
    return {}, None


class Asking:
    """
    One plan's questions. `ask(ids, function, arguments, kwarg=None, seconds=None, read=…, most=…)`: as `Bus.ask`. `source` and `timing` (`wanted.timing`): those of the rollout.
    """

    def __init__(self, opts, ask, source=None, timing=None):
        self.opts, self.ask = opts, ask
        self.source = source[0] if isinstance(source, list) and source else source or None
        self.timing = [{"__kwarg__": True, **timing}] if timing else []
        self.cache = salt.cache.factory(opts)
        self.masters = Masters(opts)

    # --- hosts -----------------------------------------------------------------------------------------------------

    def facts(self, ids, wanted):
        """Returns what is known of each host, for `plan.make`; and its masters."""
        grains = list(dict.fromkeys(["os_family", "saltversion", *([wanted.by] if wanted.by else [])]))
        facts, named = {}, {}
        for minion, found in self._answered(ids, wanted, grains).items():
            facts[minion] = of_answers(found, wanted)
            named[minion] = masters_of(facts[minion]["status"], _readable(found.get("config.get")) or [], wanted.package)
        self.masters.look_up(named.values())
        masters = {minion: self.masters.of(own) for minion, own in named.items() if own}
        for minion in set(ids) - set(facts):
            facts[minion] = self._silent(minion, grains)
        for minion in set(ids) - set(masters):
            # It did not say: by the name that the others have for this master.
            masters[minion] = {name: self.masters.this() for name in self.masters.own_names[:1]} or self.masters.of([])
        self._tell(facts, wanted)
        self._ask_rehearsals(facts, wanted)
        self._ask_installs(facts, wanted)
        return facts, masters

    def _answered(self, ids, wanted, grains):
        """
        Returns what each host that answers says to each question. One job for each: while a job of several functions runs, Salt fails to begin a state run
        (`saltutil.is_running`, up to 3008.5 at least).
        """
        arguments = [[], [], ["master"], grains]
        readers = [
            partial(answers.status, package=wanted.package), partial(answers.releases, package=wanted.package), answers.masters,
            partial(answers.grains, wanted=grains),
        ]  # fmt: skip
        found, asked = {}, ids
        for question, some, read in zip(QUESTIONS, arguments, readers, strict=True):
            for minion, answer in self.ask(asked, question, some, read=read).items() if asked else ():
                found.setdefault(minion, {})[question] = answer
            # Who is silent was waited for once.
            asked = list(found)
        return found

    def _tell(self, facts, wanted):
        """Sends each host the version of this master: its own switches, by whomever they are ordered, rest on it."""
        asked = [minion for minion, known in facts.items() if known["status"]]
        if asked and is_salt(wanted.package):
            this = self.masters.this()
            # An extension of before has no such function: nothing is known there, as before.
            self.ask(asked, "sidle.master_is", [this.version], {"minimum_auth_version": this.minimum_auth, "source": "a plan"}, read=lambda told: None)

    def _ask_dry_run(self, ids, function, arguments, kwarg=None):
        return self.ask(ids, function, arguments, kwarg, seconds=self._dry_run_seconds(), read=answers.dry_run, most=1)

    def _dry_run_seconds(self):
        return DRY_RUN_ANSWERS * (self.opts.get("sidle") or {}).get("answer_seconds", 20)

    def _ask_rehearsals(self, facts, wanted):
        """Asks those that have the release, and run another one, what a switch would say."""

        def is_asked(status):
            return status and wanted.release in status["installed"] and (status["current"] != wanted.release or status["switch"])

        asked = [minion for minion, known in facts.items() if is_asked(known["status"])]
        silent = answers.dry_run(f"no answer within {self._dry_run_seconds()} s")
        found = self._ask_dry_run(asked, "sidle.rehearse", [wanted.package, wanted.release, *self.timing])
        for minion in asked:
            _take(facts[minion], "rehearsal", found.get(minion, silent))

    def _ask_installs(self, facts, wanted):
        """Asks those that lack the release whether they have room for it, and whether it is there for their platform."""
        lacking = [minion for minion, known in facts.items() if known["status"] and wanted.release not in known["status"]["installed"]]
        if self.source and self.source.startswith("salt://") and is_bundle(self.source):
            for minion in lacking:
                facts[minion]["unchecked"] = UNCHECKED
            return
        for minion, answer in self._ask_dry_run(lacking, *self._dry_run(wanted)).items():
            _take(facts[minion], "install", answer)

    def _dry_run(self, wanted):
        """Returns the dry run of what a rollout does to a host that lacks the release. An upgrade looks at holds and windows, too."""
        kwarg = {"source": f"{wanted.package}@{wanted.release}", "test": True}
        if self.source:
            kwarg.update({"source": self.source} if is_bundle(self.source) else {"repository": self.source})
        return "sidle.upgrade", [*self.timing], kwarg

    def _silent(self, minion, wanted):
        """Returns what the master has in its cache of a minion that does not answer: what the minion once said."""
        known_once, seen = cached(self.cache, minion)
        grains = answers.taken(partial(answers.grains, wanted=wanted), known_once)
        known = _readable(grains) or {}
        return {
            **known,
            "family": known.get("os_family") or "unknown",
            "runs": known.get("saltversion"),
            # 1 at least: it does not answer.
            "unseen_days": max(1, int((time.time() - seen) // DAY_SECONDS)) if seen else 1,
            "status": None,
            "unreadable": _why(grains),
        }

    # --- groups ----------------------------------------------------------------------------------------------------

    def groups(self, names):
        """Returns which minions each of these targets would not reach: nodegroups by their names, other targets as compound ones. `True`: all nodegroups."""
        own = self.opts.get("nodegroups") or {}
        names = sorted(own) if names is True else [names] if isinstance(names, str) else list(names or [])
        kinds = {name: "nodegroup" if name in own else "compound" for name in names}
        expected = {name: resolve(self.opts, name, kind)[0] for name, kind in kinds.items()}
        versions = self._versions(sorted(set().union(*expected.values()))) if expected else {}
        found = []
        for name, kind in kinds.items():
            answered = set(self._answers(name, kind))
            lost = [minion for minion in expected[name] if minion in versions and minion not in answered]
            # A minion that is busy just now is not deaf: only what still answers to its id counts.
            still = self._versions(lost)
            known = {minion: version for minion, version in versions.items() if minion in still or minion not in lost}
            found.append(groups.reach(name, expected[name], answered, known))
        return found

    def _versions(self, ids):
        found = self.ask(ids, "grains.item", ["saltversion"], read=partial(answers.grains, wanted=["saltversion"]))
        return {minion: (_readable(grains) or {}).get("saltversion") or "unknown" for minion, grains in found.items()}

    def _answers(self, name, kind):
        seconds = (self.opts.get("sidle") or {}).get("answer_seconds", 20)
        with salt.client.LocalClient(mopts=self.opts) as client:
            told = client.cmd(name, "test.ping", timeout=seconds, tgt_type=kind)
        return [minion for minion, answer in told.items() if answer is True]


def is_bundle(source):
    """Returns whether a source is a bundle file, and no repository."""
    return source.endswith(".sidle")


def masters_of(status, named, package):
    """
    Returns the names of a host's masters. A job of a minion with several masters sees the one that it came from (`named`); the supervisor of a minion knows
    all that it reaches.
    """
    reached = ((status or {}).get("supervisor") or {}).get("reaches") or [] if is_salt(package) else []
    return reached if len(reached) > 1 else named


def of_answers(found, wanted):
    """Returns what a host has said, as `verdicts.judge` wants it. `found`: the answer to each question, read, or an `answers.Unreadable`."""
    status, releases, _, grains = (_readable(found.get(question)) for question in QUESTIONS)
    grains = grains or {}
    return {
        **grains,
        "family": grains.get("os_family") or "unknown",
        "runs": grains.get("saltversion"),
        "unseen_days": 0,
        "status": status.instance if status else None,
        "trouble": status.trouble if status else None,
        "releases": releases or [],
        "rehearsal": None,
        "unreadable": next((why for why in map(_why, found.values()) if why), None),
    }


def _take(facts, name, answer):
    facts[name], facts["unreadable"] = _readable(answer), facts.get("unreadable") or _why(answer)


def _readable(answer):
    return None if isinstance(answer, answers.Unreadable) else answer


def _why(answer):
    return str(answer) if isinstance(answer, answers.Unreadable) else None


def planned(asking, wanted, target, group_names=None):
    """Makes the plan, by asking. `target`: a target and its type. Raises `plan.PlanError`."""
    wanted.check()
    ids, unknown = resolve(asking.opts, *target)
    if not ids and asking.opts.get("order_masters"):
        raise _of_masters(asking.opts, target)
    if unknown and not ids:
        raise plan.PlanError(f"cannot plan: the master has no grains of {len(unknown)} minions in its cache: `salt '*' saltutil.refresh_pillar`")
    if not ids:
        raise plan.PlanError(f"cannot plan: no accepted key matches {target[0]} ({target[1]})")
    facts, masters = asking.facts(ids, wanted)
    below = [syndic for syndic in syndics(asking.opts) if syndic in facts and facts[syndic]["unseen_days"]]
    # A syndic has a key, and hears no job for its id; one that answers has a minion of the same id beside it.
    facts = {minion: known for minion, known in facts.items() if minion not in below}
    if not facts:
        raise _of_masters(asking.opts, target)
    made = plan.make(facts, wanted, masters)
    if asking.masters.unresolved:
        limits = f"no more than {LOOKED_UP_MAX} names, for {LOOK_UP_SECONDS} s"
        made.notes.append(f"{asking.masters.unresolved} names of masters were not looked up ({limits})")
    if unknown:
        made.notes.append(f"not in the plan, since the master has no grains of them in its cache: {groups.some(unknown)}")
    made.groups = [vars(group) for group in asking.groups(group_names)]
    return made


def planned_again(asking, old, sign_in=None):
    """Makes an earlier plan anew, for the minions that still go: they are asked again. Raises `plan.PlanError`."""
    wanted = plan.Wanted(old.package, old.release, canary=0, percents=[100], seed=old.seed, sign_in=sign_in)
    wanted.check()
    accepted = set(resolve(asking.opts, "*", "glob")[0])
    facts, masters = asking.facts([minion for wave in old.waves for minion in wave if minion in accepted], wanted)
    return plan.renewed(old, plan.make(facts, wanted, masters))
