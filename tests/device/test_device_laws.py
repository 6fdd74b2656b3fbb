"""The device suite under pytest: each check of the receipt on every backend of kernels that is here."""

from __future__ import annotations

import pytest

from tensorfold import Model
from tensorfold.checkpoint.reader import Checkpoint
from tensorfold.receipt.finding import Finding
from tensorfold.receipt.footprint import constant_memory, used_where_they_lie
from tensorfold.receipt.laws import Laws
from tensorfold.receipt.rows import RowLaw
from tensorfold.receipt.speed import speed
from tensorfold.receipt.suite import Size, end_to_end, stored_logits
from tests.support.goldens import EXAMPLE


def held(*findings: Finding) -> None:
    assert findings and all(f.ok for f in findings), findings


def test_the_row_check_at_load_finds_nothing(row_law: RowLaw) -> None:
    held(row_law.row_check())


def test_rows_of_one_launch_are_the_rows_alone(row_law: RowLaw) -> None:
    held(row_law.one_launch())


def test_decode_steps_of_four_rows_are_steps_of_one(row_law: RowLaw) -> None:
    held(row_law.decode_steps())


def test_rows_of_several_slots_are_those_of_each_alone(row_law: RowLaw) -> None:
    held(row_law.several_slots())


def test_prompt_rows_are_decode_rows(row_law: RowLaw, size: Size) -> None:
    held(row_law.prompt(size.decoded))


def test_replayed_graphs_are_the_plain_call(row_law: RowLaw, backend: str) -> None:
    if not row_law.runner.backend.traceable:
        pytest.skip(f"{backend} runs each launch at once: it builds no graph")
    held(row_law.replayed())


def test_logits_and_state_have_the_stored_bits_of_the_host(row_law: RowLaw) -> None:
    """A change of any stated order: run `python -m tensorfold.receipt --write-logits`."""
    identity = row_law.runner.checkpoint.identity
    assert identity in stored_logits()
    held(end_to_end(identity, row_law.digests(), stored_logits()))


def test_drafts_batches_and_resumed_slots_change_no_token_and_no_state(laws: Laws, size: Size) -> None:
    held(*laws.findings(size.drafted, size.batched))


def test_memory_is_constant_and_no_pool_is_copied(model: Model, size: Size, laws: Laws) -> None:
    held(*constant_memory(model, size.pool_bytes, size.rounds))


def test_mapped_tensors_are_used_where_they_lie(backend: str) -> None:
    if backend != "metal":
        pytest.skip("needs a Metal device: elsewhere weights are copied")
    with Checkpoint.open(EXAMPLE) as checkpoint:
        held(used_where_they_lie(checkpoint))


def test_speed_is_a_number(model: Model, size: Size) -> None:
    rates = speed(model, 2, 2)
    assert set(rates) == {"one reply", "one reply, drafted", "four replies", "prompt"}
    assert all(rate is not None and rate > 0 for rate in rates.values())
