"""hc_post and hc_post_dots: planted mistakes, each of which must turn a gate red. Knows no input."""

from __future__ import annotations

from tensorfold.proof.families.hc_mix.mistakes import DOTS
from tensorfold.proof.proof import Mistake

_POST = "hc_post.h"
# mistakes of the header, planted here for every kernel that includes it
POST = (
    Mistake("streams in another order", "p_fma(c[i], v[i], mixed)", "p_fma(c[N - i], v[N - i], mixed)", _POST),
    Mistake("product and sum not fused", "p_fma(c[i], v[i], mixed)", "p_add(p_mulz(c[i], v[i]), mixed)", _POST),
    Mistake("output's product fused", "p_add(mixed, p_mulz(post, own))", "p_fma(post, own, mixed)", _POST),
    Mistake("last stream missed", "i < N; i++", "i + 1 < N; i++", _POST),
    Mistake(
        "streams' sums not flushed",
        "p_flush(p_fma(c[i], v[i], mixed))",
        "p_fma(c[i], v[i], mixed)",
        _POST,
        ("host",),
    ),
)
# and of the text of every kernel that holds all of a row's weights
ROWS = (
    Mistake("comb transposed", "c[i % uint(N) * uint(N) + i / uint(N)]", "c[i]"),
    Mistake("one weight for all streams", "v, p[j], own)", "v, p[0], own)"),
    Mistake("tail missed", "if (d < uint(D)) {", "if (d + 32u < uint(D)) {"),
    Mistake("edge threads kept", "if (d < uint(D)) {", "{", backends=("host",)),
)


_POST_DOTS = "post_dots.h"
POST_DOTS = (
    *POST,
    *DOTS,
    Mistake("comb transposed", "(row * uint(N) + i) * uint(N) + j", "(row * uint(N) + j) * uint(N) + i", _POST_DOTS),
    Mistake("one weight for all streams", "p_load(post[row * uint(N) + j])", "p_load(post[row * uint(N)])", _POST_DOTS),
    Mistake("products of streams not rounded", "p_round_bf(spread", "(spread", _POST_DOTS),
    Mistake("barrier dropped", "  P_BARRIER();\n", "", _POST_DOTS, ("host",)),
    Mistake("end of the row missed", "if (first + i < width) dots", "if (first + i + 1u < width) dots", _POST_DOTS),
    Mistake("beyond the row", "if (at < width) {", "{", _POST_DOTS, ("host",)),
    Mistake("another row's products", "held[h * 512u + i]", "held[i]", _POST_DOTS),
    Mistake("factors of the first places", "if (start <= uint(M)) dots_factors", "if (false) dots_factors", _POST_DOTS),
    Mistake("factors beyond the row read", "i < uint(K) && start", "start", "hc_dots.h", ("host",)),
)


MISTAKES: dict[str, tuple[Mistake, ...]] = {
    "hc_post": POST + ROWS,
    "hc_post_dots": POST_DOTS,
}
