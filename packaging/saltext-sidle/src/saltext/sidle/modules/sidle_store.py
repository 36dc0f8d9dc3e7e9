"""
Execution module for ``sidle``: what lies on this host, and what it trusts. Its functions are called ``sidle.…``, as those of the first file.
"""

import importlib
import os

try:
    import _sidle_program as sidle_program
except ImportError:
    # Whoever imports the installed package, and not Salt's loader: its pages.
    from saltext.sidle.modules import _sidle_program as sidle_program
else:
    # After a sync a minion that runs has the module of before.
    importlib.reload(sidle_program)

__virtualname__ = "sidle"


def __virtual__():
    return __virtualname__


def _sidle():
    return sidle_program.Minion(__opts__, __salt__, __context__)


def uses(package=None, instance=None):
    """
    Shows which functions of which modules this minion has called: how often, on how many days, and when last. The runner's function ``sidle.uses`` adds up a
    fleet's.

    .. code-block:: bash

        salt '*' sidle.uses
    """
    return _sidle().run("uses", [_sidle().package(package)], instance=instance)


def verify(package=None, release=None, full=None):
    """
    Compares the files of a release (or all) with the signed manifest. Code 6: a file differs.

    full
        Hash every file, also files that look unchanged

    .. code-block:: bash

        salt '*' sidle.verify full=True
    """
    return _sidle().run("verify", [_sidle().package(package), release], full=full)


def repair(package=None, release=None, full=None, source=None, offline=None, repository=None, rate=None, refetch=None, test=None):
    """
    Repairs damaged files: from other releases, a bundle file (source) or the repository.

    offline
        Fetch nothing

    repository, rate, refetch
        As for ``sidle.install``

    .. code-block:: bash

        salt '*' sidle.repair
        salt '*' sidle.repair full=True repository=salt://sidle/repo
    """
    if source is None and not offline:
        repository = repository or _sidle().option("repository")
    return _sidle().run(
        "repair",
        [_sidle().package(package), release],
        full=full,
        from_=source,
        offline=offline,
        repository=repository,
        rate=rate,
        refetch=refetch,
        dry_run=_sidle().dry(test),
    )


def collect(package=None, keep=None, test=None):
    """
    Deletes old releases; keeps current, previous, each release in use, and the newest ``keep`` others.

    .. code-block:: bash

        salt '*' sidle.collect keep=1
    """
    return _sidle().run("collect", [package], keep=keep, dry_run=_sidle().dry(test))


def remove(package=None, release=None, test=None):
    """
    Deletes one release that is neither current, nor previous, nor in use.

    .. code-block:: bash

        salt '*' sidle.remove release=3006.30-1
    """
    return _sidle().run("remove", [_sidle().package(package), release], dry_run=_sidle().dry(test))


def trust():
    """
    Shows what this host trusts: the fingerprint of the repository's first root, and the newest metadata.

    .. code-block:: bash

        salt '*' sidle.trust
    """
    return _sidle().run("trust show")


def pin(source, fingerprint, test=None):
    """
    Trusts the repository of this root.json.

    source
        A ``root.json`` or a bundle: on this host, or ``salt://…``

    fingerprint
        SHA-256 of the repository's ``1.root.json``, from its owner

    .. code-block:: bash

        salt '*' sidle.pin salt://sidle/1.root.json 3f1c…
    """
    cached = __salt__["cp.cache_file"](source) if source.startswith("salt://") else source
    return _sidle().run("trust pin", [cached or source], fingerprint=fingerprint, dry_run=_sidle().dry(test))


def check_settings(content):
    """
    Returns None if sidle can read these settings (text of ``sidle.toml``), else what is wrong with them.

    .. code-block:: bash

        salt web17 sidle.check_settings 'keep_extra = 2'
    """
    path = __salt__["temp.file"](suffix=".toml", prefix="sidle")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        # Reads the settings, and changes nothing; whether there is something to collect is not asked.
        answer = _sidle().run("collect", config=path, dry_run=True)
        # What is asked here has an answer, also where the settings are wrong.
        __context__.pop("retcode", None)
    finally:
        os.remove(path)
    return answer["error"]["message"].replace(path, "the settings") if answer["code"] == sidle_program.USAGE else None
