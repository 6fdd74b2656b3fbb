"""Memory: what a load will take, decided before anything is allocated, and what a loaded model holds; computes nothing.

Weights and caches lie in the memory that the device computes from, Engram tables that were copied in that of the host;
on a CPU and on Metal both are the same memory.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from tensorfold.backend.pool import shares_memory
from tensorfold.checkpoint.reader import MAPPED as AS_IT_LIES
from tensorfold.checkpoint.reader import STREAMED, Checkpoint
from tensorfold.description import COPIED, DISK, MAPPED, Description, Kind, cache_sizes, kinds, place, size, table
from tensorfold.engine.engine import CapacityError, Engine
from tensorfold.network.engram import EngramTables
from tensorfold.network.streaming import ExpertPool
from tensorfold.state.caches import PAGE_TOKENS

ENGRAM, EXPERTS = ("auto", "disk", "ram"), ("auto", "mapped", "streamed")
EASY = 0.5  # share of the memory within which Engram tables fit easily
# share of the memory left that experts take by themselves: a host has other work, a device less of it
HOST_SHARE, DEVICE_SHARE = 0.75, 0.9


def total_bytes() -> int | None:
    """Memory that weights and caches can take; None where nobody can tell."""
    physical = host_bytes()
    if mx.default_device() == mx.Device(mx.cpu):
        return physical
    info = mx.device_info()
    most = info.get("max_recommended_working_set_size", info.get("total_memory", info.get("memory_size")))
    if not isinstance(most, int) or most <= 0:
        return None if separate() else physical
    return most if separate() or physical is None else min(most, physical)


def host_bytes() -> int | None:
    """Memory of the machine; None where nobody can tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def separate() -> bool:
    """Whether the device has memory of its own beside the host's."""
    return not shares_memory()


