"""What a GPU leaves undefined, the emulator refuses; what it runs, it runs in any order and with any flushing."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.proof.host.emulator import EmulatorError
from tests.support.hostkit import needs_clang, run_body

pytestmark = needs_clang
X = np.arange(512, dtype=np.float32)
I = "uint i = thread_position_in_grid.x, l = thread_position_in_threadgroup.x; "  # noqa: E741
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup); "
SHARE = "threadgroup float a[256]; "

REFUSED = {
    "barrier in a divergent branch": (
        I + "if ((i & 1) == 0) " + BARRIER + "y[i] = x[i];",
        "returned while|reached after",
    ),
    "early return before a barrier": (
        I + "if (i >= 500) return; " + BARRIER + "y[i] = x[i];",
        "returned while|reached after",
    ),
    "shuffle under divergence": (
        I + "float v = x[i]; if (thread_index_in_simdgroup < 16) v += simd_shuffle_xor(v, 16); y[i] = v;",
        "inactive|different operations|deadlock",
    ),
    "two SIMD operations by branch": (
        I
        + "float v = x[i];\nif (l % 32 < 16) v = simd_shuffle_xor(v, 1);\nelse v = simd_shuffle_xor(v, 2);\ny[i] = v;",
        "different operations",
    ),
    "two barriers by branch": (I + f"\nif (l < 128) {BARRIER}\nelse {BARRIER}\ny[i] = x[i];", "different barriers"),
    "read far past the end": (I + "y[i] = x[i + 4096];", "outside the buffers"),
    "write to an input": (I + "((device float*)x)[i] = 1; y[i] = 0;", "const input"),
    "too much threadgroup memory": (
        "threadgroup float a[9000]; " + I + "a[i] = 1; " + BARRIER + "y[i] = a[i];",
        "threadgroup memory exceeds 32768",
    ),
}
TRACKED = {
    "missing barrier": (
        SHARE + I + "a[l] = x[i]; y[i] = a[(l + 1) % 256];",
        "race in threadgroup memory|no thread has written",
    ),
    "barrier of the wrong memory": (
        SHARE + I + "a[l] = x[i]; threadgroup_barrier(mem_flags::mem_device); y[i] = a[(l + 1) % 256];",
        "race in threadgroup memory",
    ),
    "second use without a barrier": (
        SHARE + I + "a[l] = x[i]; " + BARRIER + "float v = a[(l + 1) % 256]; a[l] = v; y[i] = v;",
        "race in threadgroup memory",
    ),
    "shuffles order no memory": (
        SHARE + I + "a[l] = x[i]; float v = simd_shuffle_xor(x[i], 1); y[i] = v + a[l ^ 1];",
        "race in threadgroup memory",
    ),
    "two threads write one element": (I + "y[i / 2] = x[i]; y[256 + i / 2] = 1;", "race in an output"),
    "two groups touch one element": (I + "y[i] = x[i]; if (l == 0) y[(i + 256) % 512] = 1;", "race in an output"),
    "read one element too far": (I + "y[i] = x[i + 1];", "offset 2048 of a buffer of 2048 bytes"),
    "read one element before": (I + "y[i] = x[int(i) - 1];", "offset -4 of a buffer"),
    "write one element too far": (I + "y[i + 1] = x[i]; y[0] = 0;", "race|offset 2048 of a buffer"),
    "index past a threadgroup array": (
        "threadgroup float a[255]; " + I + "a[l] = x[i]; y[i] = a[l];",
        "outside every threadgroup",
    ),
    "unwritten threadgroup memory": (
        SHARE + I + "a[l / 2] = 1; " + BARRIER + "y[i] = a[l];",
        "race|no thread has written",
    ),
    "reads its own output first": (I + "y[i] = y[i] + x[i];", "an output that no thread has written"),
}


@pytest.mark.parametrize("body, message", REFUSED.values(), ids=REFUSED)
def test_refused(body: str, message: str) -> None:
    with pytest.raises(EmulatorError, match=message):
        run_body(body, X)


@pytest.mark.parametrize("body, message", TRACKED.values(), ids=TRACKED)
def test_refused_when_tracked(body: str, message: str) -> None:
    with pytest.raises(EmulatorError, match=message):
        run_body(body, X, track=True)


def test_simd_barrier_orders_memory_of_its_lanes() -> None:
    body = SHARE + I + "a[l] = x[i]; simdgroup_barrier(mem_flags::mem_threadgroup); y[i] = a[l ^ 1];"
    assert np.array_equal(run_body(body, X, track=True).outputs[0], X.reshape(-1, 2)[:, ::-1].reshape(-1))
    with pytest.raises(EmulatorError, match="race|no thread has written"):
        run_body(body.replace("a[l ^ 1]", "a[l ^ 32]"), X, track=True)


def test_a_good_kernel_is_left_alone() -> None:
    body = (
        SHARE
        + I
        + "a[l] = x[i]; "
        + BARRIER
        + "float v = a[255 - l]; "
        + BARRIER
        + "a[l] = v; "
        + BARRIER
        + "y[i] = a[255 - l];"
    )
    for schedule in (0, 1, 7):
        assert np.array_equal(run_body(body, X, track=True, schedule=schedule).outputs[0], X)


def test_atomics_may_meet() -> None:
    body = I + "threadgroup atomic<uint> n = 0; atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed); " + BARRIER
    body += "y[i] = float(atomic_load_explicit(&n, memory_order_relaxed));"
    assert (run_body(body, X, track=True).outputs[0] == 256).all()


def test_unwritten_outputs_are_counted() -> None:
    assert run_body(I + "if (i > 2) y[i] = x[i];", X, track=True).unwritten == 12
    assert np.isnan(run_body(I + "if (i == 0) y[i] = x[i];", X).outputs[0][1:]).all()


def test_schedules_change_the_order_of_threads() -> None:
    race = SHARE + I + "a[l] = x[i]; y[i] = a[(l + 1) % 256];"
    runs = [run_body(race, X, schedule=s).outputs[0].tobytes() for s in (0, 1, 5)]
    assert len(set(runs)) == 3


def test_flushing_is_on_and_off() -> None:
    tiny = np.full(512, 1e-39, np.float32)
    body = I + "y[i] = x[i] + x[i];"
    assert (run_body(body, tiny, flush=True).outputs[0] == 0).all()
    assert (run_body(body, tiny).outputs[0] > 0).all()


def test_ragged_groups_run_as_dispatch_threads_does() -> None:
    done = run_body(I + "y[i] = threads_per_threadgroup.x;", X, grid=(300, 1, 1), shape=(300,)).outputs[0]
    assert (done[:256] == 256).all() and (done[256:] == 44).all()


def test_a_failure_leaves_the_next_run_alone() -> None:
    with pytest.raises(EmulatorError, match="outside the buffers"):
        run_body(I + "y[i] = x[i + 4096];", X, workers=2)
    assert np.array_equal(run_body(I + "y[i] = x[i];", X, workers=2).outputs[0], X)


def test_arithmetic_is_ieee() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal(512).astype(np.float32)
    y = run_body(I + "y[i] = x[i] / x[511 - i] + precise::sqrt(abs(x[i])) * x[i];", x).outputs[0]
    assert np.array_equal(y, x / x[::-1] + np.sqrt(np.abs(x)) * x)
    assert mx.float32 == mx.array(x).dtype
