"""How many drafts a slot gets when rounds take their time: what drafts pay decides, what compiling takes does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tensorfold.engine.drafts import DraftBudget

MOST = 5


def simulated(
    accepts: float, row: float, draft: float, compiling: float, slow: int = 2, rounds: int = 1200
) -> list[int]:
    """Drafts of one slot round by round, in replies of 48 tokens, every other one undrafted and left out; a round takes
    1 + rows * row + draft, and the first `slow` of a kind `compiling` more. A draft is right as often as `accepts`
    says, in a fixed pattern."""
    budget, seen, given = DraftBudget(16, fixed=False), dict[tuple[int, bool], int](), list[int]()
    slot = SimpleNamespace(max_drafts=MOST, remaining=48, acceptance=[])
    pending, chance = 0, 0.0
    for _ in range(rounds):
        pending = min(pending, slot.remaining - 1)
        (wanted,) = budget.wanted([slot])  # type: ignore[list-item]
        kind = 1 + pending, wanted > 0
        seen[kind] = seen.get(kind, 0) + 1
        more = compiling if seen[kind] <= slow else 0.0
        budget.costs.add(*kind, 1 + kind[0] * row + draft * kind[1] + more)
        right = 0
        while right < pending:
            chance += accepts
            if chance < 1:
                break
            chance -= 1
            right += 1
        if pending:
            budget.observe(slot, pending, right)  # type: ignore[arg-type]
        if slot.max_drafts:
            given.append(wanted)
        pending, slot.remaining = wanted, slot.remaining - 1 - right
        if slot.remaining <= 0:
            pending, slot.remaining, slot.max_drafts = 0, 48, MOST - slot.max_drafts
    return given


def mean(given: list[int]) -> float:
    return sum(given) / len(given)


def test_drafts_that_pay_are_made() -> None:
    assert mean(simulated(0.9, row=0.02, draft=0.2, compiling=0.0)[10:]) > 4.5


@pytest.mark.parametrize("slow", [1, 3, 5])
@pytest.mark.parametrize("compiling", [10.0, 1000.0])
def test_what_compiling_takes_is_no_cost_of_drafts(compiling: float, slow: int) -> None:
    """The first rounds of every number of rows take far longer; as many drafts are made as if they did not."""
    given = simulated(0.9, 0.02, 0.2, compiling, slow)
    assert mean(given[10:]) > 4.5 and mean(given[-40:]) > 4.5


def test_drafts_that_cost_more_than_they_pay_are_not_made() -> None:
    """Each row costs as much as a round: only the tries in between are left."""
    given = simulated(0.3, row=1.0, draft=1.0, compiling=100.0)
    assert mean(given[100:]) < 0.3 and any(given[100:])
