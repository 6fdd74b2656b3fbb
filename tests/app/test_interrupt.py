"""Ctrl-C, threads and event loops: the model goes on as if nothing had been."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tensorfold import CapacityError, Generation, Model

PROMPT = "def read_lines(path):\n"


def reply(model: Model, prompt: str = PROMPT, **options: Any) -> Generation:
    out = model.generate(prompt, **{"max_tokens": 6, **options})
    assert isinstance(out, Generation)
    return out


def test_an_interrupt_from_a_callback_leaves_the_model_usable(model: Model) -> None:
    want = reply(model)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reply(model, prompt_progress_callback=interrupt)
    assert repr(model).endswith(" 0 slots open)") and reply(model).tokens == want.tokens


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.3])
def test_ctrl_c_in_generate_leaves_the_model_usable(model: Model, delay: float) -> None:
    want = reply(model)
    main = threading.main_thread().ident
    assert main is not None
    begun = threading.Event()

    def strike() -> None:
        begun.wait()
        time.sleep(delay)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=strike)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        begun.set()
        for _ in range(1000):
            model.generate([PROMPT, "And the ", "class "], max_tokens=500, temperature=1)
    thread.join()
    again = reply(model)
    assert again.tokens == want.tokens and repr(model).endswith(" 0 slots open)")


def test_an_interrupted_open_leaves_no_slot_behind(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    run = model._life.worker.run

    def interrupted(job: Any) -> Any:
        run(job)
        raise KeyboardInterrupt  # as when it comes while the caller waits

    monkeypatch.setattr(model._life.worker, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.open(PROMPT)
    monkeypatch.undo()
    reply(model)
    assert repr(model).endswith(" 0 slots open)")


def test_long_prompts_show_their_progress(fresh: Model) -> None:
    seen: list[tuple[int, int]] = []
    ids = fresh.tokenizer.encode("the king " * 80)
    fresh.generate(ids, max_tokens=2, prompt_progress_callback=lambda done, total: seen.append((done, total)))
    done = [d for d, _ in seen]
    assert done == sorted(done) and len(set(done)) >= 3 and seen[-1] == (len(ids), len(ids))


def test_any_thread_and_any_loop_gives_the_same_tokens(model: Model) -> None:
    want = reply(model).tokens
    with ThreadPoolExecutor(3) as pool:
        assert [f.result().tokens for f in [pool.submit(reply, model) for _ in range(3)]] == [want] * 3

    async def several() -> list[Generation]:
        return list(await asyncio.gather(*(asyncio.to_thread(reply, model) for _ in range(3))))

    assert [g.tokens for g in asyncio.run(several())] == [want] * 3


def test_threads_with_handles_of_their_own_get_their_own_replies(model: Model) -> None:
    prompts = ["ONE ", "TWO ", "THREE ", "FOUR "]
    want = [reply(model, p).tokens for p in prompts]

    def run(prompt: str) -> list[int]:
        with model.open(prompt, max_tokens=6) as slot:
            while not slot.done:
                model.step()
            return slot.tokens

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, prompts)) == want


def test_what_cannot_fit_is_refused_at_the_call(model: Model) -> None:
    for start in (model.generate, model.stream, model.open):
        with pytest.raises(CapacityError, match="the context holds 4096: max_tokens can be at most"):
            start(PROMPT, max_tokens=4096)
    assert repr(model).endswith(" 0 slots open)")
