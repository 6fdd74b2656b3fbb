"""Stop strings cut exactly, however the text is split; knows no tokenizer."""

from __future__ import annotations

import random

import pytest

from tensorfold.engine.sampling import StopMatcher


def oracle(text: str, stops: list[str]) -> tuple[str, str | None, int]:
    """Text before the match, the match, and where it ends: first end wins, then the longest stop string."""
    hits = [(text.find(s) + len(s), -len(s), s) for s in stops if s in text]
    if not hits:
        return text, None, len(text)
    end, minus, stop = min(hits)
    return text[: end + minus], stop, end


def split(text: str, rng: random.Random) -> list[str]:
    cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def fed(matcher: StopMatcher, pieces: list[str]) -> tuple[str, int]:
    """The text to show of a round's pieces, and how many of them were looked at: none behind a match."""
    shown, used = "", 0
    for piece in pieces:
        if matcher.matched is not None:
            break
        shown, used = shown + matcher.feed(piece), used + 1
    return shown, used


def test_any_split_of_any_text_is_cut_where_find_says():
    rng = random.Random(3)
    for _ in range(20_000):
        letters = "ab" if rng.random() < 0.6 else "abc"
        text = "".join(rng.choice(letters) for _ in range(rng.randrange(14)))
        stops = ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 5))) for _ in range(rng.randrange(4))]
        before, stop, end = oracle(text, stops)
        pieces = split(text, rng)
        matcher, shown, used = StopMatcher(stops), "", 0
        for piece in pieces:
            if matcher.matched is not None:
                assert matcher.feed(piece) == ""
                continue
            shown += matcher.feed(piece)
            used += 1
            assert before.startswith(shown)
            # nothing is held back that cannot become a stop string
            assert matcher.matched is not None or shown + matcher.held == "".join(pieces[:used])
            assert matcher.held == "" or any(s.startswith(matcher.held) and s != matcher.held for s in stops)
        assert (shown + matcher.finish(), matcher.matched) == (before, stop)
        if stop is not None:  # the piece that completes the match is the last one used
            assert len("".join(pieces[: used - 1])) < end <= len("".join(pieces[:used]))
        whole = StopMatcher(stops)
        assert fed(whole, pieces) == (shown if stop is not None else text[: len(text) - len(whole.held)], used)


@pytest.mark.parametrize(
    "pieces", [["beta gamma"], ["beta", " gamma"], ["be", "ta ga", "mma"], ["b", "eta", " g", "amm", "a"]]
)
@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_a_match_inside_a_round_ends_the_reply_at_the_token_that_completes_it(pieces, rows):
    tokens = ["alpha ", *pieces, " delta", " epsilon"]
    matcher, shown, used = StopMatcher(["beta gamma"]), "", 0
    while used < len(tokens) and matcher.matched is None:
        text, count = fed(matcher, tokens[used : used + rows])
        shown, used = shown + text, used + count
    assert (shown, used, matcher.matched) == ("alpha ", 1 + len(pieces), "beta gamma")


def test_a_completing_token_may_carry_text_on_both_sides():
    matcher = StopMatcher(["STOP"])
    assert (matcher.feed("one S"), matcher.feed("TOP two")) == ("one ", "")
    assert (matcher.matched, matcher.feed("three"), matcher.finish()) == ("STOP", "", "")


def test_held_text_is_shown_when_the_reply_ends_otherwise():
    matcher = StopMatcher(["<end>"])
    assert (matcher.feed("x<en"), matcher.held, matcher.finish(), matcher.held) == ("x", "<en", "<en", "")


def test_a_stop_string_that_is_passed_over_never_matches_later():
    """Also where it is held back as the beginning of a longer one, which still may come."""
    for rest, want in (("x", ("abx", None)), ("c", ("", "abc")), ("ab", ("ab", "ab"))):
        matcher = StopMatcher(["ab", "abc"])
        shown = matcher.feed("a", False) + matcher.feed("b", False)
        assert (shown, matcher.held, matcher.matched) == ("", "ab", None)
        assert (matcher.feed(rest), matcher.matched) == want


def test_without_stops_everything_passes():
    assert fed(StopMatcher(), ["a", "", "b"]) == ("ab", 3)


def test_a_copy_goes_its_own_way():
    matcher = StopMatcher(["abc"])
    matcher.feed("ab")
    twin = matcher.copy()
    assert (matcher.feed("c"), twin.feed("d")) == ("", "abd")
    assert (matcher.matched, twin.matched) == ("abc", None)


@pytest.mark.parametrize("stops", ["abc", [""], [1]])
def test_stops_must_be_non_empty_strings(stops):
    with pytest.raises(ValueError, match="stops"):
        StopMatcher(stops)
