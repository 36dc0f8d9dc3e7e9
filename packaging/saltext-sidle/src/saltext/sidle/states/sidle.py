"""
State module for ``sidle``: which releases are installed, which one is current, holds, settings and trust.

.. code-block:: yaml

    the signer of our bundles:
      sidle.trusted:
        - source: salt://sidle/1.root.json
        - fingerprint: 3f1c…

    50-site:
      sidle.settings:
        - contents: |
            keep_extra = 2
            probation = "2m"

    salt-minion:
      sidle.installed:
        - release: 3007.17-1
        - source: salt://sidle/salt-minion-3007.17.sidle
      sidle.current:
        - release: 3007.17-1
        - splay: 10m

``sidle.current`` may stand anywhere in a highstate: the switch of the minion that applies it goes on after the job, and what stands after it is
applied by the old process. With ``test=True`` every state says what it would change, and changes nothing.
"""

__virtualname__ = "sidle"

#: Exit codes of sidle that this module tells apart.
PENDING = 4


def __virtual__():
    return __virtualname__


def _answer(name, result=True, comment="", changes=None):
    return {"name": name, "result": result, "comment": comment, "changes": changes or {}}


def _failed(name, answer):
    error = answer.get("error")
    if error is None:
        failure = answer.get("failure") or {}
        return _answer(name, False, f"{answer.get('result', 'failed')}: {failure.get('text', 'sidle history says why')}")
    hint = f" ({error['hint']})" if error.get("hint") else ""
    return _answer(name, False, error["message"] + hint)


def _instance(package, instance):
    """Returns the instance's part of the status, {} if there is none; or the failure to read it."""
    # Of all packages: to ask for one of which nothing is installed yet is a failure.
    status = __salt__["sidle.status"]()
    # 4 says only that a switch is under way.
    if "error" in status:
        return None, status
    wanted = instance or package
    return next((each for each in status["instances"] if each["instance"] == wanted), {}), None


def installed(name, release, source=None, repository=None, rate=None):
    """
    Ensures that the release is installed. What runs stays as it is.

    name
        The package

    release
        The release, ``3007.17-1``

    source
        A bundle on this host or ``salt://…`` [default: the repository]

    repository
        A URL, or a list of URLs, as for the function ``sidle.install``; ``salt://sidle/repo`` is a repository on the file server

    rate
        The most bytes a second that this host takes of a repository on the file server: ``2M``
    """
    there = __salt__["sidle.list"]()
    if "error" in there:
        return _failed(name, there)
    releases = [each["release"] for each in there["releases"] if each["package"] == name]
    if release in releases:
        return _answer(name, comment=f"{name} {release} is installed")
    changes = {"old": releases, "new": sorted([*releases, release])}
    wanted = {"source": source, "release": release} if source else {"source": f"{name}@{release}"}
    answer = __salt__["sidle.install"](repository=repository, rate=rate, test=__opts__["test"], **wanted)
    if "error" in answer:
        return _failed(name, answer)
    if __opts__["test"]:
        return _answer(name, None, f"{name} {release} would be installed", changes)
    return _answer(name, comment=f"{name} {release} was installed", changes=changes)


def current(name, release, instance=None, mode=None, deadline=None, reason=None, splay=None, at_window=None, wait=False):
    """
    Ensures that the release is current: it runs, and a boot starts it. It has to be installed.

    A release that failed on this host (bad), and one from which an administrator rolled back (declined), is not tried again by this state.

    name
        The package

    release
        The release, ``3007.17-1``

    wait
        Wait for the end of the switch, where the switch is not the one of the minion that applies this state
    """
    own, failure = _instance(name, instance)
    if failure:
        return _failed(name, failure)
    running, live = own.get("current"), own.get("switch")
    if live and live["to"] == release:
        return _answer(name, comment=f"switch {live['id']} to {release} is under way, in phase {live['phase']}")
    if running == release and not live:
        return _answer(name, comment=f"{release} is current")
    there = __salt__["sidle.list"]()
    marks = [
        mark
        for each in there.get("releases", [])
        if (each["package"], each["release"]) == (name, release)
        for mark in each["marks"]
        if mark["instance"] == (instance or name)
    ]
    refused = next((mark for mark in marks if mark["mark"] in ("bad", "declined")), None)
    if refused:
        why = f": {refused['reason']}" if refused.get("reason") else ""
        return _answer(name, False, f"{release} is marked as {refused['mark']} on this host{why}")
    if __opts__["test"] and "error" not in there and not any((each["package"], each["release"]) == (name, release) for each in there["releases"]):
        # A state before this one may install it.
        return _answer(name, None, f"{name} would be switched to {release}, once it is installed", {"old": running, "new": release})
    options = {
        "instance": instance, "mode": mode, "deadline": deadline, "reason": reason, "splay": splay, "at_window": at_window,
    }  # fmt: skip
    answer = __salt__["sidle.switch"](name, release, wait=wait, test=__opts__["test"], **options)
    changes = {"old": running, "new": release}
    if __opts__["test"]:
        if answer["code"] not in (0, PENDING):
            return _failed(name, answer)
        notes = "".join(f"; {note}" for note in answer.get("notes", []))
        return _answer(name, None, f"{name} would be switched to {release}, mode {answer.get('mode')}{notes}", changes)
    if answer.get("pending"):
        changes["switch"] = answer["switch"]
        return _answer(name, comment=f"switch {answer['switch']} to {release} has begun, and goes on after this job", changes=changes)
    if answer["code"] != 0:
        return _failed(name, answer)
    changes["switch"] = answer.get("id")
    return _answer(name, comment=f"{release} is current", changes=changes)


