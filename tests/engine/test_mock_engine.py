"""The round, driven without weights: drafts that are always right, never right, and one blocking read a round."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import mlx.core as mx
import numpy
import pytest

from tensorfold.engine import drafts, filters, lanes, noise, outcome, pick, propose, rows, schedule, slot, verify
from tests.engine.mock import MockDrafter, check_state, engram_rows, finish, greedy, make, params

PROMPT = [7 + i % 40 for i in range(30)]
SAMPLED = {"temperature": 1.0, "seed": 5}
LETTERS = {t for t in greedy(PROMPT, 12)}
PENALISED = {"presence_penalty": 0.5, "frequency_penalty": 1.5, "repetition_penalty": 1.1}
HELD = {**PENALISED, "stop_token_ids": tuple(sorted(LETTERS)), "min_tokens": 61}  # so many letters are left out
WAYS = {"greedy": {}, "sampled": SAMPLED, "penalised": PENALISED, "held": {**SAMPLED, **HELD}}


def run(wrong: int, width: int, **sampling):
    engine = make(drafter=MockDrafter(wrong))
    s = engine.open(PROMPT, params(61, **sampling), width)
    finish(engine)
    check_state(engine, s)
    return s, engine


@pytest.mark.parametrize("sampling", WAYS.values(), ids=WAYS)
def test_drafts_that_are_always_right_are_accepted_at_all_five_positions(sampling):
    """Case 14, case 12: all accepted, six tokens a forward, none replayed."""
    s, engine = run(0, 5, **sampling)
    assert s.stats.drafted == s.stats.accepted == [10] * 5
    assert engine.lanes.network.forwards == s.stats.forwards == 2 + 10  # the prompt's two chunks, then 6 tokens a round
    assert s.tokens == run(0, 0, **sampling)[0].tokens
    if not sampling:
        assert s.tokens == greedy(PROMPT, 61)
    if "min_tokens" in sampling:
        assert not LETTERS & set(s.tokens)


@pytest.mark.parametrize("sampling", [{}, SAMPLED, PENALISED], ids=["greedy", "sampled", "penalised"])
@pytest.mark.parametrize("width", range(1, 6))
def test_drafts_that_are_never_right_change_nothing(width, sampling):
    """Cases 1 and 4."""
    s, _ = run(1, width, **sampling)
    assert sum(s.stats.accepted) == 0 and s.stats.drafted[0] == 59
    assert s.tokens == run(1, 0, **sampling)[0].tokens


@pytest.mark.parametrize("wrong", [2, 3, 5])
@pytest.mark.parametrize("width", range(6))
def test_every_width_draws_the_tokens_of_the_ids_alone(width, wrong):
    """Case 4: no width is special."""
    s, _ = run(wrong, width)
    assert s.tokens == greedy(PROMPT, 61)
    assert width == 0 or 0 < s.stats.accepted[0] < s.stats.drafted[0]


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_a_row_of_engram_sees_a_whole_n_gram_wherever_chunks_end(chunk):
    """N-grams of five here: four ids before a chunk decide the Engram rows of its first token."""
    found = []

    def gather(runs):
        found.extend(engram_rows(runs)[0][0].reshape(-1).tolist())
        return engram_rows(runs)

    engine = make(engram=gather, chunk=chunk)
    s = engine.open(PROMPT, params(9), 0)
    finish(engine)
    assert found == engram_rows([([], s.ids[:-1])])[0][0].reshape(-1).tolist()


def test_sixteen_slots_share_sixteen_rows():
    """Case 74: a round never has more rows than it may, and everybody finishes with his own tokens."""
    engine = make(slots=16)
    plans = []
    build = engine.lanes.planner.build
    engine.lanes.planner.build = lambda *a: plans.append(build(*a)) or plans[-1]
    slots = [engine.open(PROMPT[i:] + [60 + i], params(20 + i), 5) for i in range(16)]
    finish(engine)
    assert [s.tokens for s in slots] == [greedy(PROMPT[i:] + [60 + i], 20 + i) for i in range(16)]
    for plan in plans:
        decode = [s.rows for s in plan.segments if s.rows <= 6]
        assert sum(decode) <= 16 + 6 and len(plan.segments) - len(decode) <= 1


def test_decoding_goes_on_beside_a_long_prompt():
    """At most one prompt chunk a round: each round of a long prompt gives the others their token."""
    engine = make(slots=3)
    first = engine.open(PROMPT, params(100), 0)
    engine.step(), engine.step()
    engine.open([9] * 240, params(2), 0), engine.open([8] * 240, params(2), 0)
    for n in range(2, 20):
        engine.step()
        assert len(first.tokens) == n


class HostOnly:
    """numpy, which refuses device arrays."""

    def __getattr__(self, name):
        value = getattr(numpy, name)
        if not callable(value) or isinstance(value, type):
            return value

        def checked(*args, **kwargs):
            caller = inspect.currentframe().f_back.f_code.co_name
            if caller not in ("blocking_read", "<dictcomp>"):
                refuse(args)
            return value(*args, **kwargs)

        return checked


def refuse(value):
    assert not isinstance(value, mx.array), "a device value is read outside blocking_read"
    if isinstance(value, (list, tuple)):
        for item in value:
            refuse(item)


def test_a_round_blocks_once(monkeypatch):
    """One blocking read a round, drafted or not, beside a prompt, at the end of a reply and after a stop string."""
    for module in (lanes, schedule, propose, outcome, verify, drafts, rows, pick, filters, noise, slot):
        if hasattr(module, "np"):
            monkeypatch.setattr(module, "np", HostOnly())
    evals, reads = [], []
    real_eval, real_read = mx.eval, outcome.blocking_read
    monkeypatch.setattr(mx, "eval", lambda *a: (evals.append(1), real_eval(*a)))
    monkeypatch.setattr(outcome, "blocking_read", lambda *a: (reads.append(1), real_read(*a))[1])
    engine = make(prefix_bytes=2**24, drafter=MockDrafter(3))
    text = "".join(chr(t - 3) for t in greedy(PROMPT, 61))
    for i, more in enumerate(({}, SAMPLED, {"stop": (text[31:35],)}, {**HELD, "min_tokens": 9, "prompt_logprobs": 2})):
        engine.open(PROMPT[i % 2 :], params(40, **more), 5 - i % 2)
    while True:
        engine._collect()
        evals.clear(), reads.clear()
        going = engine.step()
        assert len(evals) == len(reads) == 1
        if not going:
            break


def test_only_blocking_read_reads_device_values():
    """The source says so: nothing else in engine/ evaluates, converts or prints an array."""
    forbidden = {"item", "tolist", "eval", "synchronize", "__array__", "__int__", "__float__", "__bool__"}
    found = []
    for path in sorted(Path(lanes.__file__).parent.glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                for node in ast.walk(function):
                    if isinstance(node, ast.Attribute) and node.attr in forbidden:
                        found.append((path.name, function.name))
    assert set(found) == {("outcome.py", "blocking_read")}
