"""Rows of a tensor that stays in its file, many read at once; knows files and rows, no model and no MLX."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tensorfold.checkpoint.files import ShardFile
from tensorfold.checkpoint.headers import Entry

THREADS = 16  # reads in flight: a disk serves many at once, and a reading thread lets the others run
PART = 16  # rows a thread reads at a time
SLOW = 3e-5  # seconds a read, above which it came from the disk
BLOCK = 2**24


class Table:
    """[rows, width] bytes in one shard. A row that cannot be read, or that a cut or changed file would give, is a
    CheckpointError naming file and tensor."""

    def __init__(self, file: ShardFile, name: str, entry: Entry) -> None:
        if len(entry.shape) != 2 or entry.end - entry.start != entry.shape[0] * entry.shape[1]:
            raise ValueError(f"{name}: {entry.dtype} {list(entry.shape)} is not a table of bytes")
        self.shape = entry.shape
        self._file, self._start, self._what = file, entry.start, f"tensor {name}"

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.shape[1]

    def read(self, rows: Sequence[int]) -> list[bytes]:
        """Each of `rows`, one read after another, without `check`."""
        width, start = self.shape[1], self._start
        return self._file.read_each([start + row * width for row in rows], width, self._what)

    def check(self) -> None:
        """Raises CheckpointError if the file is not the one that was verified any more."""
        self._file.check()

    def load(self) -> np.ndarray:
        """The whole table in private memory, uint8 [rows, width], read-only; read in parallel."""
        out = np.empty(self.shape, np.uint8)
        flat = out.reshape(-1).data
        with ThreadPoolExecutor(THREADS, "tensorfold-read") as pool:
            jobs = [
                pool.submit(self._file.read_into, flat[at : at + BLOCK], self._start + at, self._what)
                for at in range(0, self.nbytes, BLOCK)
            ]
            for job in jobs:
                job.result()
        self.check()
        out.setflags(write=False)
        return out


class RowPool:
    """Reads rows of several tables at once with threads of its own, which start when they are first needed."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def read(self, wanted: Sequence[tuple[Table, Sequence[int]]]) -> list[list[bytes]]:
        """The rows of each pair of table and row numbers, in order.

        What the system has in memory is read quickest by one thread; the first part that takes a disk's time sends the
        others to all threads at once."""
        jobs = [(i, table, part) for i, (table, rows) in enumerate(wanted) for part in _parts(rows)]
        read: list[list[bytes]] = []
        for _, table, part in jobs:
            begun = time.perf_counter()
            read.append(table.read(part))
            if time.perf_counter() - begun > SLOW * len(part) and len(jobs) - len(read) > 1:
                break
        if self._pool is None and len(read) < len(jobs):
            self._pool = ThreadPoolExecutor(self._threads, "tensorfold-rows")
        if self._pool is not None and len(read) < len(jobs):
            read += self._pool.map(lambda job: job[1].read(job[2]), jobs[len(read) :])
        out: list[list[bytes]] = [[] for _ in wanted]
        for (i, _, _), rows in zip(jobs, read):
            out[i] += rows
        for table, _ in wanted:
            table.check()
        return out

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _parts(rows: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(rows), PART):
        yield rows[at : at + PART]
