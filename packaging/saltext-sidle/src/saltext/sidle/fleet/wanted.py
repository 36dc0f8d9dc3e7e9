"""What a caller of `sidle.rollout` has given: a target and a release, or a plan that was written down."""

import dataclasses
from typing import NamedTuple

from . import plan as planning
from . import table as tables
from .states import RolloutError


class Given(NamedTuple):
    """The arguments that say what is rolled out."""

    tgt: "str | None"
    tgt_type: str
    release: "str | None"
    plan: "str | None"
    name: "str | None"
    sign_in: "int | None"
    despite_failures: bool
    test: bool


def timing(at_window, outside_window):
    """Returns how switches are ordered outside of maintenance windows: the option by which hosts wait for the window or do not; none: they refuse."""
    if at_window and outside_window:
        raise RolloutError("cannot use at_window and outside_window together: one waits for the maintenance window, the other one does not")
    return {name: True for name, is_on in (("at_window", at_window), ("outside_window", outside_window)) if is_on}


def begin(own, given, wanted, settings, options):
    """
    Plans a rollout and begins it, or shows the plan. `own`: the rollouts of this master; `wanted()`: a `plan.Wanted` of the arguments. Raises `plan.PlanError` and
    `states.RolloutError`.
    """
    if given.plan and (given.tgt is not None or given.release is not None):
        raise planning.PlanError("cannot use a target or a release beside a plan: the plan has them")
    if not given.plan and (given.tgt is None or given.release is None):
        raise planning.PlanError("cannot begin a rollout of nothing: name a target and a release, or a plan, as in plan=november.json")
    when = timing(options["at_window"], options["outside_window"])
    old = own.written_plan(given.plan) if given.plan else None
    new = None if old else wanted()
    name = own.free_name(given.name, (old or new).package, (old or new).release)
    if old:
        made = own.plan_again(old, options["source"], when, given.sign_in)
    else:
        made = own.plan((given.tgt, given.tgt_type), dataclasses.replace(new, seed=name), options["source"], when)
    if not given.despite_failures:
        own.check_failures(made.package, made.release)
    return tables.table(made) if given.test else own.begin(name, made, settings, options)