def held(name, reason="", instance=None, until=None, rollbacks_too=None):
    """
    Ensures that the instance of this package is held at its release.

    until
        The end of the hold, as for the function ``sidle.hold``. After this time the state does nothing
    """
    own, failure = _instance(name, instance)
    if failure:
        return _failed(name, failure)
    old, scope = own.get("hold"), "all" if rollbacks_too else "upgrades"
    if old and old["reason"] == reason and old["scope"] == scope and until is None:
        return _answer(name, comment="it is held")
    answer = __salt__["sidle.hold"](
        name, instance=instance, reason=reason or None, until=until, rollbacks_too=rollbacks_too, test=__opts__["test"]
    )
    if "error" in answer:
        if until and answer["error"].get("reason") == "time-is-past":
            return _answer(name, comment=f"the hold has ended, {until}")
        return _failed(name, answer)
    told = {key: value for key, value in answer["hold"].items() if key not in ("at", "schema")}
    past = {key: value for key, value in (old or {}).items() if key not in ("at", "schema")}
    if told == past:
        return _answer(name, comment="it is held")
    changes = {"old": past or None, "new": told}
    return _answer(name, None if __opts__["test"] else True, "it would be held" if __opts__["test"] else "it is held now", changes)


def unheld(name, instance=None):
    """
    Ensures that the instance of this package is not held.
    """
    own, failure = _instance(name, instance)
    if failure:
        return _failed(name, failure)
    if not own.get("hold"):
        return _answer(name, comment="it is not held")
    answer = __salt__["sidle.unhold"](name, instance=instance, test=__opts__["test"])
    if "error" in answer:
        return _failed(name, answer)
    changes = {"old": own["hold"]["reason"], "new": None}
    return _answer(name, None if __opts__["test"] else True, "the hold would end" if __opts__["test"] else "the hold has ended", changes)


def settings(name, contents):
    """
    Ensures that the settings file ``/etc/sidle/conf.d/NAME.toml`` has this content. Settings that sidle cannot read are refused, and the file stays as it is.

    name
        The file's name without ``.toml``

    contents
        TOML
    """
    wrong = __salt__["sidle.check_settings"](contents)
    if wrong:
        return _answer(name, False, wrong)
    root = __salt__["config.get"]("sidle:root", "/").rstrip("/")
    path = f"{root}/etc/sidle/conf.d/{name}.toml"
    answer = __states__["file.managed"](path, contents=contents, makedirs=True, mode="0644", user="root", group="root")
    return {**answer, "name": name}


def trusted(name, source, fingerprint):
    """
    Ensures that the host trusts the repository of this root.

    source
        A ``root.json`` or a bundle: on this host, or ``salt://…``

    fingerprint
        SHA-256 of the repository's ``1.root.json``, from its owner
    """
    answer = __salt__["sidle.pin"](source, fingerprint, test=__opts__["test"])
    if "error" in answer:
        return _failed(name, answer)
    if not answer["pinned"]:
        return _answer(name, comment=f"{answer['fingerprint']} is pinned")
    changes = {"old": None, "new": answer["fingerprint"]}
    if __opts__["test"]:
        return _answer(name, None, f"{answer['fingerprint']} would be pinned", changes)
    return _answer(name, comment=f"{answer['fingerprint']} was pinned", changes=changes)
