"""
The beacon ``sidle`` tells the master what became of this host's releases, and refreshes the grain ``sidle`` when a switch has ended.

.. code-block:: yaml

    beacons:
      sidle:
        - interval: 15

Events, with the prefix of each beacon (``salt/beacon/<id>/sidle/``):

=================  ====================================================================================
``staged``         a release was installed
``committed``      a switch has ended: the new release is current
``rolled-back``    a switch has ended: the old release is current
``refused``        a switch has ended before anything was changed; also ``cancelled``, ``expired``, ``abandoned``
``stranded``       the release that worked does not come up again: a person is needed
``damaged``        files of a release were damaged; ``left`` says how many still are
=================  ====================================================================================

Each event has ``instance``, ``package`` and ``release``; that of a switch its ``switch`` (number), ``purpose``, ``from``, ``cause`` and ``text``;
if it had a downtime, its length in seconds is ``downtime``, and ``missed`` is the command that lists on the master what was published then.

The beacon keeps in the minion's cache what it has sent. So a restarted minion, and the new process after a switch, send no event again; what happened
while no minion ran is sent when the minion is back. The first run of the beacon sends nothing.
"""

import json
import os
import re

__virtualname__ = "sidle"

#: The file below the minion's cachedir.
KEPT = "sidle-beacon.json"


def __virtual__():
    return __virtualname__


def validate(config):
    """Returns whether the configuration is one of this beacon."""
    if not isinstance(config, list):
        return False, "Configuration for sidle beacon must be a list."
    return True, "Valid beacon configuration"


def beacon(config):
    """Returns the events since the last time."""
    status = __salt__["sidle.status"](trees=False)
    # A host without sidle, or one whose settings are wrong, has nothing to tell here; the job's return code is not the beacon's.
    __context__.pop("retcode", None)
    if "error" in status:
        return []
    seen = {each["instance"]: _seen(each) for each in status["instances"]}
    kept = _kept()
    if seen == kept:
        return []
    events = [] if kept is None else [event for each in status["instances"] for event in _news(each, kept.get(each["instance"]))]
    _keep(seen)
    if any(event["tag"] not in ("staged", "damaged") for event in events):
        __salt__["event.fire"]({"notify": False}, "module_refresh")
        # Tells the master, if the grains differ: it finds targets by what it has in its cache.
        __salt__["event.fire"]({}, "grains_refresh")
    return events


def _seen(status):
    last, live = status["last"], status["switch"]
    return {
        "installed": sorted(status["installed"]),
        "last": last["id"] if last else 0,
        "stranded": live["id"] if live and live["phase"] == "stranded" else None,
        "damaged": (status["trees"]["last_incident"] or {}).get("at"),
    }


def _news(status, before):
    now, about = _seen(status), {"instance": status["instance"], "package": status["package"]}
    before = before or {"installed": [], "last": 0, "stranded": None, "damaged": None}
    for release in now["installed"]:
        if release not in before["installed"]:
            yield {"tag": "staged", **about, "release": release}
    if now["stranded"] and now["stranded"] != before["stranded"]:
        yield {"tag": "stranded", **about, **_told(status["switch"])}
    if now["last"] != before["last"]:
        yield {"tag": status["last"]["result"], **about, **_told(status["last"])}
    if now["damaged"] and now["damaged"] != before["damaged"]:
        incident = status["trees"]["last_incident"]
        told = {key: incident[key] for key in ("release", "occasion", "found", "mended", "left")}
        yield {"tag": "damaged", **about, **told, "text": "; ".join(incident["problems"])}


def _told(switch):
    failure = switch["failure"] or {}
    return {
        "release": switch["to"],
        "switch": switch["id"],
        "purpose": switch["purpose"],
        "from": switch["from"],
        "cause": failure.get("cause"),
        "text": failure.get("text"),
        **_downtime(switch),
    }


def _downtime(switch):
    """Returns how long nobody heard jobs in a switch, in seconds, and the command that lists on the master what was published then."""
    seconds = switch.get("downtime_milliseconds", 0) / 1000
    if not seconds:
        return {}
    begun = re.sub(r"\.\d+", "", switch["requested_at"])
    return {"downtime": seconds, "missed": f"salt-run sidle.missed {__opts__['id']} since={begun}"}


def _path():
    return os.path.join(__opts__["cachedir"], KEPT)


def _kept():
    try:
        with open(_path(), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def _keep(seen):
    new = _path() + ".new"
    with open(new, "w", encoding="utf-8") as file:
        json.dump(seen, file)
    os.replace(new, _path())
