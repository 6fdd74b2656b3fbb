"""The drafter restated in numpy over `reference.Reference` (docs/model.md#drafter). Knows no slots, no acceptance."""

from __future__ import annotations

import numpy as np

from tests.network.reference import F32, F64, Reference, widen


class Drafter:
    """One drafter with the context rows of every position it was given."""

    def __init__(self, reference: Reference):
        self.r = reference
        self.stages = reference.c["num_nextn_predict_layers"]
        self.last = f"mtp.{self.stages - 1}"

    def ingest(self, taps: np.ndarray, positions: np.ndarray) -> list[np.ndarray]:
        """Context rows [R, hd] of each stage for tap rows [R, 3 D]."""
        r = self.r
        main = r.norm("mtp.0.main_norm", r.fp8("mtp.0.main_proj", taps))
        return [r.window_rows(f"mtp.{k}", main, positions, 0) for k in range(self.stages)]

    def draft(self, token: int, p: int, context: list[np.ndarray]) -> tuple[list[int], np.ndarray, np.ndarray]:
        """ids (token, then the drafts), float32 logits and confidences after positions 0..p; context by position."""
        r, c = self.r, self.r.c
        size, width = c["dspark_block_size"], c["sliding_window"]
        x, pre = r.start(np.array([token] + [c["dspark_noise_token_id"]] * (size - 1)))
        at = np.arange(p + 1, p + 1 + size)
        slots = np.array(sorted(range(max(0, p - width + 1), p + 1), key=lambda t: t % width))
        for k in range(self.stages):
            name = f"mtp.{k}"
            pre_a, post, comb = r.mixes(name, "attn", x)
            h = r.norm(name + ".attn_norm", r.collapse(x, pre))
            rows = np.concatenate([context[k][slots], r.window_rows(name, h, at, 0)])
            columns = np.broadcast_to(rows, (size, *rows.shape))
            o = r.attend(name, r.query(name, h, at, 0)[1], columns, np.ones(columns.shape[:2], bool))
            x = r.expand(r.output(name, o, at, 0), x, post, comb)
            pre_f, post, comb = r.mixes(name, "ffn", x)
            h = r.norm(name + ".ffn_norm", r.collapse(x, pre_a))
            x = r.expand(r.moe(name, h, *r.route(name, h, c["dspark_num_experts_per_tok"])), x, post, comb)
            pre = pre_f
        h = r.collapse(x, pre)
        logits, ids, confidence = r.head(h, self.last + ".norm"), [token], []
        table = r.source.raw(f"{self.last}.markov_head.embed.weight")
        for i in range(size):
            me = widen(table[ids[-1]])
            logits[i] += r.f32_linear(f"{self.last}.markov_head.head", me[None])[0]
            both = np.concatenate([h[i], me])[None]
            confidence.append(r.f32_linear(f"{self.last}.confidence_head.proj", both).astype(F64).item())
            ids.append(int(logits[i].argmax()))
        return ids, logits, np.array(confidence, F32)
