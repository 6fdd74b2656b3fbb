"""A good Metal kernel and 55 changes to it, with what Apple's compiler does about each. Knows no checker."""

from __future__ import annotations

from typing import NamedTuple

GOOD = """#include <metal_stdlib>
using namespace metal;
constant float tab[4] = {1.0f, 2.0f, 3.0f, 4.0f};
struct Blk { half d; int8_t q[32]; float first() const { return d * q[0]; } };
inline float f(float x) { return x * 2.0f; }
@HDR@
[[kernel]] void k(const device float* x [[buffer(0)]], device float* y [[buffer(1)]],
   const constant int& n [[buffer(2)]], device atomic_uint* cnt [[buffer(3)]],
   uint3 tid [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float s[64];
  float4 v = float4(x[0], x[1], x[2], x[3]);
  float a = f(v.x) + tab[tid.x & 3];
  s[lane] = a; threadgroup_barrier(mem_flags::mem_threadgroup);
  @BODY@
  y[tid.x] = simd_sum(s[lane]) + exp(a);
}
"""


class Planted(NamedTuple):
    """A change: text for the place before the kernel, text for its body, and whether Metal rejects it."""

    name: str
    header: str
    body: str
    rejected: bool


PLANTED = (
    Planted("nothing: the good kernel", "", "", False),
    Planted("missing semicolon", "", "float q = 1.0f float r = 2.0f;", True),
    Planted("undeclared identifier", "", "y[0] = zz;", True),
    Planted(
        "pointer parameter without address space", "inline float g(const float* p) { return p[0]; }", "y[0] = 1;", True
    ),
    Planted("local pointer without address space", "", "float loc[2]; float* p = loc; y[0] = p[0];", True),
    Planted("reference without address space", "inline void g(float& r) { r = 1.0f; }", "", True),
    Planted("device pointer to threadgroup pointer", "", "threadgroup float* p = y; p[0] = 1;", True),
    Planted(
        "threadgroup array to a device parameter",
        "inline float g(const device float* p) { return p[0]; }",
        "y[0] = g(s);",
        True,
    ),
    Planted("device lvalue to a `thread float&`", "inline void g(thread float& r) { r = 1.0f; }", "g(y[0]);", True),
    Planted("write through a const device pointer", "", "x[0] = 1.0f;", True),
    Planted("write to a constant table", "", "tab[0] = 1.0f;", True),
    Planted("double variable", "", "double d = 1.0; y[0] = d;", True),
    Planted("long double", "", "long double d = 1.0; y[0] = d;", True),
    Planted("long long", "", "long long d = 1; y[0] = d;", True),
    Planted("recursion", "inline int fact(int q) { return q < 2 ? 1 : q * fact(q - 1); }", "y[0] = fact(3);", True),
    Planted("wrong swizzle .xyw on a float2", "", "float2 w = v.xyz.xy; y[0] = w.z;", True),
    Planted("misspelt swizzle .xq", "", "y[0] = v.xq.x;", True),
    Planted("implicit float4 -> float", "", "float q = v;", True),
    Planted("implicit float2 -> float4", "", "float4 q = v.xy;", True),
    Planted("implicit int4 -> float4", "", "float4 q = int4(1,2,3,4);", True),
    Planted("float4(float3) short constructor", "", "float4 q = float4(v.xyz);", True),
    Planted("implicit float -> bfloat", "", "bfloat q = v.x; y[0] = q;", True),
    Planted("max(half, float): ambiguous", "", "half h = 1.0h; y[0] = max(h, v.x);", True),
    Planted("min(int, uint): ambiguous", "", "y[0] = min(int(tid.x), tid.y);", True),
    Planted("threadgroup array of run-time size", "", "threadgroup float t[n]; t[0]=1;", True),
    Planted("run-time sized local array", "", "float t[n]; t[0]=1;", True),
    Planted(
        "threadgroup variable in a plain function",
        "inline float g(uint i) { threadgroup float q[32]; q[i] = 1; return q[0]; }",
        "y[0]=g(1);",
        True,
    ),
    Planted("program-scope variable not constant", "float glob = 1.0f;", "y[0]=glob;", True),
    Planted("static local variable", "", "static int q = 0; q++;", True),
    Planted("unknown attribute", "", "y[0]=1;", False),
    Planted("std::min", "", "y[0] = std::min(1.0f, 2.0f);", True),
    Planted("#include <cmath>", "#include <cmath>\n", "", True),
    Planted("new/delete", "", "thread float* p = new float; y[0] = 1;", True),
    Planted("exceptions", "", "throw 1;", True),
    Planted("goto", "", "goto e; e: y[0]=1;", True),
    Planted("virtual member", "struct V { virtual float g() { return 1; } };", "", True),
    Planted("lambda", "", "auto l = [&](int i) { return i + lane; }; y[0] = l(1);", False),
    Planted("concepts (C++20)", "template <class T> concept C = true;", "", True),
    Planted(
        "designated initialisers (C++20)", "struct D { int a; int b; };", "D d = {.a = 1, .b = 2}; y[0]=d.a;", False
    ),
    Planted("CUDA: __syncthreads()", "", "__syncthreads();", True),
    Planted("CUDA: threadIdx.x", "", "y[0] = threadIdx.x;", True),
    Planted("CUDA: __shfl_xor_sync", "", "y[0] = __shfl_xor_sync(0xffffffffu, a, 1);", True),
    Planted("threadgroup_barrier() without flags", "", "threadgroup_barrier();", True),
    Planted("simd_sum of a 64-bit integer", "", "long q = 1; y[0] = simd_sum(q);", True),
    Planted("simd_shuffle of a struct", "", "Blk b; b.d = 1; y[0] = simd_shuffle(b, 0).d;", True),
    Planted("as_type between sizes", "", "y[0] = as_type<half>(a);", True),
    Planted(
        "atomic_fetch_add on a plain pointer", "", "atomic_fetch_add_explicit(y, 1.0f, memory_order_relaxed);", True
    ),
    Planted("atomic with memory_order_seq_cst", "", "atomic_fetch_add_explicit(cnt, 1u, memory_order_seq_cst);", True),
    Planted("float index into array", "", "y[a] = 1.0f;", True),
    Planted("% on floats", "", "y[0] = a % 2.0f;", True),
    Planted("ternary with a vector condition", "", "float4 q = (v > 0.0f) ? v : -v;", False),
    Planted("method call on a device struct", "", "device Blk* b = (device Blk*)y; y[0] = b->first();", True),
    Planted(
        "kernel returning a value", "[[kernel]] float k2(device float* p [[buffer(0)]]) { return 1.0f; }", "", True
    ),
    Planted(
        "buffer index twice",
        "[[kernel]] void k3(device float* p [[buffer(0)]], device float* q [[buffer(0)]]) { p[0]=1; }",
        "",
        True,
    ),
    Planted("uninitialised read", "", "float q; y[0] = q;", False),
)
# the host is stricter than Metal here, which only warns: no kernel of ours may do either
STRICTER = ("unknown attribute", "uninitialised read")


def source(planted: Planted) -> str:
    """The good kernel with one change."""
    text = GOOD.replace("@HDR@", planted.header).replace("@BODY@", planted.body)
    if planted.name == "unknown attribute":
        text = text.replace("[[thread_index_in_simdgroup]]", "[[thread_idx_in_simdgroup]]")
    return text
