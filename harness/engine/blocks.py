"""Blocks of a KV cache: counted, shared by equal prefixes, evicted oldest first. No clock, no I/O."""

from collections.abc import Hashable, Iterable, Sequence


def prefix_hashes(words: Sequence[Hashable], block_size: int) -> tuple[int, ...]:
    """One hash per full block of a prompt; each also stands for everything before it (a chain)."""
    hashes: list[int] = []
    parent = 0
    for start in range(0, len(words) - block_size + 1, block_size):
        parent = hash((parent, tuple(words[start : start + block_size])))
        hashes.append(parent)
    return tuple(hashes)


class Blocks:
    """A fixed number of blocks. A block is unused, private to a sequence, or published under its prefix hash.

    A published block nobody holds is idle: it can be shared again, or is evicted when a private one is needed.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._unused = total
        self._holders: dict[int, int] = {}
        self._idle: dict[int, None] = {}
        """In order of release: the first is the next to go."""

    @property
    def free(self) -> int:
        """Blocks that can be taken now."""
        return self._unused + len(self._idle)

    def take(self, count: int) -> bool:
        """Make this many blocks private to the caller, or take none and say False."""
        if count > self._unused + len(self._idle):
            return False
        while self._unused < count:
            oldest = next(iter(self._idle))
            del self._idle[oldest], self._holders[oldest]
            self._unused += 1
        self._unused -= count
        return True

    def matched(self, prefix: Iterable[int]) -> int:
        """How many leading blocks of this prefix are published."""
        count = 0
        for block in prefix:
            if block not in self._holders:
                break
            count += 1
        return count

    def share(self, block: int) -> None:
        """Hold one more share of a published block."""
        self._holders[block] += 1
        self._idle.pop(block, None)

    def publish(self, block: int) -> None:
        """Turn one of the caller's private blocks into a share of this one; a second copy is given back."""
        if block in self._holders:
            self.share(block)
            self._unused += 1
        else:
            self._holders[block] = 1

    def release(self, private: int, shared: Sequence[int]) -> None:
        """Give back everything a sequence held. The end of a prefix is evicted before its beginning."""
        self._unused += private
        for block in reversed(shared):
            self._holders[block] -= 1
            if not self._holders[block]:
                self._idle[block] = None
