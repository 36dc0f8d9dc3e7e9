"""The minions of a rollout that wait for an order."""

from collections import deque

from .states import INSTALLING, ORDERED


class Waiting:
    """A queue for each wave and each order: minions that lack the release install first."""

    def __init__(self, waves):
        self._queues = {order: [deque() for _ in range(max(1, waves))] for order in (INSTALLING, ORDERED)}

    def __bool__(self):
        return any(queue for queues in self._queues.values() for queue in queues)

    def _of(self, host):
        return self._queues[INSTALLING if host["lacks"] else ORDERED][host["wave"]]

    def add(self, minion, host, first=False):
        """Adds a minion: as the next one of its wave, or after those that wait."""
        queue = self._of(host)
        (queue.appendleft if first else queue.append)(minion)

    def remove(self, minion, host):
        """Removes a minion that is not ordered any more."""
        self._of(host).remove(minion)

    def take(self, order, wave, most):
        """Takes up to so many minions for an order. Those that came late to an earlier wave go before those of this wave."""
        taken = []
        for queue in self._queues[order][: wave + 1]:
            while queue and len(taken) < most:
                taken.append(queue.popleft())
        return taken
