"""
Runner for ``sidle``: what a rollout leaves behind. Its function is called ``sidle.report``, as those of the first file.

Configuration of the master, all optional:

.. code-block:: yaml

    sidle:
      reports: /srv/sidle/reports              # page and file of each rollout; default: sidle/reports below the master's cachedir
      on_halt: [/usr/local/sbin/call-oncall]   # runs at each halt, with what is known as JSON on its standard input
      sign: /etc/sidle/keys/targets.pem        # signs the file of each rollout, as `sidle key sign` does; also ssh-agent:NAME or exec:COMMAND
      program: /usr/bin/sidle                  # the program that signs
"""

import os
import sys

try:
    import saltext.sidle.fleet.rollouts  # noqa: F401
except ImportError:
    # `runner_dirs` names this directory in a copy of the extension.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from saltext.sidle.fleet import rollouts

__virtualname__ = "sidle"


def __virtual__():
    return __virtualname__


def report(name):
    """
    Writes the page and the file of a rollout again, as its record is now, and signs the file; says where they are. Orders nobody. A rollout that a runner drives
    has them at its next halt, and at its end.

    .. code-block:: bash

        salt-run sidle.report salt-minion-3007.17-1-20261124-091200
    """
    try:
        answer = rollouts.Rollouts(__opts__).report(str(name))
    except rollouts.ERRORS as error:
        answer = rollouts.failed(error)
    if answer.get("retcode"):
        __context__["retcode"] = 1
    return answer
