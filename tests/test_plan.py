"""The plan before a load: what cannot fit is refused before a weight is read, with the largest that fits."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest

import tensorfold
from tensorfold import CapacityError, Description, Model
from tensorfold.checkpoint.files import ShardFile
from tensorfold.memory import plan, total_bytes
from tensorfold.residents import Residents
from tensorfold.state.caches import Caches
from tensorfold.wired import WIRED, WiredLimit
from tests.support.goldens import EXAMPLE


@pytest.fixture(scope="module")
def about() -> Description:
    return tensorfold.describe(EXAMPLE)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives the machine so many bytes."""
    return lambda nbytes: monkeypatch.setattr("tensorfold.memory.total_bytes", lambda: nbytes)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of other tests that are still open are none of these machines' business."""
    monkeypatch.setattr("tensorfold.loading.RESIDENTS", Residents())


@pytest.fixture
def nothing_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((ShardFile, "read"), (ShardFile, "read_into"), (Caches, "__init__")):
        monkeypatch.setattr(owner, name, lambda *_: pytest.fail("read or allocated before the refusal"))


def refused(**options: Any) -> str:
    with pytest.raises(CapacityError) as caught:
        Model.load(EXAMPLE, **options)
    return str(caught.value)


def number_before_fits(message: str) -> int:
    return int(message.split("at most ")[1].split()[0])


def test_a_context_that_does_not_fit_names_the_largest(
    about: Description, machine: Any, nothing_is_allocated: None
) -> None:
    """Case 66: with 3 slots, whose rings are there from the start."""
    machine(about.needs(1000) + 2 * about.slot_bytes)
    fits = number_before_fits(refused(max_slots=3, max_context=4096, engram="disk"))
    assert 1000 <= fits < 1128
    plan(about, 3, fits, "disk")
    with pytest.raises(CapacityError):
        plan(about, 3, fits + 128, "disk")


def test_a_context_that_was_not_asked_for_is_not_refused(about: Description, machine: Any) -> None:
    """A slot grows as it needs; the largest context that fits loads and is what was asked for."""
    machine(about.needs(1000))
    Model.load(EXAMPLE, max_slots=1).close()
    with Model.load(EXAMPLE, max_slots=1, max_context=1000) as model:
        assert model.max_context == 1000


def test_slots_that_do_not_fit_name_the_most(about: Description, machine: Any, nothing_is_allocated: None) -> None:
    machine(about.needs(1) + 4 * about.slot_bytes + 7)
    assert number_before_fits(refused(max_slots=16)) == 5
    assert plan(about, 5, None).needs <= about.needs(1) + 4 * about.slot_bytes + 7
    with pytest.raises(CapacityError, match="at most 5 fits"):
        plan(about, 6, None)


def test_weights_that_do_not_fit_are_refused(machine: Any, nothing_is_allocated: None) -> None:
    machine(2**20)
    assert "draft=False leaves the drafter out" in refused()
    assert "draft=False" not in refused(draft=False)


def test_engram_goes_to_memory_where_it_fits_easily(about: Description, machine: Any) -> None:
    """Case 71: up to half of the memory in all, else to disk; an unknown memory counts as small."""
    whole = about.needs(1) + about.disk_bytes
    for nbytes, where in ((2 * whole, "ram"), (2 * whole - 2, "disk"), (None, "disk")):
        machine(nbytes)
        assert plan(about, 1, None).engram == where
    machine(whole - 1)
    with pytest.raises(CapacityError, match='engram="disk" reads rows from the files'):
        plan(about, 1, None, "ram")
    assert plan(about, 1, None, "disk").engram == "disk"
    machine(whole)
    assert plan(about, 1, None, "ram").needs == whole
    with pytest.raises(CapacityError, match="at most 128 fits"):  # tables in memory leave no room for a second page
        plan(about, 1, 129, "ram")


