"""
Runner for ``sidle``: what a fleet uses. Its function is called ``sidle.uses``, as those of the first file.
"""

import os
import sys

try:
    import saltext.sidle.fleet.rollouts  # noqa: F401
except ImportError:
    # `runner_dirs` names this directory in a copy of the extension.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))

from saltext.sidle.fleet import rollouts
from saltext.sidle.fleet import uses as counted

__virtualname__ = "sidle"


def __virtual__():
    return __virtualname__


def uses(tgt="*", tgt_type="glob", package=None, format="text", file=None):
    """
    Shows which functions the minions of a target have called: on how many hosts, how often, and when last. Asks each of them; changes nothing.

    tgt, tgt_type
        As for a job

    format
        ``text`` or ``data``

    file
        Write it to this file of the directory ``files`` instead; ``data`` is written as JSON, which ``sidle pack --suggest-extras OLD NEW --uses FILE`` reads

    .. code-block:: bash

        salt-run sidle.uses
        salt-run sidle.uses 'web*' format=data file=uses.json
    """
    try:
        return counted.show(__opts__, rollouts.Rollouts(__opts__), (tgt, tgt_type), package, format, file)
    except (*rollouts.ERRORS, counted.UsesError) as error:
        __context__["retcode"] = 1
        return rollouts.failed(error)
