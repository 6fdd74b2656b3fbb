"""Model: a loaded checkpoint that generates; the public face over the engine, callable from any thread."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, overload

from tensorfold import arguments, loading, rounds
from tensorfold import keywords as kw
from tensorfold.chat import ChatPiece, ChatReply, chat, stream_chat
from tensorfold.checkpoint.hub import Access, resolve
from tensorfold.config import ModelConfig
from tensorfold.desk import Desk
from tensorfold.engine.engine import Engine
from tensorfold.engine.slot import Slot
from tensorfold.handle import SlotHandle
from tensorfold.life import Life
from tensorfold.memory import MemoryUse
from tensorfold.network.streaming import Streaming
from tensorfold.results import Generation, Piece, one_of
from tensorfold.rounds import Call, opener
from tensorfold.scoring import Score, score
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
        self.desk = Desk(life)

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
        snapshot_tokens: of a long prompt a beginning is kept every so many tokens, for prompts as long or longer;
        what `remember` keeps serves any.
        draft_policy: "measured" drafts as much as drafts pay, "fixed" always drafts max_drafts.
        engram: "disk" reads the rows of the Engram tables from their files as tokens ask, "ram" copies the tables into
        memory, "auto" does so where everything fits into half of it; the tokens are the same.
        experts: "mapped" holds all routed experts in memory, used where they lie in the mapped file on Metal and copied
        elsewhere; "streamed" holds those asked for last and reads others from the files; "auto" streams where weights
        and a slot do not fit into the memory otherwise. The tokens are the same; the drafter's experts stay in memory.
        expert_bytes: room for streamed experts, by default what the memory leaves.
        revision, token, cache_dir: of a hub id: a branch, tag or commit; a token, False for none, by default the stored
        one; where downloads are kept, by default the hub library's cache.
        progress: bars on stderr, by default in a terminal or a notebook.
        Raises CheckpointError or ConfigError (ValueError) for a checkpoint that is not whole and exact, CapacityError
        (ValueError) naming what would fit, before anything is allocated, ValueError or TypeError for wrong arguments.
        """
        options = loading.Options.check(
            draft, max_slots, max_context, backend, prefix_bytes, snapshot_tokens, draft_policy, engram, experts,
            expert_bytes, progress,
        )  # fmt: skip
        folder = resolve(path, options.draft is not False, Access(revision, token, cache_dir, progress))
        return cls(Life(folder, options))

    def close(self) -> None:
        """Ends open slots and frees weights and caches; anything but `close` is an error afterwards."""
        self._life.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._life.closed:
            return "Model(closed)"
        return f"Model({str(self.desk.path)!r}, {len(self._slots)} slots open)"

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer."""
        return self.desk.tokenizer

    @property
    def config(self) -> ModelConfig:
        """The checkpoint's configuration."""
        return self.desk.config

    @property
    def max_context(self) -> int:
        """Positions that a slot may reach."""
        self.desk.alive()
        return self.desk.max_context

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
    def generate(
        self, prompt: kw.Integers, **options: Unpack[kw.GenerateKeywords]
    ) -> Generation | list[Generation]: ...
    def generate(
        self, prompt: Any, *, n: SupportsIndex | None = None, **options: Unpack[kw.GenerateKeywords]
    ) -> Generation | list[Generation]:
        """Replies to one prompt, or to a list of them (a list in is a list out); more prompts than slots queue.

        prompt: str, ids, or a list of such. n: so many replies to each prompt with seeds drawn apart (a list out).

        How a reply is drawn:
        temperature, temp: 0 is greedy, the default. seed: 0..2^64-1, or one for each prompt; drawn where not given.
        top_p, min_p: 0..1, of the probabilities at temperature 1. top_k: so many tokens; 0 is off.
        repetition_penalty: over prompt and reply, above 0, 1 is off.
        presence_penalty, frequency_penalty: OpenAI's, over the reply, -2..2. logit_bias: {id: added}, -inf bans it.
        draft: False drafts nothing. max_drafts: so many a round at most; neither changes a token.

        Where it ends:
        max_tokens: so many tokens at most (256). stop: a string or several, before which the text is cut.
        stop_token_ids: ids that end it as an eos does. ignore_eos: True goes on behind an eos.
        min_tokens: so many tokens before an eos, a stop id or a stop string counts.
        cancel: a threading.Event; once it is set, by any thread, replies end with finish_reason "cancelled".

        What is told:
        logprobs, prompt_logprobs: 0..20 likeliest tokens beside each of the reply, or of the prompt, which then reuses
        no kept beginning. skip_special_tokens: False shows them in `text`.
        on_result: called with (i, generation) as each reply ends.
        prompt_progress_callback: called with (done, total) prompt tokens.

        How the prompt is read, and when it begins:
        add_bos: False leaves the bos out. parse_special: True makes special tokens of what text spells.
        wait: how long for the first slot when all are open: True, seconds, or False for CapacityError at once. By
        default as long as somebody may free one: CapacityError where open handles of this thread hold them all.

        Raises ValueError or TypeError before anything is computed. A single reply that fails raises what ended it, as
        NumericError when logits are not finite; in a list it has finish_reason "error" and `error`, and others go on.
        """
        requests, many = self.desk.read(prompt, options, n, kw.GenerateKeywords)
        made = rounds.results(self.desk, requests, Call.of(options, None), rounds.generation, options.get("on_result"))
        return made if many else one_of(made)

    def stream(self, prompt: kw.OnePrompt, **options: Unpack[kw.StreamKeywords]) -> Iterator[Piece]:
        """Pieces of one reply as they come; the last one has finish_reason and stats.

        Keywords as in `generate` but on_result, with wait=False by default: CapacityError when all slots are open.
        Arguments are checked, and a slot is waited for, at the call.
        """
        handle, call = rounds.begin(self.desk, prompt, options)
        return rounds.held(handle, rounds.pieces(self.desk, handle, call))

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
        return chat(self.desk, messages, tools, options, n)

    def stream_chat(
        self, messages: kw.Messages, tools: kw.Tools = None, **options: Unpack[kw.StreamChatKeywords]
    ) -> Generator[ChatPiece]:
        """Pieces of the answer as they become certain; the last holds the ChatReply.

        Arguments as in `chat` but on_result, checked at the call; wait and cancel as in `stream`.
        """
        return stream_chat(self.desk, messages, tools, options)

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
        return score(self.desk, prompt, continuation, options)

    def open(self, prompt: kw.OnePrompt, **options: Unpack[kw.OpenKeywords]) -> SlotHandle:
        """A slot for one prompt, advanced by `step`; keywords as in `generate`, but cancel and on_result.

        Raises CapacityError when all slots are open; with wait=True or seconds, when none came free in that time.
        """
        request, call = self.desk.one(prompt, options, kw.OpenKeywords), Call.of(options)
        return rounds.enter(self.desk, opener(request, call, passing=False), call)

    def step(self) -> bool:
        """One round over all open slots; True while any of them is unfinished. Threads that call it at the same time
        share a round."""
        return self.desk.step()

    def remember(self, prompt: kw.AnyPrompt, *, add_bos: bool = True, parse_special: bool | None = None) -> None:
        """Computes a prompt's beginning once and keeps it (within prefix_bytes) for prompts that share it."""
        self.desk.alive()
        requests, _ = self.desk.reader.requests(prompt, {"add_bos": add_bos, "parse_special": parse_special})
        for r in requests:
            rounds.finish(self.desk, self.desk.open(partial(Engine.prefill, ids=r.ids)), Call())

    def restore(self, path: str | Path, *, draft: bool | None = None, max_drafts: int | None = None) -> SlotHandle:
        """A slot continued from a file that `SlotHandle.save` wrote; draft and max_drafts as in `open`.

        Raises SaveError (a ValueError) for another checkpoint or a damaged file, CapacityError if it does not fit.
        """
        self.desk.alive()
        return self.desk.restore(arguments.path("path", path), self.desk.reader.drafts(draft, max_drafts))

    # ---- for tests and receipts, which look inside

    @property
    def _engine(self) -> Engine:
        return self._life.parts.engine

    @property
    def _life(self) -> Life:
        return self.desk.life

    @property
    def _slots(self) -> list[Slot]:
        return self.desk.slots
