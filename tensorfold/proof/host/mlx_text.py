"""The Metal text that mx.fast.metal_kernel generates around a kernel's body, and the host's way into it.

The rules are MLX's: inputs of fewer than 8 elements are `constant`, 0-d ones references, attributes are found by
substring in the body. A test compares this text with what MLX prints. Knows no compiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mlx.core as mx

from tensorfold.kernels.kernel import Kernel, TemplateValue

PRELUDE = "#include <metal_stdlib>\nusing namespace metal;\ntypedef bfloat bfloat16_t;\ntypedef half float16_t;\n"
TYPES = {
    mx.float32: "float", mx.float16: "float16_t", mx.bfloat16: "bfloat16_t", mx.bool_: "bool", mx.uint8: "uint8_t",
    mx.int8: "int8_t", mx.uint16: "uint16_t", mx.int16: "int16_t", mx.uint32: "uint32_t", mx.int32: "int32_t",
    mx.uint64: "uint64_t", mx.int64: "int64_t",
}  # fmt: skip
_SIZE = "((I[9] * I[10] * I[11] + {0} - 1) / {0})"
# attribute -> (type, its value from the emulator's array I), in MLX's order
ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": ("uint", _SIZE.format(4)),
    "dispatch_simdgroups_per_threadgroup": ("uint", _SIZE.format(32)),
    "dispatch_threads_per_threadgroup": ("uint3", "(uint3){I[9], I[10], I[11]}"),
    "grid_origin": ("uint3", "(uint3){0, 0, 0}"),
    "grid_size": ("uint3", "(uint3){I[12], I[13], I[14]}"),
    "quadgroup_index_in_threadgroup": ("uint", "(I[18] >> 2)"),
    "quadgroups_per_threadgroup": ("uint", _SIZE.format(4)),
    "simdgroup_index_in_threadgroup": ("uint", "(I[18] >> 5)"),
    "simdgroups_per_threadgroup": ("uint", _SIZE.format(32)),
    "thread_execution_width": ("uint", "32u"),
    "thread_index_in_quadgroup": ("uint", "(I[18] & 3)"),
    "thread_index_in_simdgroup": ("uint", "(I[18] & 31)"),
    "thread_index_in_threadgroup": ("uint", "I[18]"),
    "thread_position_in_grid": ("uint3", "(uint3){I[0], I[1], I[2]}"),
    "thread_position_in_threadgroup": ("uint3", "(uint3){I[3], I[4], I[5]}"),
    "threadgroup_position_in_grid": ("uint3", "(uint3){I[6], I[7], I[8]}"),
    "threadgroups_per_grid": ("uint3", "(uint3){I[15], I[16], I[17]}"),
    "threads_per_grid": ("uint3", "(uint3){I[12], I[13], I[14]}"),
    "threads_per_simdgroup": ("uint", "32u"),
    "threads_per_threadgroup": ("uint3", "(uint3){I[9], I[10], I[11]}"),
}


@dataclass(frozen=True)
class Input:
    """What MLX's text depends on of one input."""

    dtype: mx.Dtype
    scalar: bool
    small: bool


@dataclass(frozen=True)
class Generated:
    """The Metal text, the host's entry to append after translation, and the extra arguments it takes for shapes."""

    text: str
    entry: str
    shapes: tuple[tuple[str, str], ...]


def generate(
    kernel: Kernel, inputs: Sequence[Input], template: Mapping[str, TemplateValue], outputs: Sequence[mx.Dtype]
) -> Generated:
    """The text of one launch of a kernel."""
    header, body = kernel.texts[True]
    return around(f"tf_{kernel.name}", kernel.inputs, kernel.outputs, header, body, inputs, template, outputs)


def around(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    header: str,
    body: str,
    inputs: Sequence[Input],
    template: Mapping[str, TemplateValue],
    outputs: Sequence[mx.Dtype],
) -> Generated:
    """The text around any body, by MLX's rules."""
    declared: list[str] = []
    passed: list[str] = []
    shapes: list[tuple[str, str]] = []

    def add(declaration: str, cast: str) -> None:
        declared.append(f"  {declaration} [[buffer({len(declared)})]]")
        passed.append(cast.format(f"A[{len(passed)}]"))

    for input_name, given in zip(input_names, inputs):
        kind = f"const {'constant' if given.small else 'device'} {TYPES[given.dtype]}"
        add(
            f"{kind}{'&' if given.scalar else '*'} {input_name}",
            f"({kind}*){{0}}" if not given.scalar else f"*({kind}*){{0}}",
        )
        for suffix, element in (("shape", "int*"), ("strides", "int64_t*"), ("ndim", "int&")):
            if not given.scalar and f"{input_name}_{suffix}" in body:
                pointer = f"(const constant {element.rstrip('*&')}*){{0}}"
                add(
                    f"const constant {element} {input_name}_{suffix}",
                    pointer if element.endswith("*") else f"*{pointer}",
                )
                shapes.append((input_name, suffix))
    for output_name, dtype in zip(output_names, outputs):
        add(f"device {TYPES[dtype]}* {output_name}", f"(device {TYPES[dtype]}*){{0}}")
    used = [attribute for attribute in ATTRIBUTES if attribute in body]
    declared += [f"  {ATTRIBUTES[a][0]} {a} [[{a}]]" for a in used]
    passed += [ATTRIBUTES[a][1] for a in used]

    parameters = ", ".join(f"{_template_kind(value)} {key}" for key, value in template.items())
    values = ", ".join(_template_value(value) for value in template.values())
    text = PRELUDE + header
    text += f"template <{parameters}>\n" if template else ""
    text += f"[[kernel]] void {name}(\n" + ",\n".join(declared) + f") {{\n{body}\n}}\n"
    called = f"{name}<{values}>" if template else name
    if template:
        text += f'\ntemplate [[host_name("{name}")]] [[kernel]] decltype({called}) {called};\n'
    entry = (
        'extern "C" void tf_entry(ulong arguments, ulong ids) { __global ulong* A = (__global ulong*)arguments; '
        f"__global uint* I = (__global uint*)ids; {called}({', '.join(passed)}); }}\n"
    )
    return Generated(text, entry, tuple(shapes))


def _template_kind(value: TemplateValue) -> str:
    return "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "typename"


def _template_value(value: TemplateValue) -> str:
    return str(int(value)) if isinstance(value, (bool, int)) else TYPES[value]
