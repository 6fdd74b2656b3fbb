"""Seeds at both ends of their 64 bits in every call that takes one: none is taken for no seed, no bit of it is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import tensorfold
from tensorfold import Model, SlotHandle, cli
from tensorfold.arguments import ParameterError
from tensorfold.requests import seed_each
from tests.support.goldens import EXAMPLE

# pairs of them differ in the lowest bit, in one word alone, or in the highest bit
SEEDS = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 2**32, 2**64 - 1]
PROMPT, COUNT = "And the LORD ", 4
HOT: dict[str, Any] = {"temperature": 2.0, "ignore_eos": True, "max_tokens": COUNT}
WARM = {k: v for k, v in HOT.items() if k != "max_tokens"}


@pytest.fixture(scope="module")
def right(fresh: Model) -> dict[int, list[int]]:
    """The reply of each seed, one token a round, alone; all of them differ."""
    found = {}
    for seed in SEEDS:
        reply = fresh.generate(PROMPT, seed=seed, **HOT)
        assert reply.seed == seed
        found[seed] = reply.tokens
    assert len({tuple(tokens) for tokens in found.values()}) == len(SEEDS)
    return found


def run(model: Model, *handles: SlotHandle) -> None:
    while not all(h.done for h in handles):
        model.step()


def array(seeds: list[int]) -> np.ndarray:
    return np.array(seeds, np.uint64)


@pytest.mark.parametrize("form", [list, tuple, array, lambda seeds: mx.array(array(seeds))])
def test_forms_of_lists(model: Model, form: Callable[[list[int]], Any]) -> None:
    """What calls take, before anything is computed."""
    assert [type(s) for s in seed_each(form(SEEDS), 7, "replies")] == [int] * 7
    for prompt, n in (([PROMPT] * 7, None), (PROMPT, 7)):
        requests, _ = model.desk.read(prompt, {"seed": form(SEEDS)}, n)
        assert [r.params.seed for r in requests] == SEEDS
    assert [seed_each(array(seed), 2, "replies") for seed in SEEDS] == [[seed] * 2 for seed in SEEDS]
    for call in (model.generate, lambda prompts, **how: tensorfold.batch_generate(model, prompts=prompts, **how)):
        with pytest.raises(ValueError, match="seed has 7 entries for 2"):
            call([PROMPT] * 2, seed=form(SEEDS))


def test_lists_of_seeds(model: Model, right: dict[int, list[int]]) -> None:
    made = model.generate(PROMPT, n=7, seed=SEEDS, **HOT)
    assert [(r.seed, r.tokens) for r in made] == list(right.items())
    batch = tensorfold.batch_generate(
        model, prompts=[PROMPT] * 2, seed=[2**64 - 1, 0], max_tokens=COUNT, return_token_ids=True, **WARM
    )
    assert batch.token_ids == [right[2**64 - 1], right[0]]


@pytest.mark.parametrize(("seed", "form"), [(0, int), (2**64 - 1, np.uint64)])
def test_one_seed(model: Model, right: dict[int, list[int]], seed: int, form: Callable[[int], Any]) -> None:
    """For a reply and for each of several, drafted, in pieces, by handles and by mlx-lm's names."""
    want, given = right[seed], form(seed)
    assert [r.tokens for r in model.generate([PROMPT, PROMPT], seed=given, **HOT)] == [want, want]
    assert [t for piece in model.stream(PROMPT, seed=given, **HOT) for t in piece.tokens] == want
    with model.open(PROMPT, seed=given, **HOT) as handle:
        run(model, handle)
        assert (handle.tokens, handle.seed) == (want, seed)
    assert [r.token for r in tensorfold.stream_generate(model, PROMPT, seed=given, **HOT)] == want
    text = model.tokenizer.decode(want, skip_special_tokens=True)
    assert tensorfold.generate(model, PROMPT, seed=given, **HOT) == text
    assert tensorfold.batch_generate(model, prompts=[PROMPT], seed=given, max_tokens=COUNT, **WARM).texts == [text]


def test_seeds_outside_are_refused_by_every_call(model: Model) -> None:
    with model.open(PROMPT, max_tokens=1) as handle:
        for seed in (-1, 2**64):
            calls: list[Callable[[], Any]] = [
                lambda s=seed: model.generate(PROMPT, seed=s), lambda s=seed: model.stream(PROMPT, seed=s),
                lambda s=seed: model.generate([PROMPT] * 2, seed=[0, s]), lambda s=seed: model.open(PROMPT, seed=s),
                lambda s=seed: handle.fork(seed=s), lambda s=seed: handle.extend("a", seed=s),
                lambda s=seed: tensorfold.generate(model, PROMPT, seed=s),
                lambda s=seed: tensorfold.batch_generate(model, prompts=[PROMPT], seed=[s]),
            ]  # fmt: skip
            for call in calls:
                with pytest.raises(ParameterError, match=rf"seed={seed} must be in 0..{2**64 - 1}"):
                    call()


