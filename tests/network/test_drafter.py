"""The DSpark drafter, fed with published taps: context rows, proposals, logits, confidences as published."""

from __future__ import annotations

from functools import cache

from tests.network import drafterkit


@cache
def drafts() -> drafterkit.Drafts:
    return drafterkit.Drafts()


def test_context_rows_are_the_published_rings() -> None:
    drafterkit.check_context_rows(drafts())


def test_every_draft_is_the_published_one() -> None:
    drafterkit.check_drafts(drafts())


def test_confidences_and_logits() -> None:
    drafterkit.check_confidences_and_logits(drafts())
