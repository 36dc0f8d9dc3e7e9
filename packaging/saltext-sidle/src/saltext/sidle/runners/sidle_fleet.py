"""
Runner for ``sidle``: what a fleet needs, and what a rollout leaves behind. Its functions are called ``sidle.install_fleet`` and ``sidle.report``, as those of the
first file.

Configuration of the master, all optional:

.. code-block:: yaml

    sidle:
      reports: /srv/sidle/reports              # page and file of each rollout; default: sidle/reports below the master's cachedir
      on_halt: [/usr/local/sbin/call-oncall]   # runs at each halt, with what is known as JSON on its standard input
      sign: /etc/sidle/keys/targets.pem        # signs the file of each rollout, as `sidle key sign` does; also ssh-agent:NAME or exec:COMMAND
      program: /usr/bin/sidle                  # the program that signs, and copies a repository
      root: /                                  # the root of that program, where its trust store is
"""

import os
import sys

try:
    import saltext.sidle.fleet.rollouts  # noqa: F401
except ImportError:
    # `runner_dirs` names this directory in a copy of the extension.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from saltext.sidle.fleet import installing, rollouts

__virtualname__ = "sidle"


def __virtual__():
    return __virtualname__


def _answered(work):
    """Gives what a function answers; a failure is told with the return code."""
    try:
        answer = work()
    except rollouts.ERRORS as error:
        answer = rollouts.failed(error)
    if answer.get("retcode"):
        __context__["retcode"] = 1
    return answer


def install_fleet(tgt="*", tgt_type="glob", minutes=5, interval=15, repository=None, test=False):
    """
    Checks what a fleet needs, and writes what is missing: the modules of minions in the file root of this master, its schedule (``sidle.go_on``), its reactor
    (``sidle.take_up``), the beacon of the minions, and a copy of a repository. Says what it changed, what was so, what failed, and what is left to do. May
    be called again.

    tgt, tgt_type
        The minions that get the modules and the beacon

    minutes
        How often the schedule looks for rollouts that nobody drives

    interval
        How often the beacon looks, in seconds

    repository
        A repository that is copied to ``salt://sidle/repo``, as ``sidle mirror`` does [default: none]

    test
        Change nothing

    .. code-block:: bash

        salt-run sidle.install_fleet test=True
        salt-run sidle.install_fleet 'web*' repository=https://repo.example/sidle
    """
    own = rollouts.Rollouts(__opts__)
    return _answered(lambda: installing.Installing(__opts__, own.ask, test is True).run((tgt, tgt_type), minutes, interval, repository))


def report(name):
    """
    Writes the page and the file of a rollout again, as its record is now, and signs the file; says where they are. Orders nobody. A rollout that a runner drives
    has them at its next halt, and at its end.

    .. code-block:: bash

        salt-run sidle.report salt-minion-3007.17-1-20261124-091200
    """
    return _answered(lambda: rollouts.Rollouts(__opts__).report(str(name)))
