"""
Wrapper of ``salt-ssh`` for ``sidle``: the execution module on hosts without a minion.

.. code-block:: bash

    salt-ssh web17 sidle.status
    salt-ssh web17 sidle.install salt://sidle/salt-minion-3007.17.sidle
    salt-ssh web17 sidle.switch release=3007.17-1 wait=True

``salt-ssh`` brings the :py:mod:`execution module <saltext.sidle.modules.sidle>`, the state module and the grain to the host, and runs them there. The host
needs the program ``sidle``, and no configuration: the roster's ``minion_opts`` may have what the minion's configuration has otherwise. ``salt-ssh`` keeps
the grains of a host for five minutes, also the grain ``sidle``; ``minion_opts: {grains_cache: False}`` reads them at each call.

This module has only the functions that may need a file of the master: what runs on the host cannot ask a master for one.
"""

import posixpath

import salt.client.ssh.wrapper
from salt.exceptions import CommandExecutionError

__virtualname__ = "sidle"

#: Exit codes of the program that are no failures, as in the execution module.
SUCCESSES = (0, 3, 4)


def __virtual__():
    return __virtualname__


def install(source=None, **options):
    """
    Installs as :py:func:`sidle.install <saltext.sidle.modules.sidle.install>`. A bundle of the master is copied to the host, and is deleted there afterwards.

    .. code-block:: bash

        salt-ssh web17 sidle.install salt://sidle/salt-minion-3007.17.sidle
    """
    return _with_file("sidle.install", source, options)


def pin(source, fingerprint, **options):
    """
    Pins as :py:func:`sidle.pin <saltext.sidle.modules.sidle.pin>`.

    .. code-block:: bash

        salt-ssh web17 sidle.pin salt://sidle/1.root.json 3f1c…
    """
    return _with_file("sidle.pin", source, {"fingerprint": fingerprint, **options})


def _with_file(function, source, options):
    # Salt adds names of its own.
    options = {name: value for name, value in options.items() if not name.startswith("__")}
    if source is None or not source.startswith("salt://"):
        return _on_host(function, source=source, **options)
    # Below the tree of salt-ssh, which belongs to the user that it logs in as.
    there = posixpath.join(__opts__["cachedir"], "sidle", posixpath.basename(source))
    if not __salt__["cp.list_master"](prefix=source[len("salt://") :]):
        hint = "`salt-run fileserver.file_list` lists the master's files"
        return _answered({"code": 1, "error": {"class": "failed", "code": 1, "message": f"cannot find {source} on the master", "hint": hint}})
    if not __salt__["cp.get_file"](source, there, makedirs=True):
        raise CommandExecutionError(f"cannot copy {source} to {there} on this host: it may lack space, or the right to write there")
    try:
        return _on_host(function, source=there, **options)
    finally:
        __salt__["file.remove"](there)


def _on_host(function, **options):
    """Calls the function of the host itself; through ``__salt__`` it would be this module's again."""
    about = dict(__salt__.kwargs)
    host = salt.client.ssh.wrapper.FunctionWrapper(
        __opts__, about.pop("id_"), about.pop("host"), mods=__salt__.mods, fsclient=__salt__.fsclient, minion_opts=__salt__.minion_opts, **about
    )
    try:
        answer = host[function](**options)
    except CommandExecutionError as error:
        # From 3007 on, what has an exit code other than 0 is an exception that carries the answer.
        answer = ((getattr(error, "parsed", None) or {}).get("local") or {}).get("return")
        if not isinstance(answer, dict):
            raise
    return _answered(answer)


def _answered(answer):
    code = answer.get("code", 1)
    if code not in SUCCESSES:
        __context__["retcode"] = code
    return answer
