"""Waits until Salt has imported what the guard wraps: nothing of Salt is imported earlier for it."""

import sys
from importlib.machinery import PathFinder


def install(seat):
    """Watch for Salt's modules; each is handed over once it is complete."""
    from . import places, wraps

    own_places = places.Places(seat)
    sys.meta_path.insert(0, _Watcher({
        "salt.config": lambda module: places.wrap_config(module, own_places),
        "salt.minion": lambda module: wraps.wrap_manager(module, seat, own_places),
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