@pytest.mark.parametrize("parent", [0, 2**64 - 1])
def test_forks(model: Model, fresh: Model, parent: int) -> None:
    """A fork with a seed goes on as a fresh reply of its ids with it; one without keeps its parent's, 0 among them."""
    with model.open(PROMPT, seed=parent, **HOT) as first:
        while len(first.tokens) < 2:
            model.step()
        begun, ids = first.tokens, [*model.tokenizer.encode(PROMPT), *first.tokens]
        seeds = [0, 2**32, 2**64 - 1]
        forks = [first.fork(), *(first.fork(seed=s) for s in seeds)]
        assert [f.seed for f in forks] == [parent, *seeds]
        run(model, first, *forks)
        rest = {**HOT, "max_tokens": COUNT - len(begun)}
        for fork, seed in zip(forks, [parent, *seeds]):
            assert fork.tokens == [*begun, *fresh.generate(ids, seed=seed, **rest).tokens], seed
            fork.close()
        assert first.tokens == forks[0].tokens


@pytest.mark.parametrize(("before", "seed"), [(5, 0), (0, 2**32), (2**64 - 1, 0)])
def test_extensions(model: Model, fresh: Model, before: int, seed: int) -> None:
    """The next reply has its own seed; one that goes on keeps its own and refuses another."""
    with model.open(PROMPT, seed=before, **{**HOT, "max_tokens": 2}) as handle:
        run(model, handle)
        with pytest.raises(ValueError, match="^seed: a reply goes on with the choices that it has"):
            handle.extend([], seed=seed, max_tokens=2)
        handle.extend([], seed=before, max_tokens=2)
        run(model, handle)
        told = [*model.tokenizer.encode(PROMPT), *handle.tokens]
        assert handle.tokens == fresh.generate(PROMPT, seed=before, **HOT).tokens and handle.seed == before
        handle.extend([7, 8], seed=seed, **HOT)
        run(model, handle)
        assert (handle.seed, handle.tokens) == (seed, fresh.generate([*told, 7, 8], seed=seed, **HOT).tokens)


@pytest.mark.parametrize("seed", [0, 2**32, 2**64 - 1])
def test_saved_slots(model: Model, right: dict[int, list[int]], seed: int, tmp_path: Path) -> None:
    with model.open(PROMPT, seed=seed, **HOT) as handle:
        while not handle.tokens:
            model.step()
        handle.save(tmp_path / "slot")
    with model.restore(tmp_path / "slot") as again:
        run(model, again)
        assert (again.seed, again.tokens) == (seed, right[seed])


def test_chats(model: Model, fresh: Model) -> None:
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    talk = [{"role": "user", "content": "define: dog"}]
    options = {**HOT, "thinking": False, "max_tokens": 2}
    want = {seed: fresh.chat(talk, seed=seed, **options).tokens for seed in (0, 2**32, 2**64 - 1)}
    assert len({tuple(tokens) for tokens in want.values()}) == 3
    for made in (model.chat([talk] * 3, seed=[*want], **options), model.chat(talk, n=3, seed=[*want], **options)):
        assert [(r.seed, r.tokens) for r in made] == list(want.items())
    for seed in (0, 2**64 - 1):
        assert model.chat(talk, seed=seed, **options).tokens == want[seed]
        *_, last = model.stream_chat(talk, seed=seed, **options)
        assert last.reply is not None and (last.reply.seed, last.reply.tokens) == (seed, want[seed])


@pytest.fixture
def kept(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    """The commands' model is this one, and stays open."""

    class Kept:
        def __enter__(self) -> Model:
            return model

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(tensorfold.Model, "load", lambda *_, **__: Kept())
    yield model


@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_commands(
    kept: Model, right: dict[int, list[int]], seed: int, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """generate says the seed it used; chat hands it on."""
    words = ["--model", str(EXAMPLE), "--temperature", "2", "--max-tokens", "3", "--seed", str(seed)]
    want = kept.generate(PROMPT, seed=seed, temperature=2.0, max_tokens=3)
    assert want.tokens[:2] == right[seed][:2]
    assert cli.main(["generate", *words, PROMPT]) == 0
    out, err = capsys.readouterr()
    assert out == want.text + "\n" and want.stats.token_sha in err and str(seed) in err
    pytest.importorskip("deepseek_recipe", reason="deepseek-recipe is not installed")
    given = list[Any]()
    plain = Model.stream_chat
    monkeypatch.setattr(Model, "stream_chat", lambda s, *a, **o: (given.append(o["seed"]), plain(s, *a, **o))[1])
    said = iter(["define: dog"])

    def ask(_: str) -> str:
        for line in said:
            return line
        raise EOFError

    monkeypatch.setattr("builtins.input", ask)
    assert cli.main(["chat", *words]) == 0
    assert given == [seed, seed]
