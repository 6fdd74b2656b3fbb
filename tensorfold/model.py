"""Model: a loaded checkpoint that generates; the public face over the engine, callable from any thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from tensorfold import arguments, loading, rounds
from tensorfold import keywords as kw
from tensorfold.chat import ChatPiece, ChatReply, chat, stream_chat
from tensorfold.checkpoint.hub import Access, resolve
from tensorfold.config import ModelConfig
from tensorfold.engine import save
from tensorfold.engine.engine import Engine
from tensorfold.engine.slot import Slot
from tensorfold.engine.worker import Gone
from tensorfold.handle import SlotHandle
from tensorfold.life import Life
from tensorfold.memory import MemoryUse
from tensorfold.network.streaming import Streaming
from tensorfold.progress import wanted
from tensorfold.requests import Reader, Request
from tensorfold.results import Generation, Piece, one_of
from tensorfold.rounds import Call, opener
from tensorfold.scoring import Score, score
from tensorfold.state import files
from tensorfold.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class Model:
    """A DeepSeek-V4.1 text model with its caches and open slots.

    Threads: every method may be called from any thread; one thread of the model's own runs all of its arrays, so calls
    take turns round by round. Who has a slot runs rounds, which advance every open slot, whoever opened it; who waits
    for one runs none, and gets it first come, first served.
    """

    def __init__(self, life: Life):
        """Internal: `Model.load` makes these."""
        if not isinstance(life, Life):
            raise TypeError(f"a Model is made by Model.load(path), not from {arguments.shown(life)}")
        self._life = life
        life.run(self._meet)

    def _meet(self, parts: loading.Parts) -> None:
        """Keeps what belongs to the host alone."""
        engine = parts.engine
        self._reader = Reader(parts.tokenizer, parts.config, engine.lanes.drafter is not None)
        self._path, self._max_context = parts.checkpoint.path, engine.max_context
        self._slots, self._dropped = engine.slots, engine.dropped
        self._saves = parts.identity, engine.memory.caches.stages  # what a saved state must be of

    # ---- life

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        draft: bool | None = None,
        max_slots: int = 16,
        max_context: int | None = None,
        backend: str | None = None,
        prefix_bytes: int = 256 * 2**20,
        snapshot_tokens: int = 512,
        draft_policy: str = "measured",
        engram: str = "auto",
        experts: str = "auto",
        expert_bytes: int | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        progress: bool | None = None,
    ) -> Model:
        """Loads a checkpoint folder, or a hub id of which only the files that the text model needs are downloaded.

        draft: False leaves the drafter's tensors out; True demands them; None takes them if the config has them.
        max_slots: sequences open at once, 1..16.
        max_context: positions a slot may reach, by default what the config allows.
        backend: "ops", or None to choose. prefix_bytes: budget of kept prompt beginnings, 0 for none.
        draft_policy: "measured" drafts as much as drafts pay, "fixed" always drafts max_drafts.
        engram: "disk" reads the rows of the Engram tables from their files as tokens ask, "ram" copies the tables into
        memory, "auto" does so where everything fits into half of it; the tokens are the same.
        experts: "mapped" holds all routed experts in memory, used where they lie in the mapped file on Metal and copied
        elsewhere; "streamed" holds those asked for last and reads others from the files; "auto" streams where weights
        and a slot do not fit into the memory otherwise. The tokens are the same; the drafter's experts stay in memory.
        expert_bytes: room for streamed experts, by default what the memory leaves.
        revision, token, cache_dir: of a hub id: a branch, tag or commit; a token, False for none, by default the stored
        one; where downloads are kept, by default the hub library's cache.
        progress: a bar on stderr, by default in a terminal or a notebook.
        Raises CheckpointError or ConfigError (ValueError) for a checkpoint that is not whole and exact, CapacityError
        (ValueError) naming what would fit, before anything is allocated, ValueError or TypeError for wrong arguments.
        """
        options = loading.Options.check(
            draft, max_slots, max_context, backend, prefix_bytes, snapshot_tokens, draft_policy, engram, experts,
            expert_bytes, wanted(progress),
        )  # fmt: skip
        folder = resolve(path, options.draft is not False, Access(revision, token, cache_dir))
        return cls(Life(folder, options))

    def close(self) -> None:
        """Ends open slots and frees weights and caches; anything but `close` is an error afterwards."""
        self._life.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return "Model(closed)" if self._life.closed else f"Model({str(self._path)!r}, {len(self._slots)} slots open)"

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer."""
        return self._reader.tokenizer

    @property
    def config(self) -> ModelConfig:
        """The checkpoint's configuration."""
        return self._reader.config

    @property
    def max_context(self) -> int:
        """Positions that a slot may reach."""
        self._alive()
        return self._max_context

    def memory(self) -> MemoryUse:
        """What the model holds now: weights mapped, copied (and why) and on disk, caches, kept beginnings."""
        return self._life.run(loading.Parts.memory)

    @property
    def streaming(self) -> Streaming | None:
        """Hits, misses, bytes and seconds of streamed experts since the load; None where all experts are in memory."""
        return self._life.run(loading.Parts.streaming)

    # ---- generate

    @overload
    def generate(self, prompt: kw.Prompt, *, n: None = None, **options: Unpack[kw.GenerateKeywords]) -> Generation: ...  # type: ignore[overload-overlap]
    @overload
    def generate(
        self, prompt: kw.Prompts, *, n: None = None, **options: Unpack[kw.GenerateKeywords]
    ) -> list[Generation]: ...
    @overload
    def generate(
        self, prompt: Any, *, n: SupportsIndex, **options: Unpack[kw.GenerateKeywords]
    ) -> list[Generation]: ...
    @overload
    def generate(self, prompt: kw.Array, **options: Unpack[kw.GenerateKeywords]) -> Generation | list[Generation]: ...
    def generate(
        self, prompt: Any, *, n: SupportsIndex | None = None, **options: Unpack[kw.GenerateKeywords]
    ) -> Generation | list[Generation]:
        """Replies to one prompt, or to a list of them (a list in is a list out); more prompts than slots queue.

        prompt: str, ids, or a list of such. n: so many replies to each prompt with seeds drawn apart (a list out).
        Keywords: max_tokens, temperature (or temp), top_p, top_k, min_p, repetition_penalty, logit_bias, stop,
        seed (a list for several prompts), logprobs, skip_special_tokens (False shows them in `text`), draft,
        max_drafts, add_bos, parse_special, prompt_progress_callback(done, total).
        on_result(i, generation): called with each reply as it ends.
        wait: how long for the first slot when all are open: True, seconds, or False for CapacityError at once. By
        default as long as somebody may free one: CapacityError where open handles of this thread hold them all.
        cancel: a threading.Event; once it is set, by any thread, replies end with finish_reason "cancelled".
        Raises ValueError or TypeError before anything is computed. A single reply that fails raises what ended it, as
        NumericError when logits are not finite; in a list it has finish_reason "error" and `error`, and others go on.
        """
        requests, many = self._read(prompt, options, n, kw.GenerateKeywords)
        made = rounds.results(self, requests, Call.of(options, None), Generation.at_end, options.get("on_result"))
        return made if many else one_of(made)

    def stream(self, prompt: kw.OnePrompt, **options: Unpack[kw.StreamKeywords]) -> Iterator[Piece]:
        """Pieces of one reply as they come; the last one has finish_reason and stats.

        Keywords as in `generate` but on_result, with wait=False by default: CapacityError when all slots are open.
        Arguments are checked, and a slot is waited for, at the call.
        """
        return rounds.pieces(self, *self._begin(prompt, options))

    @overload
    def chat(
        self, messages: kw.Messages, tools: kw.Tools = None, *, n: None = None, **options: Unpack[kw.ChatKeywords]
    ) -> ChatReply: ...
    @overload
    def chat(
        self, messages: kw.Conversations, tools: kw.Tools = None, *, n: None = None, **options: Unpack[kw.ChatKeywords]
    ) -> list[ChatReply]: ...
    @overload
    def chat(
        self, messages: Any, tools: kw.Tools = None, *, n: SupportsIndex, **options: Unpack[kw.ChatKeywords]
    ) -> list[ChatReply]: ...
    def chat(
        self, messages: Any, tools: kw.Tools = None, *, n: SupportsIndex | None = None,
        **options: Unpack[kw.ChatKeywords],
    ) -> ChatReply | list[ChatReply]:  # fmt: skip
        """Answers a conversation of OpenAI-style messages, or a list of them (a list in is a list out), as many at once
        as there are slots; needs the extra `chat`.

        tools: for every conversation. n: so many replies to each, with seeds drawn apart (a list out).
        thinking: on unless False. reasoning_effort: 1..100, low, medium, high, max or none.
        Keywords: tool_choice (auto, none, required), response_format, continue_final_message, and those of `generate`
        but add_bos and parse_special; a stop string counts in the content alone, max_tokens is by default what a reply
        of this kind may need. A reply that fails is told as in `generate`.
        Raises ValueError or TypeError naming the message, ImportError without the extra.
        """
        return chat(self, messages, tools, options, n)

    def stream_chat(
        self, messages: kw.Messages, tools: kw.Tools = None, **options: Unpack[kw.StreamChatKeywords]
    ) -> Generator[ChatPiece]:
        """Pieces of the answer as they become certain; the last holds the ChatReply.

        Arguments as in `chat` but on_result, checked at the call; wait and cancel as in `stream`.
        """
        return stream_chat(self, messages, tools, options)

    @overload
    def score(self, prompt: kw.OnePrompt, continuation: kw.Prompt, **options: Unpack[kw.ScoreKeywords]) -> Score: ...  # type: ignore[overload-overlap]
    @overload
    def score(
        self, prompt: kw.OnePrompt, continuation: kw.Prompts, **options: Unpack[kw.ScoreKeywords]
    ) -> list[Score]: ...
    def score(self, prompt: Any, continuation: Any, **options: Unpack[kw.ScoreKeywords]) -> Score | list[Score]:
        """Log-probabilities of a continuation, or of each of a list of them, after one prompt.

        prompt, continuation: str (the continuation without bos) or ids. The values are those that
        `generate(logprobs=...)` gives for the same tokens, bit for bit.
        Keywords: add_bos, parse_special, and wait as in `open`.
        Raises CapacityError when both do not fit or all slots are open.
        """
        return score(self, prompt, continuation, options)

    def open(self, prompt: kw.OnePrompt, **options: Unpack[kw.OpenKeywords]) -> SlotHandle:
        """A slot for one prompt, advanced by `step`; keywords as in `generate`, but cancel and on_result.

        Raises CapacityError when all slots are open; with wait=True or seconds, when none came free in that time.
        """
        request, call = self._one(prompt, options, kw.OpenKeywords), Call.of(options)
        return self._enter(opener(request, call, passing=False), call)

    def step(self) -> bool:
        """One round over all open slots; True while any of them is unfinished. Threads that call it at the same time
        share a round."""
        return self._life.round()

    def remember(self, prompt: kw.AnyPrompt, *, add_bos: bool = True, parse_special: bool | None = None) -> None:
        """Computes a prompt's beginning once and keeps it (within prefix_bytes) for prompts that share it."""
        self._alive()
        requests, _ = self._reader.requests(prompt, {"add_bos": add_bos, "parse_special": parse_special})
        for r in requests:
            rounds.finish(self, self._open_slot(partial(Engine.prefill, ids=r.ids)), Call())

    def restore(self, path: str | Path, *, draft: bool | None = None, max_drafts: int | None = None) -> SlotHandle:
        """A slot continued from a file that `SlotHandle.save` wrote; draft and max_drafts as in `open`.

        Raises SaveError (a ValueError) for another checkpoint or a damaged file, CapacityError if it does not fit.
        """
        self._alive()
        drafts = self._reader.drafts(draft, max_drafts)
        file = arguments.path("path", path)
        saved = save.read(file, *self._saves)
        return self._open_slot(lambda engine: save.restore(file, saved, engine, drafts))

    # ---- what handles call

    def _cancel(self, slot: Slot) -> None:
        self._call(lambda engine: engine.cancel(slot))

    def _close_slot(self, slot: Slot) -> None:
        if self._life.worker.here:
            self._drop(slot)  # a stream that the collector ends there, perhaps in the middle of a round
        else:
            with suppress(Gone):
                self._call(lambda engine: engine.close(slot))

    def _drop(self, slot: Slot) -> None:
        self._dropped.append(slot)

    def _fork(self, slot: Slot, seed: int | None) -> SlotHandle:
        self._alive()
        params = slot.params if seed is None else self._reader.seeded(slot.params, seed)
        return self._open_slot(lambda engine: engine.fork(slot, params))

    def _extend(self, slot: Slot, prompt: Any, options: Mapping[str, Any]) -> None:
        r = self._one(prompt, {"add_bos": False, **options})
        self._call(lambda engine: engine.extend(slot, r.ids, r.params, r.max_drafts))

    def _save(self, slot: Slot, path: Path) -> None:
        files.check(path)
        save.write(path, self._call(lambda engine: save.take(engine, slot, self._saves[0])))

    # ---- inside

    @property
    def _engine(self) -> Engine:
        """For tests and receipts, which look inside: no method here keeps it."""
        return self._life.parts.engine

    def _call(self, job: Callable[[Engine], T]) -> T:
        """What a job of the model's own thread gives. The engine never leaves it, so no traceback can hold it."""
        return self._life.run(lambda parts: job(parts.engine))

    def _alive(self) -> None:
        """Raises RuntimeError if the model is closed, or was loaded in another process."""
        self._life.worker.check()

    def _begin(self, prompt: Any, options: Mapping[str, Any]) -> tuple[SlotHandle, Call]:
        """One reply that ends its slot, its arguments checked."""
        request, call = self._one(prompt, options, kw.StreamKeywords), Call.of(options)
        return self._enter(opener(request, call), call), call

    def _enter(self, make: Callable[[Engine], Slot], call: Call) -> SlotHandle:
        """A handle that has its slot, waited for as the call says; or one that the call cancelled before."""
        handle = self._open_slot(make)
        try:
            rounds.wait_for_slot(self, handle, call)
            if handle.error is not None:
                raise handle.error
            if handle.done and not call.cancelled:
                self._alive()
            return handle
        except BaseException:
            handle.close()
            raise

    def _open_slot(self, make: Callable[[Engine], Slot]) -> SlotHandle:
        """A handle that has its slot or stands in line for one, as `make` opens it."""
        made: list[Slot] = []
        try:
            self._call(lambda engine: made.append(make(engine)))
            return SlotHandle(self, made[0])
        except BaseException:
            self._life.worker.post(lambda: self._dropped.extend(made))  # interrupted: nobody holds what was opened
            raise

    def _read(
        self, prompt: Any, options: Mapping[str, Any], n: Any = None, kind: type = kw.Keywords
    ) -> tuple[list[Request], bool]:
        """Checked requests, none of them too long for the context."""
        self._alive()
        requests, many = self._reader.requests(prompt, options, n, kind)
        self._fit(requests)
        return requests, many

    def _fit(self, requests: Iterable[Request]) -> None:
        """Raises CapacityError for a prompt and reply that are too long for the context."""

        def check(engine: Engine) -> None:
            for r in requests:
                engine.check(r.ids, r.params)

        self._call(check)

    def _one(self, prompt: Any, options: Mapping[str, Any], kind: type = kw.Keywords) -> Request:
        self._alive()
        requests, many = self._reader.requests(prompt, options, kind=kind)
        if many:
            raise ValueError("one prompt is wanted here, not a list of prompts: open each, or use generate")
        return requests[0]
