"""Who runs rounds and who waits for a slot: the one loop behind every call that makes replies. Knows no prompts' forms.

Who has a slot runs rounds, and a round carries on every open slot, whoever opened it; a reader takes what others'
rounds gave its reply before it runs one of its own. Who waits for a slot runs none: slots are given first come, first
served, as replies end and handles are closed. Only a reply that nobody attends to, which would keep its slot for
ever, is carried on by those who wait, and alone: one that the waiting thread itself was reading, or whose reader is
gone or has not read for ATTENDED_S seconds.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar, cast

from tensorfold.arguments import ParameterTypeError, flag_or_number, shown
from tensorfold.desk import Desk
from tensorfold.engine.engine import CapacityError, Engine
from tensorfold.engine.slot import Slot
from tensorfold.handle import SlotHandle
from tensorfold.keywords import Cancel, StreamKeywords
from tensorfold.progress import SLOW_S, bar
from tensorfold.requests import Request, prompt_progress
from tensorfold.results import Generation, Piece

R = TypeVar("R")
P = TypeVar("P")
ATTENDED_S = 10.0
LOOK_S = 0.05  # how often who waits looks for what nobody tells: a cancel, a dropped handle, an abandoned reply


@dataclass(frozen=True)
class Call:
    """How a call waits for its first slot, what cancels it, and who is told of its prompts' progress.

    wait: False, True, seconds, or None: True as long as somebody else may free a slot.
    """

    wait: bool | float | None = None
    cancel: Cancel | None = None
    progress: Callable[[int, int], Any] | None = None

    @staticmethod
    def of(options: Mapping[str, Any], wait: bool | None = False) -> Call:
        """Those of a call's keywords, checked; `wait` is the default. Raises TypeError or ValueError naming one."""
        given, cancel = options.get("wait"), options.get("cancel")
        if cancel is not None and not callable(getattr(cancel, "is_set", None)):
            raise ParameterTypeError(f"cancel={shown(cancel)} must be a threading.Event, or have its is_set()")
        patience = wait if given is None else flag_or_number("wait", given)
        return Call(patience, cancel, options.get("prompt_progress_callback"))

    @property
    def cancelled(self) -> bool:
        """Whether the caller wants no more."""
        return self.cancel is not None and self.cancel.is_set()


def opener(r: Request, call: Call, passing: bool = True) -> Callable[[Engine], Slot]:
    """What opens a slot for a request, in line if the call waits; a passing one is free again when its reply ends."""
    return partial(
        Engine.open, ids=r.ids, params=r.params, max_drafts=r.max_drafts, passing=passing, keep_at=r.keep_at,
        waits=call.wait is not False,
    )  # fmt: skip


def begin(desk: Desk, prompt: Any, options: Mapping[str, Any]) -> tuple[SlotHandle, Call]:
    """One reply that ends its slot, its arguments checked."""
    request, call = desk.one(prompt, options, StreamKeywords), Call.of(options)
    return enter(desk, opener(request, call), call), call


def enter(desk: Desk, make: Callable[[Engine], Slot], call: Call) -> SlotHandle:
    """A handle that has its slot, waited for as the call says; or one that the call cancelled before."""
    handle = desk.open(make)
    try:
        wait_for_slot(desk, handle, call)
        if handle.error is not None:
            raise handle.error
        if handle.done and not call.cancelled:
            desk.alive()
        return handle
    except BaseException:
        handle.close()
        raise


def wait_for_slot(desk: Desk, handle: SlotHandle, call: Call) -> None:
    """Until the handle has its slot, or the call is cancelled. Raises CapacityError when the wait is over."""
    begun = handle.begun
    until = time.monotonic() + (math.inf if call.wait is None or call.wait is True else call.wait)
    while not begun.is_set():
        if call.cancelled:
            return handle.cancel()
        left = until - time.monotonic()
        if left <= 0:
            raise CapacityError(f"no slot came free within {call.wait:g} s: wait longer, or load with more max_slots")
        slots = list(desk.slots)
        held = [s for s in slots if not s.passing and not _elsewhere(s)]
        if call.wait is None and slots and len(held) == len(slots) and not begun.is_set():
            raise CapacityError("every slot is held by an open handle of this thread: close one to let generate go on")
        alone = [s for s in slots if s.passing and not s.done and not _attended(s)]
        if alone or desk.dropped:
            desk.call(partial(Engine.carry_on, slots=alone))
        else:
            begun.wait(min(LOOK_S, left))


def _elsewhere(slot: Slot) -> bool:
    """Whether another thread read or opened it last, and is still there."""
    return slot.reader is not threading.current_thread() and slot.reader.is_alive()


def _attended(slot: Slot) -> bool:
    return _elsewhere(slot) and time.monotonic() - slot.read_at < ATTENDED_S


