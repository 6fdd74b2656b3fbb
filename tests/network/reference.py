"""The model's sublayers restated in numpy with float64 sums and one rounding each; it knows no caches, chunks or MLX.

Values are float32 arrays; "rounded" means that they are representable in bfloat16. Sections are those of docs/model.md.
`test_reference.py` holds this file to the traces of the published model code.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

F32, F64 = np.float32, np.float64
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], F32)
EPS = F64(F32(1e-20))


class Source(Protocol):
    """Raw weights by name."""

    def raw(self, name: str) -> np.ndarray: ...
    def __contains__(self, name: object) -> bool: ...


# ---- formats and quantisers, docs/model.md#numbers


def bf16(x: np.ndarray) -> np.ndarray:
    """Rounded to bfloat16, ties to even, through float32."""
    u = np.ascontiguousarray(x, F32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) & np.uint32(0xFFFF0000)).view(F32)


def widen(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits as float32."""
    return (bits.astype(np.uint32) << 16).view(F32)


def _nearest(x: np.ndarray, low: int, mantissa: int, top: float) -> np.ndarray:
    """Nearest value with `mantissa` bits after the leading one, exponents from `low`, at most `top`; ties to even."""
    x = np.clip(x.astype(F64), -top, top)
    exponent = np.maximum(np.frexp(x)[1] - 1, low)
    step = np.ldexp(1.0, exponent - mantissa)
    return (np.rint(x / step) * step).astype(F32)


def e4m3(x: np.ndarray) -> np.ndarray:
    """Nearest e4m3 value, saturating at 448."""
    return _nearest(x, -6, 3, 448.0)


def e2m1(x: np.ndarray) -> np.ndarray:
    """Nearest e2m1 value, saturating at 6."""
    return _nearest(x, 0, 1, 6.0)


def e4m3_value(codes: np.ndarray) -> np.ndarray:
    """float32 of e4m3 codes."""
    c = np.arange(256)
    exponent, fraction = (c >> 3) & 15, c & 7
    value = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    table = np.where(c & 127 == 127, np.nan, np.where(c & 128, -value, value)).astype(F32)
    return table[codes]


def ue8m0_value(codes: np.ndarray) -> np.ndarray:
    """float32 of UE8M0 bytes in the range that checkpoints use."""
    return np.ldexp(F32(1), codes.astype(np.int32) - 127)


def pow2_ceil(x: np.ndarray) -> np.ndarray:
    """2 to the ceiling of log2, through the float32 bits."""
    u = np.ascontiguousarray(x, F32).view(np.uint32)
    return (((u >> 23) + ((u & 0x7FFFFF) != 0)) << 23).astype(np.uint32).view(F32)


