"""Words and rules of the Metal language that clang's C++ for OpenCL does not know. Knows no tree: it reads tokens."""

from __future__ import annotations

from tensorfold.proof.host.tokens import Stream

SCALARS = "bool char uchar short ushort int uint long ulong half float bfloat".split()
VECTORS = {scalar + n for scalar in SCALARS for n in "234"}
ATTRIBUTES = set(
    """kernel host_name buffer threadgroup function_constant max_total_threads_per_threadgroup unroll clang nodiscard
    maybe_unused fallthrough dispatch_quadgroups_per_threadgroup dispatch_simdgroups_per_threadgroup
    dispatch_threads_per_threadgroup grid_origin grid_size quadgroup_index_in_threadgroup quadgroups_per_threadgroup
    simdgroup_index_in_threadgroup simdgroups_per_threadgroup thread_execution_width thread_index_in_quadgroup
    thread_index_in_simdgroup thread_index_in_threadgroup thread_position_in_grid thread_position_in_threadgroup
    threadgroup_position_in_grid threadgroups_per_grid threads_per_grid threads_per_simdgroup threads_per_threadgroup
    id texture sampler visible stitchable intersection early_fragment_tests gnu always_inline noinline""".split()
)
OPENCL_WORDS = {
    "local", "global", "generic", "pipe", "private_", "uniform_", "read_only", "write_only", "read_write", "event_t",
    "image1d_t", "__kernel",
}  # fmt: skip
_CUDA = {
    "__syncthreads", "__shfl_xor_sync", "__shfl_down_sync", "__shared__", "threadIdx", "blockIdx", "blockDim",
    "__global__", "__device__", "__syncwarp",
}  # fmt: skip
_FORBIDDEN = {
    "goto", "asm", "throw", "try", "thread_local", "dynamic_cast", "typeid", "virtual", "new", "delete", "register",
}  # fmt: skip
_ORDERS = {"memory_order_acquire", "memory_order_release", "memory_order_acq_rel", "memory_order_seq_cst"}
_CPP20 = {"concept", "requires", "co_await", "co_yield", "co_return", "consteval", "constinit", "import"}


def complaint(stream: Stream, i: int, in_function: bool) -> str | None:
    """What Metal says against the word at i, or None."""
    word, before, after = stream.text(i), stream.before(i), stream.after(i)
    if word == "double" and before not in (".", "->"):
        return "'double' is not supported in Metal"
    if word == "long" and after == "long":
        return "'long long' is not supported in Metal"
    if word in _FORBIDDEN and before not in (".", "->", "::"):
        return f"'{word}' is not supported in Metal"
    if word == "static" and in_function:
        return "variables in function scope cannot be declared static"
    if word == "std" and after == "::":
        return "use of undeclared identifier 'std'"
    if word in _ORDERS and stream.call_around(i) != "atomic_thread_fence":
        return f"'{word}': atomic functions take memory_order_relaxed only"
    if word in _CPP20:
        return f"C++20 '{word}' is not available in Metal"
    if word in _CUDA:
        return f"use of undeclared identifier '{word}' (CUDA)"
    return None
