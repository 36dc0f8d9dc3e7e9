"""Salt's loaders find each module by the entry point, and the modules ask the real program."""

import pathlib

import salt.config
import salt.loader
from saltext.sidle.modules import _sidle_program


def test_the_execution_module_asks_the_program(loaders):
    answer = loaders.modules["sidle.list"]()
    assert answer["code"] == 0
    assert isinstance(answer["releases"], list)


def test_both_files_of_the_execution_module_are_one_module(loaders):
    names = {name.partition(".")[2] for name in loaders.modules if name.startswith("sidle.")}
    assert {"switch", "job", "verify", "pin", "list"} <= names
    assert not {"sidle_store", "_sidle_program", "_sidle_files", "_sidle_cards"} & {name.partition(".")[0] for name in loaders.modules}
    assert loaders.modules["sidle.check_settings"]("keep_extra = 2") is None


def test_what_the_host_knows_of_a_job_is_found_by_the_minions_own_options(loaders, minion_opts):
    kept = pathlib.Path(minion_opts["cachedir"], "minion_jobs", "deploy-42")
    kept.mkdir(parents=True)
    (kept / "return.p").touch()
    known = loaders.modules["sidle.job"]("deploy-42")
    assert (known["code"], known["job"], known["cached"], known["claimed"]) == (0, "deploy-42", True, None)
    assert known["masters"] == [minion_opts["master"]]
    assert loaders.modules["sidle.job"]()["job"] is None


def test_a_program_that_lacks_a_verb_is_too_old(loaders, minion_opts):
    # This program is to a verb of tomorrow what an older one is to a verb of today.
    minion = _sidle_program.Minion(minion_opts, loaders.modules, {})
    answer = minion.run("foretell")
    assert answer["error"]["message"] == (
        f"cannot run sidle foretell: this host's sidle {minion.version()} lacks this verb; sidle {_sidle_program.NEEDED} or later is needed"
    )
    assert "sidle upgrade sidle" in answer["error"]["hint"]
    # A value that the program refuses is no missing verb.
    assert "lacks this verb" not in minion.run("switch", ["demo-agent"], {"splay": "soon"})["error"]["message"]


def test_an_unknown_option_is_an_error(loaders):
    answer = loaders.modules["sidle.switch"](relase="1.0-1")
    assert answer["code"] == 2
    assert "no option relase" in answer["error"]["message"]


def test_a_state_with_test_shows_the_failure_and_changes_nothing(loaders):
    loaders.opts["test"] = True
    try:
        answer = loaders.states["sidle.installed"]("demo-agent", release="9.9-1", source="/nowhere.sidle")
    finally:
        loaders.opts["test"] = False
    assert answer.result is False
    assert answer.changes == {}
    assert "cannot" in answer.comment


def test_the_grain_has_the_programs_version(loaders, minion_opts):
    grains = salt.loader.grains(minion_opts, force_refresh=True)
    assert grains["sidle"]["version"] == loaders.modules["sidle.version"]()


def test_the_beacon_takes_a_list_alone_and_is_silent_at_first(loaders, minion_opts):
    beacons = salt.loader.beacons(minion_opts, loaders.modules)
    assert beacons["sidle.validate"]([])[0] is True
    assert beacons["sidle.validate"]({})[0] is False
    assert beacons["sidle.beacon"]([]) == []


def test_the_runner_lists_no_rollouts_on_a_new_master(master_opts):
    utils = salt.loader.utils(master_opts)
    runners = salt.loader.runner(master_opts, utils=utils, context={})
    assert runners["sidle.rollouts"]() == {}
    assert "cannot find rollout" in runners["sidle.show"]("r1")["error"]
    # The second file of the runner has functions of the same name, and needs no master that runs to refuse.
    assert "formats are text and data" in runners["sidle.uses"](format="html")["error"]


def test_the_wrapper_of_salt_ssh_has_what_needs_the_master_and_nothing_else(minion_opts):
    wrapper = salt.loader.ssh_wrapper(minion_opts, {}, {})
    assert sorted(name for name in wrapper if name.startswith("sidle.")) == ["sidle.install", "sidle.pin"]