def private_bytes() -> int | None:
    """Memory of this process that no file can give back; None where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("RssAnon:")]
    return 1024 * int(found[0][1]) if found else None


@dataclass(frozen=True)
class Resident:
    """A model of this process and what it takes: bytes of the memory that the device computes from, and of the host's
    where that is another."""

    path: Path
    nbytes: int
    host: int = 0


@dataclass(frozen=True)
class LoadPlan:
    """What a load takes, decided and found to fit. weights: by part, how they will be held. engram: "disk", "ram", or
    "none" without such layers. experts: "mapped", all routed experts held as the other weights are, or "streamed", with
    room for `expert_entries` of them. needs: bytes of weights, slots and the first page, and of Engram tables in the
    same memory. wired: bytes that the device uses when a slot has grown to its context. total: what there is beside
    other models, or None. resident: what later loads find taken."""

    weights: tuple[Kind, ...]
    engram: str
    experts: str
    expert_entries: int
    max_slots: int
    max_context: int | None
    needs: int
    wired: int
    total: int | None
    resident: Resident


def plan(
    about: Description, max_slots: int, max_context: int | None, engram: str = "auto", experts: str = "auto",
    expert_bytes: int | None = None, *, others: Sequence[Resident] = (),
) -> LoadPlan:  # fmt: skip
    """Decides where Engram tables and routed experts go, beside `others`; raises CapacityError, naming what fits, for
    what cannot."""
    whole, one = total_bytes(), about.expert_bytes
    total = None if whole is None else whole - sum(o.nbytes for o in others)
    if expert_bytes is not None and expert_bytes < one:
        raise CapacityError(
            f"expert_bytes={expert_bytes} has no room for one routed expert of {about.path}, which is {one} bytes: "
            f"from {one} up it works, {about.routed_bytes} hold all {about.routed_experts}"
        )
    streamed = experts == "streamed" or (experts == "auto" and total is not None and about.needs(1) > total)
    pool = min(expert_bytes or one, about.routed_bytes) if streamed else None
    need = _Need(about, max_slots, total, pool, others=others)
    where = _engram(need, engram)
    need.shared = about.disk_bytes if where == "ram" and not separate() else 0
    _check_weights(need)
    _check_slots(need)
    if max_context is not None:
        _check_context(need, max_context)
    context, slots = max_context or about.config.max_position_embeddings, 0
    if need.pool is not None:
        fits = need.pool if expert_bytes else need.by_default(max_context)
        need.pool = min(fits, _largest_array(), about.routed_bytes)
        slots = need.pool // one
        need.pool = slots * one
    grown = need(context) - need.shared
    how = "mapped" if need.pool is None else "streamed"
    in_host = about.disk_bytes if where == "ram" and separate() else 0
    resident = Resident(about.path, need(max_context or 1), in_host)
    return LoadPlan(about.parts, where, how, slots, max_slots, max_context, need(1), grown, total, resident)


def _there_is(left: int, taken: int) -> str:
    return f"this machine has {size(left + taken)}" + (f", of which {size(left)} are left" if taken else "")


def _largest_array() -> int:
    """Bytes of the largest array that the device takes."""
    most = mx.device_info().get("max_buffer_length") if mx.metal.is_available() else None
    return most if isinstance(most, int) and most > 0 else 2**62


@dataclass
class _Need:
    """Bytes that weights and caches of `max_slots` slots take, with `pool` bytes for routed experts, or None for all of
    them; `shared` are those of Engram tables in the same memory."""

    about: Description
    max_slots: int
    total: int | None
    pool: int | None
    shared: int = 0
    others: Sequence[Resident] = ()

    def __call__(self, tokens: int, slots: int | None = None) -> int:
        """One of the slots holds so many tokens."""
        others = ((slots or self.max_slots) - 1) * self.about.slot_bytes
        return self.about.needs(tokens) - self.left_out + others + self.shared

    @property
    def there_is(self) -> str:
        """The machine's memory in words."""
        return _there_is(self.total or 0, sum(o.nbytes for o in self.others))

    @property
    def closing(self) -> list[str]:
        """What models that are open would give back, in words."""
        names = ", ".join(sorted({str(o.path) for o in self.others}))
        taken = size(sum(o.nbytes + o.host for o in self.others))
        return [f"closing what is open in this process ({names}) gives back {taken}"] if names else []

    @property
    def left_out(self) -> int:
        """Bytes of weights that stay in their files."""
        return 0 if self.pool is None else self.about.routed_bytes - self.pool

    def by_default(self, context: int | None) -> int:
        """Bytes for experts when none were asked for: a share of what a grown slot leaves; a context that nobody asked
        for may take half of what is left."""
        if self.total is None:
            raise CapacityError('the memory of this machine is not known: experts="streamed" needs expert_bytes')
        share = HOST_SHARE if mx.default_device() == mx.Device(mx.cpu) else DEVICE_SHARE
        least = self.pool or 0
        left = self.total + least - self(context or self.about.config.max_position_embeddings)
        if context is None:
            left = max(left, (self.total + least - self(1)) // 2)
        return max(int(share * left), least)


def _engram(need: _Need, asked: str) -> str:
    about, tables = need.about, need.about.disk_bytes
    if not tables:
        return "none"
    taken = sum(o.host if separate() else o.nbytes for o in need.others)
    whole = host_bytes() if separate() else total_bytes()
    host = None if whole is None else whole - taken
    others = 0 if separate() else need(1)
    if asked == "auto":
        easy = host is not None and others + tables <= EASY * host
        return "ram" if easy and need.pool is None else "disk"  # memory that is left goes to experts first
    if asked == "ram" and host is not None and others + tables > host:
        beside = "" if separate() else f" beside {size(others)} of weights and slots"
        ways = ['engram="disk" reads rows from the files as tokens ask', *need.closing]
        raise CapacityError(
            f'engram="ram" needs {size(tables)} for the Engram tables of {about.path}{beside}, '
            f"and {_there_is(host, taken)}: {'; '.join(ways)}"
        )
    return asked


def _check_weights(need: _Need) -> None:
    about, total = need.about, need.total
    if total is None or need(1, 1) <= total:
        return
    ways, least = [], need(1, 1) - (about.routed_bytes if need.pool is None else need.pool)
    room = (total - least) // about.expert_bytes
    if room > 0 and need.pool is None:
        ways.append(
            f'experts="streamed" keeps up to {room} of the {about.routed_experts} routed experts in memory and reads '
            "the others as tokens ask"
        )
    elif room > 0:
        ways.append(f"expert_bytes of at most {total - least} fits")
    if about.drafter:
        ways.append("draft=False leaves the drafter out")
    ways += need.closing
    held = "" if need.pool is None else f", with {size(need.pool)} of routed experts in memory"
    raise CapacityError(
        f"{about.path} needs {size(need(1, 1))} of memory for its weights and one slot{held}, "
        f"and {need.there_is}{': ' if ways else ''}{'; '.join(ways)}"
    )


def _check_slots(need: _Need) -> None:
    total = need.total
    if total is None or need(1) <= total:
        return
    fits = 1 + (total - need(1, 1)) // need.about.slot_bytes
    raise CapacityError(
        f"max_slots={need.max_slots} needs {size(need(1))} of memory with the weights, and {need.there_is}: "
        + "; ".join([f"max_slots of at most {fits} fits{_or_streamed(need)}", *need.closing])
    )


def _check_context(need: _Need, context: int) -> None:
    total = need.total
    if total is None or need(context) <= total:
        return
    fits = need.about.tokens_in(total - (need(1) - need.about.needs(1)))
    raise CapacityError(
        f"max_context={context} needs {size(need(context))} of memory with the weights, and {need.there_is}: "
        + "; ".join([f"a context of at most {fits} fits{_or_streamed(need)}", *need.closing])
    )


def _or_streamed(need: _Need) -> str:
    return ', or experts="streamed" makes room' if need.pool is None else ""


@dataclass(frozen=True)
class MemoryUse:
    """What a loaded model holds, in bytes; `repr` of it is a table.

    weights: by part, with how they are held ("mapped", "copied" or "disk") and why. slots, pages: how many the caches
    have room for; slot_bytes, page_bytes: one slot before its first token, and each 128 tokens of a slot.
    prefix_bytes: kept prompt beginnings. expert_bytes: room for streamed experts. engram_bytes: Engram tables or rows
    held in the host's memory. private_bytes: of the whole process, what no file can give back; None where the system
    does not tell. device: "cpu" or "gpu".
    """

    weights: tuple[Kind, ...]
    slots: int
    pages: int
    slot_bytes: int
    page_bytes: int
    prefix_bytes: int
    expert_bytes: int
    engram_bytes: int
    private_bytes: int | None
    device: str

    @property
    def mapped_bytes(self) -> int:
        """Weights that are used where they lie in the mapped file."""
        return self._held(MAPPED)

    @property
    def copied_bytes(self) -> int:
        """Weights that were copied out of the file."""
        return self._held(COPIED)

    @property
    def disk_bytes(self) -> int:
        """Weights that stay in the file; rows, or streamed experts, are read as tokens ask."""
        return self._held(DISK)

    @property
    def cache_bytes(self) -> int:
        """Caches of all slots, as allocated now."""
        return (self.slots + 1) * self.slot_bytes + self.pages * self.page_bytes  # a ring of every kind is nobody's

    @property
    def bytes_per_1k_tokens(self) -> int:
        """Caches of 1000 tokens of context."""
        return 1000 * self.page_bytes // PAGE_TOKENS

    def _held(self, how: str) -> int:
        return sum(kind.nbytes for kind in self.weights if kind.held == how)

    def __repr__(self) -> str:
        private = "the system does not tell" if self.private_bytes is None else size(self.private_bytes)
        lines = [
            f"Memory on the {self.device}", table(self.weights),
            f"weights: {size(self.mapped_bytes)} mapped, {size(self.copied_bytes)} copied, {size(self.disk_bytes)} "
            f"on disk; {size(self.engram_bytes)} of Engram rows in memory, {size(self.expert_bytes)} for streamed "
            "experts",
            f"caches: {size(self.cache_bytes)} for {self.slots} slots and {self.pages} pages; {size(self.slot_bytes)} "
            f"a slot and {size(self.bytes_per_1k_tokens)} per 1000 tokens; kept beginnings {size(self.prefix_bytes)}",
            f"private memory of the process: {private}",
        ]  # fmt: skip
        return "\n".join(lines)


def memory_use(checkpoint: Checkpoint, engine: Engine, engram: EngramTables, pool: ExpertPool | None) -> MemoryUse:
    """Counts what a loaded model's parts hold; reads no array."""
    taken, items = checkpoint.taken(), []
    for name in checkpoint.names:
        why = taken.get(name, "not used")
        part, held, reason = place(name, None if why == AS_IT_LIES else why)
        if why == STREAMED:
            held = DISK
        elif held == DISK and engram.in_memory_bytes:
            held, reason = COPIED, 'engram="ram"'
        items.append((part, held, reason, checkpoint.nbytes(name)))
    caches = engine.memory.caches
    return MemoryUse(
        kinds(items), caches.slots, caches.pages, *cache_sizes(checkpoint.config, checkpoint.has_drafter),
        engine.prefixes.nbytes, 0 if pool is None else pool.nbytes, engram.in_memory_bytes + engram.cache_bytes,
        private_bytes(),
        "cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu",
    )  # fmt: skip