def test_tables_count_against_the_host_where_the_device_has_its_own_memory(
    about: Description, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(about.needs(1))
    monkeypatch.setattr("tensorfold.memory.separate", lambda: True)
    monkeypatch.setattr("tensorfold.memory.host_bytes", lambda: 2 * about.disk_bytes)
    assert plan(about, 1, None).engram == "ram"
    assert plan(about, 1, None, "ram").needs == about.needs(1)
    monkeypatch.setattr("tensorfold.memory.host_bytes", lambda: about.disk_bytes - 1)
    assert plan(about, 1, None).engram == "disk"
    with pytest.raises(CapacityError, match="engram="):
        plan(about, 1, None, "ram")


def test_a_model_without_tables_needs_no_place_for_them(machine: Any, about: Description) -> None:
    machine(2**40)
    kept = ("parts", "config", "slot_bytes", "path", "drafter", "needs", "expert_bytes", "routed_bytes")
    without = SimpleNamespace(disk_bytes=0, **{k: getattr(about, k) for k in kept})
    for asked in ("auto", "disk", "ram"):
        assert plan(without, 1, None, asked).engram == "none"


@pytest.mark.parametrize("value", ["host", "RAM", "", None, True, 3])
def test_another_word_for_engram_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="engram=.*auto, disk, ram"):
        Model.load(EXAMPLE, engram=value)


# ---- routed experts


def test_experts_are_mapped_where_they_fit_and_streamed_elsewhere(about: Description, machine: Any) -> None:
    """To the byte; an unknown memory is taken to fit, and a pool is never larger than what it holds."""
    for nbytes, how in ((about.needs(1), "mapped"), (about.needs(1) - 1, "streamed"), (None, "mapped")):
        machine(nbytes)
        found = plan(about, 1, None)
        assert found.experts == how and (found.expert_entries > 0) == (how == "streamed")
        assert nbytes is None or found.needs <= nbytes
    machine(2**40)
    assert plan(about, 1, None, experts="streamed").expert_entries == about.routed_experts == 160
    assert plan(about, 1, None, expert_bytes=about.expert_bytes).experts == "mapped"


def test_mapped_experts_that_do_not_fit_are_refused_with_the_way_out(
    about: Description, machine: Any, nothing_is_allocated: None
) -> None:
    machine(about.needs(1) - 1)
    message = refused(experts="mapped")
    assert 'experts="streamed" keeps up to 159 of the 160 routed experts' in message
    machine(about.needs(1) - about.routed_bytes)
    for experts in ("mapped", "auto", "streamed"):
        message = refused(experts=experts)
        assert 'experts="streamed"' not in message and "draft=False leaves the drafter out" in message


def test_a_pool_takes_what_the_memory_leaves(about: Description, machine: Any) -> None:
    """A share of what a grown slot leaves of the memory; a budget is kept to whole experts, and counted."""
    rest, one = about.needs(1000) - about.routed_bytes, about.expert_bytes
    machine(int(rest + 20 * one / 0.75) + 2)
    found = plan(about, 1, 1000, experts="streamed")
    assert found.expert_entries == 20 and found.wired == rest + 20 * one
    found = plan(about, 1, None, "disk", "streamed", 7 * one + 1)
    assert found.expert_entries == 7 and found.needs == about.needs(1) - about.routed_bytes + 7 * one


def test_a_streamed_plan_counts_slots_context_and_tables_beside_its_pool(about: Description, machine: Any) -> None:
    one, rest = about.expert_bytes, about.needs(1000) - about.routed_bytes
    machine(rest + 5 * one)
    plan(about, 1, 1000, "disk", "streamed", 5 * one)
    with pytest.raises(CapacityError, match="context of at most 10.. fits"):
        plan(about, 1, 4096, "disk", "streamed", 5 * one)
    with pytest.raises(CapacityError, match="max_slots of at most"):
        plan(about, 16, None, "disk", "streamed", 5 * one)
    with pytest.raises(CapacityError, match="expert_bytes of at most"):
        plan(about, 1, None, "disk", "streamed", 100 * one)
    with pytest.raises(CapacityError, match="engram="):
        plan(about, 1, None, "ram", "streamed", 5 * one)
    machine(about.needs(1) + about.disk_bytes)
    assert plan(about, 1, None, "auto", "streamed").engram == "disk"  # experts first


