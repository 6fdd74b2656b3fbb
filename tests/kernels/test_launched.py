"""What is launched: every kernel that is kept with what runs, and what docs/architecture.md lists."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from tensorfold import Model, ModelConfig, kernels
from tensorfold.backend.kernels import KernelBackend
from tensorfold.backend.kernels import backend as kernel_backend
from tensorfold.checkpoint.reader import Checkpoint
from tensorfold.kernels import Kernel, Launch, launch
from tensorfold.kernels import kernel as kernel_module
from tensorfold.network.attention import Shared
from tensorfold.network.dspark import Drafter
from tensorfold.network.forward import Layer, Network
from tensorfold.network.plan import Plan, Planner, Segment
from tensorfold.network.streaming import ExpertPool
from tensorfold.roles import LayerRole
from tensorfold.state.caches import PAGE_TOKENS, Caches
from tests.support.goldens import DATA, EXAMPLE

# operations of a backend that no layer of a model needs, because another launch follows or comes before
UNNEEDED = {
    "hc_post": "hc_leave of a sublayer that is not the experts', without what mixes next: experts follow",
    "moe_join": "joined, the experts' sum by itself: moe_leave spreads it at once",
}
Rows = list[list[str]]


class Recording:
    """Launches nothing: outputs of the right shapes, and the name of every kernel in order."""

    name = "cuda"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(
        self, kernel: Kernel, arrays: Sequence[mx.array], plan: Launch, init_value: float | None = None
    ) -> list[mx.array]:
        launch.check_types(kernel, arrays, plan)
        self.seen.append(kernel.name)
        return [(mx.ones if d == mx.bool_ else mx.zeros)(s, d) for s, d in zip(plan.shapes, plan.dtypes)]

    def take(self) -> list[str]:
        """What was launched since the last look."""
        taken, self.seen = self.seen, []
        return taken


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Recording:
    recording = Recording()
    for module in (kernel_module, kernel_backend):
        monkeypatch.setattr(module, "launcher", lambda name: recording)
    return recording


def test_models_launch_every_kernel_that_is_kept_with_them(launches: Recording) -> None:
    prompt: Any = [list(range(1, 200))]
    for experts in ("mapped", "streamed"):
        with Model.load(EXAMPLE, backend="cuda", experts=experts, progress=False) as model:
            model.generate(prompt, max_tokens=4)
            model.generate(prompt, max_tokens=4, temperature=0.8, draft=False)
    assert set(kernels.all_kernels()) - set(launches.seen) == UNNEEDED.keys()


# ---- the lists of docs/architecture.md


def tables() -> Iterator[Rows]:
    """The tables of the section on launches, without heads, marks taken off names."""
    page = (Path(DATA).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("\n## Launches\n")[1].split("\n## ")[0]
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        rows = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table.splitlines()]
        yield rows[2:]


LAYER, KINDS, STREAMED, INGEST, DRAFTS = tables()
# which layers a line speaks of: a layer's role and whether the one behind it mixes the same streams
IN: dict[str, Callable[[LayerRole, bool], bool]] = {
    "every layer": lambda role, followed: True,
    "Engram layers": lambda role, followed: role.engram is not None,
    "first and Engram layers": lambda role, followed: role.layer == 0 or role.engram is not None,
    "tapped layers": lambda role, followed: role.tap is not None,
    "index sources": lambda role, followed: role.owns_index,
    "other than index sources": lambda role, followed: not role.owns_index,
    "KV sources": lambda role, followed: role.owns_kv,
    "KV sources of ratio 2": lambda role, followed: role.owns_kv and role.ratio == 2,
    "candidate source": lambda role, followed: role.candidates == "write",
    "before a layer without Engram": lambda role, followed: followed,
    "last and before Engram layers": lambda role, followed: not followed,
}


def listed(roles: Sequence[LayerRole], i: int, closing: bool, many: bool) -> list[str]:
    """The page's launches of layer i; closing: a row closes; many: an index source sees more rows than it selects."""
    role, followed = roles[i], i + 1 < len(roles) and roles[i + 1].engram is None
    when = {
        "": True, "a row closes": closing,
        "more rows than it selects, or candidate source": many or role.candidates == "write",
    }  # fmt: skip
    return [name for name, _, _, where, held in LAYER if IN[where](role, followed) and when[held]]


def launched(
    launches: Recording, network: Network, layer: Layer, following: Layer | None, plan: Plan, caches: Caches,
    carried: Any,
) -> tuple[list[str], Any]:  # fmt: skip
    """One layer as `Network` runs it."""
    s, shared = carried
    s = layer.inject(s, plan)
    if layer.role.tap is not None:
        network.backend.hc_mean(s.x)
    s, _ = layer(s, plan, caches, shared, following)
    return launches.take(), (s, shared)


