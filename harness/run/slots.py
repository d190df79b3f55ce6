"""Numbers for what runs side by side: each new one gets the lowest that is free. Pure."""

import heapq


class Slots:
    """The numbers in use never exceed the most that were in use at once. Mutable."""

    def __init__(self) -> None:
        self._freed: list[int] = []
        self._given = 0

    def take(self) -> int:
        """The lowest free number, from 0."""
        if self._freed:
            return heapq.heappop(self._freed)
        self._given += 1
        return self._given - 1

    def free(self, number: int) -> None:
        """It is in use no more."""
        heapq.heappush(self._freed, number)
