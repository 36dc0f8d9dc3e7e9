"""Waits until Salt has imported what the guard wraps: nothing of Salt is imported earlier for it."""

import sys
from importlib.machinery import PathFinder


def install(slot, counts):
    """Watch for Salt's modules; each is handed over once it is complete. `counts`: whether uses are counted."""
    from . import mantle, paths, wraps

    own_paths = paths.Paths(slot)
    sys.meta_path.insert(0, _Watcher({
        "salt.config": lambda module: paths.wrap_config(module, own_paths),
        "salt.utils.process": lambda module: mantle.wrap(module, own_paths),
        "salt.minion": lambda module: wraps.wrap_manager(module, slot, own_paths, counts),
    }))


class _Watcher:
    """A finder that finds nothing by itself: it only adds an act to what the others find."""

    def __init__(self, acts):
        self.acts = acts

    def find_spec(self, name, path=None, target=None):
        """Called by Python for every import; adds the act for a watched name."""
        act = self.acts.pop(name, None)
        if not self.acts and self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target) if act else None
        if spec is None or spec.loader is None:
            return None
        complete = spec.loader.exec_module

        def exec_module(module):
            complete(module)
            act(module)

        spec.loader.exec_module = exec_module
        return spec