def test_auto_loads_and_streams_on_a_machine_too_small_for_all(about: Description, machine: Any) -> None:
    machine(about.needs(1) - about.routed_bytes // 2)
    with Model.load(EXAMPLE, max_slots=1, prefix_bytes=0) as model:
        found = model.streaming
        assert found is not None and 0 < found.entries < found.experts == about.routed_experts
        assert model.memory().expert_bytes == found.entries * about.expert_bytes
        assert model.generate("def fib(n):", max_tokens=3).tokens


@pytest.mark.parametrize("value", ["resident", "MAPPED", "", None, True, 3])
def test_another_word_for_experts_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="experts=.*auto, mapped, streamed"):
        Model.load(EXAMPLE, experts=value)


def test_a_budget_that_holds_no_expert_is_refused_with_the_numbers(
    about: Description, nothing_is_allocated: None
) -> None:
    one = about.expert_bytes
    for experts in ("streamed", "auto"):
        with pytest.raises(ValueError, match=rf"expert_bytes={one - 1} .*{one} bytes.*{160 * one} hold all 160"):
            Model.load(EXAMPLE, experts=experts, expert_bytes=one - 1)
    for value, error in ((0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError), ("1", TypeError)):
        with pytest.raises(error, match="expert_bytes="):
            Model.load(EXAMPLE, experts="streamed", expert_bytes=value)
    with pytest.raises(ValueError, match="expert_bytes=.*mapped"):
        Model.load(EXAMPLE, experts="mapped", expert_bytes=one)


def test_streaming_without_a_budget_needs_to_know_the_memory(about: Description, machine: Any) -> None:
    machine(None)
    with pytest.raises(CapacityError, match="needs expert_bytes"):
        plan(about, 1, None, experts="streamed")
    assert plan(about, 1, None, "disk", "streamed", 3 * about.expert_bytes).expert_entries == 3


def test_this_machine_has_some_memory() -> None:
    total = total_bytes()
    assert total is None or total > 2**28


# ---- the wired limit


class System:
    """What mlx.core has of it: the limit, and every value that was set."""

    def __init__(self, available: bool, limit: int = 7, most: int = 100):
        self.metal = SimpleNamespace(is_available=lambda: available)
        self.limit, self.most, self.set = limit, most, list[int]()

    def device_info(self) -> dict[str, int]:
        return {"max_recommended_working_set_size": self.most}

    def set_wired_limit(self, limit: int) -> int:
        if limit > self.most:
            raise ValueError("more than the system's limit")
        before, self.limit = self.limit, limit
        self.set.append(limit)
        return before


def test_the_wired_limit_follows_open_models_and_comes_back() -> None:
    """Case 66: in whatever order they close, never above what the system allows."""
    for order in ((0, 1), (1, 0)):
        system = System(True)
        wired = WiredLimit(system)
        keys = [wired.hold(30), wired.hold(90)]
        assert system.set == [30, 100]
        wired.release(keys[order[0]])
        assert system.limit == (90, 30)[order[0]]
        wired.release(keys[order[1]])
        wired.release(keys[order[1]])
        assert system.limit == 7 and len(system.set) == 4
        wired.release(wired.hold(50))
        assert system.limit == 7


def test_a_larger_limit_of_somebody_else_stays() -> None:
    system = System(True, limit=60)
    wired = WiredLimit(system)
    key = wired.hold(10)
    assert system.limit == 60
    wired.release(key)
    assert system.limit == 60


def test_no_limit_is_set_without_metal() -> None:
    system = System(False)
    wired = WiredLimit(system)
    wired.release(wired.hold(30))
    assert system.set == []


