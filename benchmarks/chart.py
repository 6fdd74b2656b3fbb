"""A line chart as SVG text, enough for the benchmarks' results. Knows no measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 460, 60, 230, 40, 50
COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#b8860b", "#6a4c93", "#444444", "#00868b", "#c05299", "#7a7a00", "#a0522d")
Points = Sequence[tuple[float, float]]


def line_chart(title: str, x_label: str, y_label: str, series: Mapping[str, Points]) -> str:
    """SVG of one line a series over positive x on a logarithmic axis, y from zero; raises ValueError without points."""
    points = [p for line in series.values() for p in line]
    if not points:
        raise ValueError("a chart needs points")
    ticks = sorted({x for x, _ in points})
    low, high, top = math.log2(ticks[0]), math.log2(ticks[-1]), max(y for _, y in points) * 1.05

    def at(x: float, y: float) -> tuple[float, float]:
        across = (math.log2(x) - low) / (high - low or 1)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)

    def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
        return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(words)}</text>'

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(WIDTH / 2, 20, title),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label),
        text(LEFT, TOP - 10, y_label),
    ]
    for x in ticks:
        out.append(text(at(x, 0)[0], HEIGHT - BOTTOM + 18, f"{x:g}"))
    step = 10 ** math.floor(math.log10(top)) / 2
    for i in range(int(top / step) + 1):
        y = at(ticks[0], i * step)[1]
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        out.append(text(LEFT - 8, y + 4, f"{i * step:g}", "end"))
    for i, (name, line) in enumerate(series.items()):
        colour, y = COLOURS[i % len(COLOURS)], TOP + 18 * i
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in line))
        dash = "" if i < len(COLOURS) else ' stroke-dasharray="5 3"'
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        out.append(f'<rect x="{WIDTH - RIGHT + 15}" y="{y - 9}" width="12" height="4" fill="{colour}"/>')
        out.append(text(WIDTH - RIGHT + 32, y, name, "start"))
    return "\n".join([*out, "</svg>"]) + "\n"
