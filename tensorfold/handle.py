"""SlotHandle: an open slot as a caller holds it; every call goes through the model it belongs to."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tensorfold import arguments
from tensorfold import keywords as kw
from tensorfold.engine.reply import Moment, Stats, TokenLogprobs
from tensorfold.engine.slot import Slot
from tensorfold.results import Piece, piece

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Owner(Protocol):
    """What a handle asks of the model it belongs to."""

    def cancel(self, slot: Slot) -> None: ...
    def close(self, slot: Slot) -> None: ...
    def drop(self, slot: Slot) -> None: ...
    def fork(self, slot: Slot, seed: int | None) -> SlotHandle: ...
    def extend(self, slot: Slot, prompt: Any, options: Mapping[str, Any]) -> None: ...
    def save(self, slot: Slot, path: Path) -> None: ...


class SlotHandle:
    """One sequence in the model's caches. Dropping or closing the handle frees its slot; `with` closes it.

    tokens: ids of the reply so far; text: its text; done, finish_reason ("stop", "length", "cancelled",
    "error" or None),
    error (the exception behind "error"), stats, seed, logprobs and prompt_logprobs (if asked for).
    """

    def __init__(self, owner: Owner, slot: Slot):
        self._owner, self._slot, self._open = owner, slot, True
        self._reply, self._read = slot.reply, Moment()
        slot.attend()

    @property
    def text(self) -> str:
        """The reply so far, cut before a stop string; text that may begin one is held back until it is decided."""
        return self._slot.reply.text()

    @property
    def text_with_special(self) -> str:
        """All of `tokens` written out, special ones too; a stop string is not cut off."""
        return str(self._slot.tokenizer.decode(self.tokens))

    @property
    def tokens(self) -> list[int]:
        """Ids of the reply, with the eos or the token that completed a stop string."""
        reply = self._slot.reply
        return reply.tokens[: reply.now.tokens]

    @property
    def done(self) -> bool:
        """Whether the reply has ended."""
        return self.finish_reason is not None

    @property
    def finish_reason(self) -> str | None:
        """stop, length, cancelled or error; None while unfinished."""
        return self._slot.reply.now.finish_reason

    @property
    def error(self) -> Exception | None:
        """What ended the slot with finish_reason "error"."""
        return self._slot.reply.now.error

    @property
    def seed(self) -> int:
        """The seed in use, 0..2^64-1."""
        return self._slot.params.seed

    @property
    def logprobs(self) -> list[TokenLogprobs] | None:
        """One entry a token of the reply, if asked for."""
        reply = self._slot.reply
        return None if self._slot.params.logprobs is None else reply.logprobs[: reply.now.logprobs]

    @property
    def prompt_logprobs(self) -> list[TokenLogprobs] | None:
        """One entry for each token of the prompt after the first (of what `extend` added), as far as they are known,
        if asked for; the model's own values, whatever the reply's choices."""
        return None if self._slot.params.prompt_logprobs is None else list(self._slot.scores)

    @property
    def stats(self) -> Stats:
        """Counters, times and the token hash as of now."""
        return self._slot.reply.measure()

    @property
    def prompt_done(self) -> int:
        """Prompt tokens that are in the caches."""
        return min(self._slot.committed, self._slot.reply_start)

    @property
    def begun(self) -> threading.Event:
        """Set once it has its slot, or has ended in line for one."""
        return self._slot.begun

    def read(self) -> Piece:
        """What came since the last `read`, all of one moment: text, tokens, logprobs; and how the reply ended."""
        self._slot.attend()
        reply = self._slot.reply
        before, now = self._read if reply is self._reply else Moment(), reply.now
        made = piece(reply, before, now, self._slot.params.logprobs is not None, self.prompt_logprobs)
        if now.texts == before.texts and not now.tail:
            now = replace(now, tail=before.tail)  # shown at an end, and its text has not come yet
        self._reply, self._read = reply, now
        return made

    def cancel(self) -> None:
        """Ends the reply where it is; the slot can be extended, forked or saved."""
        self._owner.cancel(self._live())

    def close(self) -> None:
        """Frees the slot; text, tokens and stats stay readable."""
        if self._open:
            self._open = False
            self._owner.close(self._slot)

    def fork(self, seed: int | None = None) -> SlotHandle:
        """A twin with the same ids and reply so far; with another `seed` it goes its own way when sampled."""
        return self._owner.fork(self._live(), seed)

    def extend(self, prompt: kw.OnePrompt, **options: Unpack[kw.ExtendKeywords]) -> SlotHandle:
        """Begins the next reply after this one's tokens and `prompt` (a str without bos, or ids);
        keywords as in `open`.

        With an empty `prompt` the reply itself goes on where max_tokens or a cancel cut it, by max_tokens more (256):
        tokens, text and log-probabilities are those of one longer reply. Its choices stay, drafts may be set.
        Raises ValueError while the reply goes on, after an error, for other choices, or if the reply ended by itself.
        """
        self._owner.extend(self._live(), prompt, options)
        return self

    def save(self, path: str | Path) -> None:
        """Writes the slot's state to one file, whole or not at all; `Model.restore` continues from it.

        A link stays and what it leads to is replaced; the mode is the old file's, or what umask gives. A process that
        is killed here may leave a `.part` file, which the next save to `path` removes. Raises OSError naming `path`.
        """
        self._owner.save(self._live(), arguments.path("path", path))

    def __enter__(self) -> SlotHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self._owner.drop(self._slot)

    def __repr__(self) -> str:
        state = self.finish_reason or ("open" if self._open else "closed")
        return f"SlotHandle({len(self._slot.ids)} ids, {len(self.tokens)} in the reply, {state})"

    def _live(self) -> Slot:
        if not self._open:
            raise ValueError("this slot is closed: open another")
        return self._slot