def test_a_model_holds_its_bytes_wired_while_it_is_open(about: Description, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a load that fails lets them go."""
    system = System(True, most=10**12)
    monkeypatch.setattr(WIRED, "_api", system)
    model = Model.load(EXAMPLE, max_slots=2, max_context=600, engram="ram")
    assert system.limit == about.needs(600) + about.slot_bytes  # tables in the host's memory are no buffers
    model.close()
    assert system.limit == 7
    monkeypatch.setattr("tensorfold.loading.Caches", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Model.load(EXAMPLE)
    assert system.limit == 7 and len(system.set) == 4


def test_memory_tells_what_a_model_holds(about: Description) -> None:
    """Every byte of the text tensors in one group, the caches to the byte, and the parts add up."""
    with Model.load(EXAMPLE, max_slots=3, engram="disk") as model:
        empty = model.memory()
        model.generate("def fib(n):", max_tokens=5)
        used, caches = model.memory(), model._engine.memory.caches
        assert used.cache_bytes == caches.nbytes and used.slots == 3
        assert used.prefix_bytes == model._engine.prefixes.nbytes > 0
    assert sum(k.nbytes for k in used.weights) == about.resident_bytes + about.disk_bytes
    assert used.mapped_bytes + used.copied_bytes == about.resident_bytes and used.disk_bytes == about.disk_bytes
    assert (used.slot_bytes, used.page_bytes) == (about.slot_bytes, about.page_bytes)
    assert used.bytes_per_1k_tokens == about.bytes_per_1k_tokens
    assert empty.engram_bytes == 0 < used.engram_bytes
    assert not any(k.why == "not used" for k in used.weights)
    if not mx.metal.is_available():
        assert used.mapped_bytes == 0 and {k.held for k in used.weights} == {"copied", "disk"}
    text = repr(used)
    assert all(k.why in text for k in used.weights) and "per 1000 tokens" in text and "private memory" in text


def test_memory_says_so_when_the_tables_are_in_memory(about: Description) -> None:
    with Model.load(EXAMPLE, max_slots=1, engram="ram") as model:
        used = model.memory()
    assert used.disk_bytes == 0 and used.engram_bytes == about.disk_bytes
    assert ("Engram tables", "copied", 'engram="ram"') in {(k.name, k.held, k.why) for k in used.weights}
    with pytest.raises(RuntimeError, match="closed"):
        model.memory()


# ---- several models in one process


def test_open_models_are_counted_together(about: Description, machine: Any) -> None:
    """A second model is planned with what the first leaves; the refusal names the first, and closing it is the way."""
    machine(9 * about.needs(1) // 5)
    with Model.load(EXAMPLE, max_slots=1):
        message = refused(max_slots=1, experts="mapped")
        assert f"closing what is open in this process ({EXAMPLE})" in message and "are left" in message
        with Model.load(EXAMPLE, max_slots=1) as streamed:
            assert streamed.streaming is not None
    Model.load(EXAMPLE, max_slots=1, experts="mapped").close()


def test_a_model_that_was_dropped_is_not_in_the_way(about: Description, machine: Any) -> None:
    """A cell that is run again with the old model gone, perhaps in a cycle, finds its memory free."""
    machine(about.needs(1))
    gc.disable()
    try:
        for _ in range(2):
            loop: list[Any] = [Model.load(EXAMPLE, max_slots=1, experts="mapped")]
            loop.append(loop)
            del loop
    finally:
        gc.enable()


def test_a_load_waits_for_a_model_that_is_being_closed(about: Description, machine: Any) -> None:
    machine(about.needs(1))
    residents, closing = Residents(), list[threading.Timer]()

    def going() -> bool:
        if not closing:  # the load has looked: only now it ends
            closing.append(threading.Timer(0.01, residents.release, (first,)))
            closing[0].start()
        return True

    _, first = residents.admit(about, 1, None, going=going)
    residents.admit(about, 1, None)
    closing[0].join()
    with pytest.raises(CapacityError, match="closing what is open"):
        residents.admit(about, 1, None)


def test_tables_in_the_hosts_memory_are_counted_together_too(
    about: Description, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(2**40)
    monkeypatch.setattr("tensorfold.memory.separate", lambda: True)
    monkeypatch.setattr("tensorfold.memory.host_bytes", lambda: 5 * about.disk_bytes // 2)
    first = plan(about, 1, None)
    assert first.engram == "ram" and first.resident.host == about.disk_bytes
    assert plan(about, 1, None, others=[first.resident]).engram == "disk"
    assert plan(about, 1, None, "ram", others=[first.resident]).engram == "ram"
    with pytest.raises(CapacityError, match="closing what is open"):
        plan(about, 1, None, "ram", others=[first.resident] * 3)
