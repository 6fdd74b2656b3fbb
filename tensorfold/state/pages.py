"""Pages of compressed rows, counted by how many slots and snapshots hold them; knows numbers of pages, no arrays."""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.state.caches import SPARE_PAGE


class Pages:
    """Hands out page numbers but the caches' spare one; a page returns when its last holder lets go."""

    def __init__(self, count: int):
        self._held = [0] * count
        self._free = list(range(count - 1, SPARE_PAGE, -1))

    @property
    def count(self) -> int:
        return len(self._held)

    @property
    def free(self) -> int:
        return len(self._free)

    def add(self, more: int) -> None:
        """Makes `more` further pages known."""
        first = len(self._held)
        self._held += [0] * more
        self._free = list(range(first + more - 1, first - 1, -1)) + self._free

    def take(self) -> int:
        """A free page, held once. Raises MemoryError when there is none: grow the caches first."""
        if not self._free:
            raise MemoryError(f"all {self.count} cache pages are held: close a slot or make room first")
        page = self._free.pop()
        self._held[page] = 1
        return page

    def hold(self, pages: Sequence[int]) -> None:
        """One more holder for each of `pages`."""
        for page in pages:
            self._held[page] += 1

    def drop(self, pages: Sequence[int]) -> None:
        """One holder less for each of `pages`."""
        for page in pages:
            self._held[page] -= 1
            if self._held[page] == 0:
                self._free.append(page)
            elif self._held[page] < 0:
                raise RuntimeError(f"cache page {page} was let go more often than it was held")

    def shared(self, page: int) -> bool:
        """Whether more than one holder reads `page`, so that it must not be written."""
        return self._held[page] > 1
