"""Tensors' bytes read from their shards into memory that is given, many at once; knows files, no model and no MLX."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import NamedTuple

import numpy as np

from tensorfold.checkpoint.files import ShardFile
from tensorfold.checkpoint.table import THREADS

PART = 2**22  # bytes that a thread reads at a time: large tensors are shared by threads, small ones share a thread


class Piece(NamedTuple):
    """A tensor of bytes where it lies in its shard."""

    file: ShardFile
    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape))


Read = tuple[ShardFile, memoryview, int, str]
Wanted = Sequence[tuple[Piece, np.ndarray]]


class Reading:
    """Reads on their way; nobody may use their memory, or give it to others, before `wait` came back."""

    def __init__(self, files: set[ShardFile], begun: float, jobs: list[Future[float]]) -> None:
        self._files, self._begun, self._jobs = files, begun, jobs

    def wait(self) -> tuple[float, float]:
        """Comes back when every read has ended: seconds from the begin to the last one's end, and how many of them were
        spent here.

        Raises CheckpointError if one failed, or if a file was cut, written to or replaced."""
        came = time.perf_counter()
        wait(self._jobs)
        ends = [job.result() for job in self._jobs]
        for file in self._files:
            file.check()
        end = max(ends, default=self._begun)
        return end - self._begun, max(0.0, end - came)


class PieceReader:
    """Threads that read, which start when they are first needed."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def begin(self, wanted: Wanted) -> Reading:
        """Starts to fill each flat uint8 array with its piece."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "tensorfold-pieces")
        files = {piece.file for piece, _ in wanted}
        for file in files:
            file.scattered()  # reading ahead of an expert reads a neighbour that nobody asked for
        begun, jobs = time.perf_counter(), list[Future[float]]()
        try:
            jobs += (self._pool.submit(_run, job) for job in _jobs(wanted))
        except BaseException:
            wait(jobs)
            raise
        return Reading(files, begun, jobs)

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _run(job: list[Read]) -> float:
    for file, out, start, what in job:
        file.read_into(out, start, what)
    return time.perf_counter()


def _jobs(wanted: Wanted) -> Iterator[list[Read]]:
    """Reads of at most PART bytes, gathered to jobs of about as many."""
    job, size = list[Read](), 0
    for piece, out in wanted:
        flat = out.data
        if len(flat) != piece.nbytes:
            raise ValueError(f"tensor {piece.name}: {piece.nbytes} bytes do not go into {len(flat)}")
        for at in range(0, piece.nbytes, PART):
            part = flat[at : at + PART]
            job.append((piece.file, part, piece.start + at, f"tensor {piece.name}"))
            size += len(part)
            if size >= PART:
                yield job
                job, size = [], 0
    if job:
        yield job
