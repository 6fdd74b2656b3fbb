"""The DSpark drafter, fed with published taps: context rows, proposals, logits, confidences as published."""

from __future__ import annotations

from functools import cache

import mlx.core as mx

from tests.network import drafterkit
from tests.support.published import PublishedScores


@cache
def drafts() -> drafterkit.Drafts:
    return drafterkit.Drafts()


def test_context_rows_are_the_published_rings() -> None:
    drafterkit.check_context_rows(drafts())


def test_every_draft_is_the_published_one() -> None:
    drafterkit.check_drafts(drafts())


def test_confidences_and_logits() -> None:
    drafterkit.check_confidences_and_logits(drafts())


class Drawing(PublishedScores):
    """With a draw of its own, which shows every argument."""

    def draw(self, logits: mx.array, temperature: mx.array, seed: mx.array, position: mx.array) -> tuple[mx.array, ...]:
        phase = (seed.sum(-1).astype(mx.int32) + 31 * position)[:, None] * mx.arange(logits.shape[-1])[None] % 997
        return (mx.argmax(logits + 20 * temperature[:, None] * mx.sin(phase), -1).astype(mx.int32),)


def test_one_graph_draws_what_steps_draw() -> None:
    drafterkit.check_drafts_of_one_graph(drafterkit.Drafts(Drawing))
