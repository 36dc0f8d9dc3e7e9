"""What `sidle.install_fleet` writes for a master, and what it leaves alone; with Salt's own reader of its configuration, and no minion."""

import os

import pytest
import salt.config
from saltext.sidle.fleet import installing


@pytest.fixture
def place(tmp_path):
    (tmp_path / "files").mkdir()
    return tmp_path


def opts_of(place, main="", **files):
    """Returns the options of a master with these files, as Salt reads them."""
    (place / "master").write_text(f"root_dir: {place}\nfile_roots: {{base: [{place}/files]}}\n{main}", encoding="utf-8")
    for name, text in files.items():
        (place / "master.d").mkdir(exist_ok=True)
        (place / "master.d" / f"{name}.conf").write_text(text, encoding="utf-8")
    return salt.config.master_config(str(place / "master"))


def run(place, test=False, minions=False, **files):
    asked = []
    answers = {"sidle.version": {"web1": "0.1.0", "old1": "'sidle.version' is not available."}, "beacons.list": {"web1": {}}}

    def ask(ids, function, *_, **__):
        asked.append(function)
        default = {minion: {"result": True} for minion in ids}
        return {minion: said for minion, said in answers.get(function, default).items() if minion in ids}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(installing.asking, "resolve", lambda *_: (["web1", "old1", "off1"] if minions else [], []))
        found = installing.Installing(opts_of(place, **files), ask, test).run(("*", "glob"), 5, 15, None)
    return found, asked


def lines(found, key):
    return "\n".join(found.get(key, []))


def test_what_is_missing_is_written_once_and_read_by_salt(place):
    before = sorted(os.walk(place))
    found, asked = run(place, test=True, minions=True)
    assert "would change" in found and "changed" not in found and sorted(os.walk(place))[0][1] == before[0][1]
    assert not {"saltutil.sync_all", "beacons.add", "beacons.save"} & set(asked)
    found, asked = run(place, minions=True)
    assert "failed" not in found, found
    opts = opts_of(place)
    assert opts["schedule"]["sidle"]["function"] == "sidle.go_on"
    assert opts["reactor"] == [{"salt/minion/*/start": [str(place / "reactor.d/sidle.sls")]}]
    assert (place / "files/_modules/_sidle_files.py").stat().st_mode & 0o777 == 0o644
    assert "restart salt-master" in lines(found, "next") and "1 minions (off1) did not answer" in lines(found, "next")
    assert "old1) have no program sidle" in lines(found, "next")
    assert [each for each in asked if each.startswith("beacons")] == ["beacons.list", "beacons.add", "beacons.save"]
    found, _ = run(place, minions=True)
    assert "are in" in lines(found, "is so") and "modules" not in lines(found, "changed") and "master" not in lines(found, "changed")


def test_a_file_that_was_changed_by_hand_is_written_again_and_a_new_interval_too(place):
    run(place)
    (place / "files/_modules/sidle.py").write_text("old", encoding="utf-8")
    found, _ = run(place)
    assert lines(found, "changed").startswith("1 modules of minions in ")


def test_what_the_site_has_by_itself_is_left_alone(place):
    (place / "mine.sls").write_text("x:\n  runner.sidle.take_up:\n    - minion: {{ data['id'] }}\n", encoding="utf-8")
    main = f"schedule: {{other: {{function: sidle.go_on, hours: 1}}}}\nreactor: [{{'salt/minion/*/start': [{place}/mine.sls]}}]\n"
    found, _ = run(place, main=main)
    assert "the master's schedule calls sidle.go_on" in lines(found, "is so")
    assert "the master's reactor calls sidle.take_up" in lines(found, "is so")
    assert not (place / "master.d").exists()


def test_nothing_of_the_site_is_hidden(place):
    main = "schedule: {nightly: {function: cache.clear_all, hours: 24}}\n"
    found, _ = run(place, main=main)
    assert "has schedule itself, which this would hide; add there" in lines(found, "failed")
    assert "sidle.go_on" in lines(found, "failed") and found["retcode"] == 1
    assert not (place / "master.d").exists()
    assert set(opts_of(place, main)["schedule"]) == {"nightly"}


def test_beside_other_files_of_master_d_all_of_it_counts(place):
    site = "schedule: {nightly: {function: cache.clear_all, hours: 24}}\nreactor: [{'site/*': [/srv/site.sls]}]\n"
    found, _ = run(place, zz_site=site, aa_site="reactor: [{'other/*': [/srv/other.sls]}]\n")
    assert "no accepted key matches" in lines(found, "failed") and len(found["failed"]) == 1, found
    opts = opts_of(place)
    assert set(opts["schedule"]) >= {"nightly", "sidle"}
    assert sorted(next(iter(each)) for each in opts["reactor"]) == ["other/*", "salt/minion/*/start", "site/*"]


def test_a_configuration_that_hides_what_was_written_gets_it_back(place):
    (place / "more.conf").write_text("schedule: {nightly: {function: cache.clear_all, hours: 24}}\n", encoding="utf-8")
    found, _ = run(place, main=f"include: {place}/more.conf\n")
    assert "another file hides it" in lines(found, "failed"), found
    assert not (place / "master.d/sidle-fleet.conf").exists()
