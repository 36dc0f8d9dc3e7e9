"""Salt's loaders find each module by the entry point, and the modules ask the real program."""

import salt.config
import salt.loader


def test_the_execution_module_asks_the_program(loaders):
    answer = loaders.modules["sidle.list"]()
    assert answer["code"] == 0
    assert isinstance(answer["releases"], list)


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


def test_the_wrapper_of_salt_ssh_has_what_needs_the_master_and_nothing_else(minion_opts):
    wrapper = salt.loader.ssh_wrapper(minion_opts, {}, {})
    assert sorted(name for name in wrapper if name.startswith("sidle.")) == ["sidle.install", "sidle.pin"]
