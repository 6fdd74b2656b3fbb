"""A line chart as SVG text, enough for the benchmarks' results. Knows no measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 460, 60, 290, 60, 50
COLOURS = (
    "#1b6ca8", "#d1495b", "#2e8b57", "#b8860b", "#6a4c93", "#444444", "#00868b", "#c05299", "#7a7a00", "#a0522d",
    "#5fa8d3", "#ee964b", "#9aa0a6",
)  # fmt: skip
DASHES = ("", "6 3", "1.5 3")  # of the lines of one name
Points = Sequence[tuple[float, float]]


def line_chart(
    title: str, x_label: str, y_label: str, series: Mapping[str, Sequence[Points]], log: bool = False
) -> str:
    """SVG over positive x on a logarithmic axis, y from zero or logarithmic. A name has a colour and up to three lines:
    solid, dashed, dotted. Raises ValueError without points."""
    points = [p for lines in series.values() for line in lines for p in line]
    if not points:
        raise ValueError("a chart needs points")
    ticks, marks = sorted({x for x, _ in points}), _marks([y for _, y in points], log)
    left, right = math.log2(ticks[0]), math.log2(ticks[-1])

    def share(y: float) -> float:
        low, high = (math.log(m) if log else m for m in (marks[0], marks[-1]))
        return ((math.log(y) if log else y) - low) / (high - low)

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log2(x) - left) / (right - left or 1)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - share(y) * (HEIGHT - TOP - BOTTOM)

    def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 22, title, "start"),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label),
        text(20, TOP - 14, y_label, "start"),
    ]
    for x in ticks:
        out.append(text(at(x, marks[0])[0], HEIGHT - BOTTOM + 18, f"{x:g}"))
    for mark in marks:
        y = at(ticks[0], mark)[1]
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(text(LEFT - 8, y + 4, f"{mark:g}", "end"))
    for i, (name, lines) in enumerate(series.items()):
        colour, y = COLOURS[i % len(COLOURS)], TOP + 18 * i
        for line, dash in zip(lines, DASHES):
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in line))
            dashed = f' stroke-dasharray="{dash}"' if dash else ""
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashed}/>')
        out.append(f'<rect x="{WIDTH - RIGHT + 15}" y="{y - 6}" width="12" height="4" fill="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 32, y, name, "start"))
    return "\n".join([*out, "</svg>"]) + "\n"


def _marks(values: Sequence[float], log: bool) -> list[float]:
    """Round numbers on the y axis, the first and last of which enclose the values."""
    if log:
        first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        every = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
        low, high = max(m for m in every if m <= min(values)), min(m for m in every if m >= max(values))
        return [m for m in every if low <= m <= max(high, 2 * low)]
    step = 10 ** math.floor(math.log10(max(values))) / 2
    return [i * step for i in range(math.ceil(max(values) / step) + 1)]