@pytest.mark.parametrize("rows,start", [(1, 300), (1, 301), (6, 300), (64, 512)])
@pytest.mark.parametrize("topk", [32, 4096])
def test_layers_launch_what_the_page_lists(launches: Recording, rows: int, start: int, topk: int) -> None:
    """Every kind of layer, rows that close a group and rows that do not, more and fewer rows than are selected."""
    with Checkpoint.open(EXAMPLE) as checkpoint:
        config = replace(checkpoint.config, index_topk=topk, candidate_topk_blocks=topk)
        network = Network(checkpoint, config, KernelBackend(config, "cuda"))
    pages = (start + rows) // PAGE_TOKENS + 1
    segment = Segment(0, start, [5] * rows, range(1, pages + 1), [rows - 1])
    each, wide = (config.engram_max_ngram_size - 1) * config.engram_n_heads, config.engram_head_dim
    table = mx.zeros((rows, each, wide), mx.uint8), mx.zeros((rows, each, wide // 32), mx.uint8)
    plan = replace(Planner(config).build([segment], 1, pages + 1), engram=(table, table))
    caches = Caches(config, 1, pages + 1)
    carried = network.embed(plan.ids), Shared({})
    assert launches.take() == ["embed"]
    for i, (layer, following) in enumerate(zip_longest(network.layers, network.layers[1:])):
        got, carried = launched(launches, network, layer, following, plan, caches, carried)
        closes = bool(layer.role.ratio) and (start + rows) // layer.role.ratio > start // layer.role.ratio
        assert got == listed(config.roles, i, closes, topk < start // 2), f"layer {i}"
    network.head(carried[0].x, carried[0].pre)
    assert launches.take() == ["hc_collapse_norm", "matvec_bf16"]


def test_the_page_counts_launches_of_the_published_layers() -> None:
    roles = ModelConfig.from_hf(json.loads((DATA / "config" / "hf.json").read_text())).roles
    named = {int(n): row for row in KINDS for n in re.findall(r"\d+", row[1]) if row[1] != "all others to 36"}
    (rest,) = (row for row in KINDS if row[1] == "all others to 36")
    for i in range(len(roles)):
        counts = [len(listed(roles, i, closing, True)) for closing in (True, False)]
        if roles[i].ratio == 1:
            counts[1] = counts[0]  # every row closes
        assert [int(n) for n in named.get(i, rest)[2:]] == counts, i


def test_the_drafter_and_streamed_experts_launch_what_the_page_lists(launches: Recording) -> None:
    with Checkpoint.open(EXAMPLE) as checkpoint:
        config, backend = checkpoint.config, KernelBackend(checkpoint.config, "cuda")
        network = Network(checkpoint, config, backend, pool=ExpertPool(backend, checkpoint, config.n_routed_experts))
        drafter = Drafter(checkpoint, config, backend, network)
        launches.take()
        moe, hidden = network.layers[0].moe, mx.zeros((2, config.hidden_size), mx.bfloat16)
        moe(hidden, backend.act_quant_fp8(hidden))
        names = [row[0] for row in STREAMED]
        assert launches.take() == ["act_quant_fp8_planes", "matvec_bf16", "route", *names]
    table = mx.zeros((2, config.qk_rope_head_dim // 2, 2))
    drafter._ingest_rows(mx.zeros((2, 3 * config.hidden_size), mx.bfloat16), table)
    once, each = ([row[0] for row in INGEST if row[2].startswith("each stage") is own] for own in (False, True))
    assert launches.take() == once + each * len(drafter.stages)
    slot, table = mx.array([0]), mx.zeros((1, drafter.block, config.qk_rope_head_dim // 2, 2))
    where = Caches(config, 1, 1, len(drafter.stages)).rings, slot, slot, slot, table
    drafter._warm_rows(*where, mx.zeros((1,)), mx.zeros((1, 2), mx.uint32))
    stages = [LayerRole(i, 0, None, None, None, None, None) for i in range(len(drafter.stages))]
    layers = [name for i in range(len(stages)) for name in listed(stages, i, False, False)]
    once, each = ([row[0] for row in DRAFTS if row[2].startswith("each draft") is draft] for draft in (False, True))
    assert launches.take() == ["embed", *layers, *once, *each * drafter.block]


def test_the_page_names_the_family_of_each_kernel() -> None:
    family = {k.name: name for name, each in kernels.families().items() for k in each}
    wrong = [row for table in (LAYER, STREAMED, INGEST, DRAFTS) for row in table if family.get(row[0]) != row[1]]
    assert wrong == []