def _blocks(x: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    g = x.astype(F32).reshape(*x.shape[:-1], -1, size)
    return g, np.abs(g).max(-1, keepdims=True)


def act_quant(x: np.ndarray) -> np.ndarray:
    """Round trip through e4m3 with a power-of-two scale per 32."""
    g, amax = _blocks(x, 32)
    s = pow2_ceil(np.maximum(amax, F32(1e-4)) * F32(1 / 448))
    return bf16((e4m3(g / s) * s).reshape(x.shape))


def fp4_e8m0(x: np.ndarray) -> np.ndarray:
    """Round trip through e2m1 with a power-of-two scale per 32."""
    g, amax = _blocks(x, 32)
    s = pow2_ceil(np.maximum(amax, F32(6 * 2.0**-126)) * F32(1 / 6))
    return bf16((e2m1(g / s) * s).reshape(x.shape))


def fp4_e4m3(x: np.ndarray) -> np.ndarray:
    """Round trip through e2m1 with an e4m3 scale per 16."""
    g, amax = _blocks(x, 16)
    s = e4m3(np.maximum(amax, F32(6 * 2.0**-9)) / F32(6))
    return bf16((e2m1(g / s) * s).reshape(x.shape))


# ---- small pieces


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """weight * (x / rms), all wide, one rounding."""
    f = x.astype(F64)
    return bf16(weight * (f / np.sqrt(np.mean(f * f, -1, keepdims=True) + EPS)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def rope_frequencies(c: dict[str, Any], ratio: int) -> np.ndarray:
    """float32 inverse frequencies [rd/2]; YaRN for layers with a compress ratio."""
    rd = c["qk_rope_head_dim"]
    i = np.arange(0, rd, 2, dtype=F32) / F32(rd)
    base = c["compress_rope_theta"] if ratio else c["rope_theta"]
    f = (F32(1) / (F64(base) ** i.astype(F64)).astype(F32)).astype(F32)
    if ratio:
        y = c["rope_scaling"]

        def dim(turns: float) -> float:
            return rd * math.log(y["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(dim(y["beta_fast"])), 0), min(math.ceil(dim(y["beta_slow"])), rd - 1)
        ramp = np.clip((np.arange(rd // 2, dtype=F32) - F32(low)) / F32(max(high - low, 1e-3)), 0, 1).astype(F32)
        f = f / F32(y["factor"]) * ramp + f * (1 - ramp)
    return f.astype(F32)


class Reference:
    """Sublayers of one checkpoint. `config`: the text_config mapping. `p`: a layer's prefix, `layers.L` or `mtp.K`."""

    def __init__(self, config: dict[str, Any], source: Source):
        self.c, self.source = config, source
        self.ratios = config["compress_ratios"]
        self._matrices: dict[str, np.ndarray] = {}

    # ---- weights and linears

    def vector(self, name: str) -> np.ndarray:
        """A float32 view of a BF16 or F32 tensor."""
        raw = self.source.raw(name)
        return widen(raw) if raw.dtype == np.uint16 else raw

    def matrix(self, name: str) -> np.ndarray:
        """The exact float64 matrix of any linear."""
        if name not in self._matrices:
            raw = self.source.raw(name + ".weight" if name + ".weight" in self.source else name)
            if raw.dtype != np.uint8:
                value = (widen(raw) if raw.dtype == np.uint16 else raw).astype(F64)
            else:
                scale = ue8m0_value(self.source.raw(name + ".scale")).astype(F64)
                if scale.shape[0] == raw.shape[0] and raw.shape[0] > 1:  # FP4: a scale per row and 32 inputs
                    value = E2M1[np.stack([raw & 15, raw >> 4], -1)].reshape(len(raw), -1) * scale.repeat(32, 1)
                else:
                    value = e4m3_value(raw) * scale.repeat(32, 0)[: raw.shape[0]].repeat(32, 1)[:, : raw.shape[1]]
            self._matrices[name] = value
        return self._matrices[name]

    def fp8(self, name: str, x: np.ndarray) -> np.ndarray:
        """A linear with quantised activations, rounded once."""
        return bf16(act_quant(x).astype(F64) @ self.matrix(name).T)

    def bf16_linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return bf16(x.astype(F64) @ self.matrix(name).T)

    def f32_linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return (x.astype(F64) @ self.matrix(name).T).astype(F32)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        return rms_norm(x, self.vector(name + ".weight"))

    def rope(self, x: np.ndarray, positions: np.ndarray, ratio: int, inverse: bool = False) -> np.ndarray:
        """x [R, (heads,) d], the last rd dims turned in adjacent pairs."""
        rd = self.c["qk_rope_head_dim"]
        angle = np.asarray(positions, F32)[:, None] * rope_frequencies(self.c, ratio)
        cos, sin = np.cos(angle.astype(F64)).astype(F32), np.sin(angle.astype(F64)).astype(F32)
        sin = -sin if inverse else sin
        if x.ndim == 3:
            cos, sin = cos[:, None], sin[:, None]
        a, b = x[..., -rd::2], x[..., -rd + 1 :: 2]
        out = x.copy()
        out[..., -rd::2], out[..., -rd + 1 :: 2] = bf16(a * cos - b * sin), bf16(a * sin + b * cos)
        return out

    # ---- docs/model.md#hyper-connections

    def start(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """X [R, 4, D] and the one-hot pre [R, 4] of token ids."""
        hc = self.c["hc_mult"]
        return np.repeat(widen(self.source.raw("embed.weight")[ids])[:, None], hc, 1), np.eye(1, hc, dtype=F32).repeat(
            len(ids), 0
        )

    def mixes(self, p: str, sub: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """pre, post [R, 4] and comb [R, 4, 4] of sublayer `attn` or `ffn`, float32."""
        n, eps = self.c["hc_mult"], self.c["hc_eps"]
        z = x.reshape(len(x), -1).astype(F64)
        m = z @ self.matrix(f"{p}.hc_{sub}_fn").T / np.sqrt(np.mean(z * z, -1, keepdims=True) + EPS)
        scale, base = (self.vector(f"{p}.hc_{sub}_{k}").astype(F64) for k in ("scale", "base"))
        pre = sigmoid(m[:, :n] * scale[0] + base[:n]) + eps
        post = 2 * sigmoid(m[:, n : 2 * n] * scale[1] + base[n : 2 * n])
        comb = (m[:, 2 * n :] * scale[2] + base[2 * n :]).reshape(-1, n, n)
        comb = np.exp(comb - comb.max(-1, keepdims=True))
        comb = comb / comb.sum(-1, keepdims=True) + eps
        comb = comb / (comb.sum(-2, keepdims=True) + eps)
        for _ in range(self.c["hc_sinkhorn_iters"] - 1):
            comb = comb / (comb.sum(-1, keepdims=True) + eps)
            comb = comb / (comb.sum(-2, keepdims=True) + eps)
        return pre.astype(F32), post.astype(F32), comb.astype(F32)

    @staticmethod
    def collapse(x: np.ndarray, pre: np.ndarray) -> np.ndarray:
        """One row of D from four streams."""
        return bf16((pre[..., None].astype(F64) * x).sum(1))

    @staticmethod
    def expand(y: np.ndarray, x: np.ndarray, post: np.ndarray, comb: np.ndarray) -> np.ndarray:
        """X after a sublayer that gave y: stream j takes post[j] y + sum_i comb[i, j] X[i]."""
        return bf16(post[..., None].astype(F64) * y[:, None] + np.einsum("rij,rid->rjd", comb.astype(F64), x))

    # ---- docs/model.md#engram

    def engram(self, layer: int, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """X after the Engram of a layer; `rows` are the table rows [R, 24] of each token."""
        p, d, hc = f"layers.{layer}.engram", self.c["hidden_size"], self.c["hc_mult"]
        codes, scales = (self.source.raw(f"{p}.embed.{k}")[rows] for k in ("weight", "scale"))
        e = bf16(e4m3_value(codes) * ue8m0_value(scales).repeat(32, -1)).reshape(len(rows), -1)
        kv = self.fp8(f"{p}.wkv", e).astype(F64)
        key, value = kv[:, : hc * d].reshape(-1, hc, d), kv[:, hc * d :]
        weight = self.vector(f"{p}.q_weight").astype(F64) * self.vector(f"{p}.k_weight")
        rms = [np.sqrt(np.mean(t.astype(F64) ** 2, -1) + EPS) for t in (x, key)]
        dot = (x * weight * key).sum(-1) / (rms[0] * rms[1]) * d**-0.5
        gate = sigmoid(np.copysign(np.sqrt(np.maximum(np.abs(dot), 1e-6)), dot))
        return bf16(x + gate[..., None] * value[:, None])

    # ---- docs/model.md#attention

    def query(self, p: str, x: np.ndarray, positions: np.ndarray, ratio: int) -> tuple[np.ndarray, np.ndarray]:
        """The low-rank row [R, q_lora_rank] and the turned heads [R, H, hd]."""
        low = self.norm(f"{p}.attn.q_norm", self.fp8(f"{p}.attn.wq_a", x))
        q = self.fp8(f"{p}.attn.wq_b", low).reshape(len(x), -1, self.c["head_dim"])
        return low, self.rope(q, positions, ratio)

    def window_rows(self, p: str, x: np.ndarray, positions: np.ndarray, ratio: int) -> np.ndarray:
        """The stored window row of every x: [R, hd]."""
        kv = self.norm(f"{p}.attn.kv_norm", self.fp8(f"{p}.attn.wkv", x))
        return act_quant(self.rope(kv, positions, ratio))

    def latents(self, layer: int, x: np.ndarray) -> np.ndarray:
        """Latents of a KV source from all its inputs from position 0 on: [N // ratio, hd], before RoPE."""
        p, ratio = f"layers.{layer}.attn.compressor", self.ratios[layer]
        if ratio == 1:
            return self.norm(p + ".norm", self.bf16_linear(p + ".wkv", x))
        x = x[: len(x) // ratio * ratio]
        c, g = (
            self.f32_linear(f"{p}.{k}", x).astype(F64).reshape(-1, ratio, self.c["head_dim"]) for k in ("wkv", "wgate")
        )
        e = np.exp(g - g.max(1, keepdims=True))
        return self.norm(p + ".norm", bf16((c * e / e.sum(1, keepdims=True)).sum(1)))

    def compressed_rows(self, layer: int, latents: np.ndarray) -> np.ndarray:
        """Stored compressed rows of a KV source."""
        ratio = self.ratios[layer]
        return fp4_e4m3(self.rope(latents, np.arange(len(latents)) * ratio, ratio))

    def index_keys(self, layer: int, latents: np.ndarray) -> np.ndarray:
        """Stored index keys of a KV source."""
        p, ratio = f"layers.{layer}.attn.indexer", self.ratios[layer]
        k = self.norm(p + ".k_norm", self.bf16_linear(p + ".wk", latents))
        return fp4_e8m0(self.rope(k, np.arange(len(latents)) * ratio, ratio))

    def index_scores(
        self, layer: int, x: np.ndarray, positions: np.ndarray, keys: np.ndarray, rounded: bool
    ) -> np.ndarray:
        """float32 [R, len(keys)], -inf where not visible; `rounded` as the published code rounds them, else float32."""
        p, n, d = f"layers.{layer}.attn", self.c["index_n_heads"], self.c["index_head_dim"]
        low = self.norm(p + ".q_norm", self.fp8(p + ".wq_a", x))
        q = self.fp8(p + ".indexer.wq_b", low).reshape(len(x), n, d)
        q = fp4_e8m0(self.rope(q, positions, self.ratios[layer]))
        w = bf16(self.bf16_linear(p + ".indexer.weights_proj", x) * F32(d**-0.5 * n**-0.5))
        once = bf16 if rounded else (lambda v: np.asarray(v, F32))
        s = np.maximum(once(q.astype(F64) @ keys.astype(F64).T), 0)
        total = once(once(s.astype(F64) * w[..., None]).astype(F64).sum(1))
        visible = (np.asarray(positions) + 1) // self.ratios[layer]
        return np.where(np.arange(len(keys)) < visible[:, None], total, -np.inf).astype(F32)

    def candidates(self, layer: int, scores: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Boolean mask [R, rows] of the rows in kept blocks."""
        size, keep = self.c["candidate_block_size"], self.c["candidate_topk_blocks"]
        rows = scores.shape[1]
        best = (
            np.pad(scores, ((0, 0), (0, -rows % size)), constant_values=-np.inf).reshape(len(scores), -1, size).max(-1)
        )
        for r, p in enumerate(positions):
            if visible := (int(p) + 1) // self.ratios[layer]:
                best[r, (visible - 1) // size] = np.inf
        order = np.argsort(-best, 1, kind="stable")[:, :keep]
        mask = np.zeros(best.shape, bool)
        np.put_along_axis(mask, order, True, 1)
        return (mask & (best > -np.inf)).repeat(size, 1)[:, :rows]

    def select(self, scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Best rows of every query, ascending, then -1: int32 [R, index_topk]; equal scores keep the lower row."""
        topk = self.c["index_topk"]
        masked = scores if mask is None else np.where(mask, scores, -np.inf)
        out = np.full((len(scores), topk), -1, np.int32)
        for r, row in enumerate(masked):
            best = np.argsort(-row, kind="stable")[: min(topk, int((scores[r] > -np.inf).sum()))]
            best = np.sort(best[row[best] > -np.inf])
            out[r, : len(best)] = best
        return out

    def attend(self, p: str, q: np.ndarray, columns: np.ndarray, keep: np.ndarray) -> np.ndarray:
        """o [R, H, hd] of q over columns [R, C, hd] where keep [R, C]; blocks of 64, P rounded before P.V."""
        scale, sink = F32(self.c["head_dim"] ** -0.5), self.vector(f"{p}.attn.attn_sink")
        top = np.full(q.shape[:2], -1e30, F32)
        den, out = np.zeros(q.shape[:2], F32), np.zeros(q.shape, F32)
        for t in range(0, columns.shape[1], 64):
            k, ok = columns[:, t : t + 64].astype(F64), keep[:, None, t : t + 64]
            s = np.where(ok, np.einsum("rhd,rkd->rhk", q.astype(F64), k).astype(F32) * scale, F32(-np.inf))
            new = np.maximum(top, s.max(-1))
            shrink = np.exp((top - new).astype(F64)).astype(F32)
            prob = np.exp((s - new[..., None]).astype(F64)).astype(F32)
            den = den * shrink + prob.sum(-1, dtype=F64).astype(F32)
            out = out * shrink[..., None] + np.einsum("rhk,rkd->rhd", bf16(prob).astype(F64), k).astype(F32)
            top = new
        den = den + np.exp((sink - top).astype(F64)).astype(F32)
        return bf16(out / den[..., None])

    def output(self, p: str, o: np.ndarray, positions: np.ndarray, ratio: int) -> np.ndarray:
        """Inverse RoPE, the grouped projection, then wo_b: [R, D]."""
        return self.project(p, self.rope(o, positions, ratio, inverse=True))

    def project(self, p: str, o: np.ndarray) -> np.ndarray:
        """The grouped projection of heads that are turned back, then wo_b: [R, D]."""
        groups = self.c["o_groups"]
        o = o.reshape(len(o), groups, -1)
        wo_a = bf16(self.matrix(f"{p}.attn.wo_a")).astype(F64).reshape(groups, -1, o.shape[-1])
        return self.fp8(f"{p}.attn.wo_b", bf16(np.einsum("tgd,grd->tgr", o.astype(F64), wo_a)).reshape(len(o), -1))

    def attention(
        self,
        layer: int,
        x: np.ndarray,
        rows: np.ndarray,
        compressed: np.ndarray | None = None,
        selected: np.ndarray | None = None,
    ) -> np.ndarray:
        """Output at `rows` of inputs x [N, D] from position 0 on and, for a ratio, the compressed columns."""
        p, ratio, width = f"layers.{layer}", self.ratios[layer], self.c["sliding_window"]
        rows = np.asarray(rows)
        window = self.window_rows(p, x, np.arange(len(x)), ratio)
        at = np.maximum(rows - width + 1, 0)[:, None] + np.arange(width)
        columns, keep = window[np.minimum(at, len(x) - 1)], at <= rows[:, None]
        if compressed is not None and selected is not None:
            columns = np.concatenate([columns, compressed[np.maximum(selected, 0)]], 1)
            keep = np.concatenate([keep, selected >= 0], 1)
        _, q = self.query(p, x[rows], rows, ratio)
        return self.output(p, self.attend(p, q, columns, keep), rows, ratio)

    # ---- docs/model.md#experts

    def route(self, p: str, x: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Expert ids by falling biased score [R, k] and their float32 weights."""
        z = self.f32_linear(f"{p}.ffn.gate", x).astype(F64)
        score = np.sqrt(np.where(z > 20, z, np.log1p(np.exp(np.minimum(z, 20))))).astype(F32)
        ids = np.argsort(-(score + self.vector(f"{p}.ffn.gate.bias")), 1, kind="stable")[:, :k]
        w = np.take_along_axis(score, ids, 1).astype(F64)
        return ids.astype(np.int32), (w / (w.sum(-1, keepdims=True) + EPS) * self.c["routed_scaling_factor"]).astype(
            F32
        )

    def expert(self, name: str, x: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        """One SwiGLU; the routing weight enters before the rounding."""
        limit = self.c["swiglu_limit"]
        g, u = (self.fp8(f"{name}.{w}", x).astype(F64) for w in ("w1", "w3"))
        g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
        t = g * sigmoid(g) * u
        return self.fp8(f"{name}.w2", bf16(t if weight is None else t * weight[:, None]))

    def moe(self, p: str, x: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """[R, D]: experts in ascending id, then the shared one, one rounding."""
        y = np.zeros(x.shape, F32)
        for e in np.unique(ids):
            r, k = np.nonzero(ids == e)
            y[r] += self.expert(f"{p}.ffn.experts.{e}", x[r], weights[r, k])
        return bf16(y + self.expert(f"{p}.ffn.shared_experts", x))

    def head(self, x: np.ndarray, norm: str = "norm") -> np.ndarray:
        """float32 logits of collapsed rows."""
        return self.f32_linear("head", self.norm(norm, x))