def run(
    desk: Desk, handles: Iterable[SlotHandle], call: Call, prompt_tokens: int = 0
) -> Generator[tuple[int, SlotHandle, Piece]]:
    """What each reply gains, as it comes, with the reply's number; the last piece of each has a finish_reason.

    handles: the next one is asked for when the one before has its slot. prompt_tokens: of all of them.
    """
    line, going, more = enumerate(handles), list[tuple[int, SlotHandle]](), True
    ended, told = 0, -1  # prompt tokens
    prompt = bar(prompt_tokens, "token", "prompt", desk.shows_bars, SLOW_S)
    try:
        while more or going:
            while more and (not going or _begun(going[-1])):
                entry = next(line, None)
                more = entry is not None
                going += [entry] if entry is not None else []
            for _, handle in going if call.cancelled else ():
                handle.cancel()
            gained = [(entry, piece) for entry in going if _news(piece := entry[1].read())]
            done = ended + sum(handle.prompt_done for _, handle in going)
            if done != told:
                prompt.update(done - max(told, 0))
                told = done
                prompt_progress(call.progress, done, prompt_tokens)
                if done == prompt_tokens:
                    prompt.close()  # before anything of a reply is printed
            for entry, piece in gained:
                if piece.finish_reason is not None:
                    going.remove(entry)
                    ended += entry[1].prompt_done
                    entry[1].close()
                yield *entry, piece
            if not gained and any(_begun(entry) for entry in going):
                _round(desk, going)
            elif not gained and going:
                wait_for_slot(desk, going[0][1], call)
    finally:
        prompt.close()
        for _, handle in going:
            handle.close()


def pieces(desk: Desk, handle: SlotHandle, call: Call) -> Generator[Piece]:
    """What one reply gains, as it comes. Raises what ended it with finish_reason "error"."""
    with closing(run(desk, [handle], call, handle.stats.prompt_tokens)) as gains:
        for _, _, piece in gains:
            if handle.error is not None:
                raise handle.error
            yield piece


def held(handle: SlotHandle, gains: Generator[P]) -> Generator[P]:
    """`gains` as a caller gets them: closing or dropping them frees the slot, before the first one, too."""

    def begun() -> Generator[P | None]:
        with closing(handle), closing(gains):
            yield None  # a generator that has not begun would run no end
            yield from gains

    made = begun()
    next(made)
    return cast("Generator[P]", made)


def finish(desk: Desk, handle: SlotHandle, call: Call) -> None:
    """Runs one reply to its end. Raises what ended it, or that the model was closed."""
    for _ in pieces(desk, handle, call):
        pass
    if handle.finish_reason == "cancelled" and not call.cancelled:
        desk.alive()


def results(
    desk: Desk,
    requests: Sequence[Request],
    call: Call,
    made: Callable[[int, SlotHandle, Piece], R | None],
    told: Callable[[int, R], Any] | None = None,
) -> list[R]:
    """What `made` gives of each request's reply, in their order; it is handed what the reply gains until it gives
    something, which `told` gets at once. Where the call is cancelled, those that had no slot end too."""
    done: dict[int, R] = {}
    first = enter(desk, opener(requests[0], call), call)
    later = replace(call, wait=None if call.wait is None else True)
    others = (desk.open(opener(r, later)) for r in requests[1:] if not call.cancelled)
    tokens, many = sum(len(r.ids) for r in requests), len(requests) > 1
    replies = bar(len(requests), "reply", "replies", many and desk.shows_bars, SLOW_S)
    with replies, closing(run(desk, chain([first], others), later, tokens)) as gains:
        for i, handle, piece in chain(gains, _never_begun(desk, requests, done)):
            if piece.finish_reason == "cancelled" and not call.cancelled:
                desk.alive()
            result = None if i in done else made(i, handle, piece)
            if result is not None:
                done[i] = result
                replies.update()
                if told is not None:
                    told(i, result)
    return [done[i] for i in range(len(requests))]


def _never_begun(
    desk: Desk, requests: Sequence[Request], done: Mapping[int, Any]
) -> Iterator[tuple[int, SlotHandle, Piece]]:
    """The ends of those that are not done once the others are."""
    for i, r in enumerate(requests):
        if i not in done:
            slot = Slot(r.ids, r.params, desk.tokenizer, r.max_drafts)
            slot.finish("cancelled")
            handle = SlotHandle(desk, slot)
            yield i, handle, handle.read()


def _begun(entry: tuple[int, SlotHandle]) -> bool:
    return entry[1].begun.is_set()


def _news(piece: Piece) -> bool:
    return bool(piece.text or piece.tokens or piece.finish_reason)


def _round(desk: Desk, going: Sequence[tuple[int, SlotHandle]]) -> None:
    """A round for all; an error that ended one of these replies is told by that reply."""
    try:
        desk.step()
    except Exception:
        if all(handle.error is None for _, handle in going):
            raise


def generation(i: int, handle: SlotHandle, piece: Piece) -> Generation | None:
    """The reply of a slot whose newest piece is its last; for `results`."""
    if piece.finish_reason is None:
        return None
    return Generation(
        handle.text, handle.tokens, piece.finish_reason, handle.stats, handle.seed, handle.logprobs,
        handle.text_with_special, handle.prompt_logprobs, handle.error,
    )  # fmt: skip
