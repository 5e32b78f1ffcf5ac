"""Charts as SVG, drawn on the server."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from markupsafe import Markup

from gateway.console.views import Bar, count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WIDTH, HEIGHT, FOOT, HEAD = 720, 190, 20, 15


def bar_chart(bars: Sequence[Bar], names: Sequence[str], title: str, told: Callable[[int], str] = count_text) -> Markup:
    """Stacked bars, one for each day. Colours are classes `part-0` ... of the stylesheet; each bar tells its numbers to
    a pointer and to a screen reader, in the words of `told`."""
    top = max((bar.total for bar in bars), default=0) or 1
    step = WIDTH / max(1, len(bars))
    drawn = [_bar(bar, names, at * step, step, top, told) for at, bar in enumerate(bars)]
    every = max(1, len(bars) // 8)
    labels = [
        Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(
            round((at + 0.5 * (at > 0)) * step, 1), HEIGHT - 5, "middle" if at else "start", _day(bar.label)
        )
        for at, bar in enumerate(bars)
        if at % every == 0
    ]
    most = Markup('<text x="0" y="11">{}</text>').format(told(top))
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}{}</svg>').format(
        WIDTH, HEIGHT, title, Markup("").join(drawn), Markup("").join(labels), most
    )


def _day(date: str) -> str:
    """2026-12-01 as 1 Dec."""
    at = datetime.fromisoformat(date)
    return f"{at.day} {at:%b}"


def _bar(bar: Bar, names: Sequence[str], left: float, step: float, top: int, told: Callable[[int], str]) -> Markup:
    parts = ", ".join(f"{name} {told(part)}" for name, part in zip(names, bar.parts, strict=True) if part)
    drawn: list[Markup] = []
    bottom = float(HEIGHT - FOOT)
    for number, part in enumerate(bar.parts):
        height = part / top * (HEIGHT - FOOT - HEAD)
        bottom -= height
        if part:
            drawn.append(
                Markup('<rect class="part-{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                    number, round(left + step * 0.12, 1), round(bottom, 1), round(step * 0.76, 1), round(height, 1)
                )
            )
    return Markup("<g><title>{}: {}</title>{}</g>").format(bar.label, parts or "0", Markup("").join(drawn))


def stacked_bar(parts: Sequence[tuple[str, int]], whole: int | None, title: str) -> Markup:
    """One bar from left to right; `whole` None: the parts fill it. What is left of `whole` stays empty."""
    filled = sum(tokens for _, tokens in parts)
    top = max(filled, whole or 0) or 1
    left = 0.0
    drawn: list[Markup] = []
    for number, (name, tokens) in enumerate(parts):
        width = tokens / top * WIDTH
        if tokens:
            drawn.append(
                Markup('<rect class="part-{}" x="{}" y="0" width="{}" height="24"><title>{}: {}</title></rect>').format(
                    number, round(left, 1), round(max(width, 1.0), 1), name, count_text(tokens)
                )
            )
        left += width
    told = ", ".join(f"{name} {count_text(tokens)}" for name, tokens in parts if tokens)
    return Markup(
        '<svg class="bar" viewBox="0 0 {} 24" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(WIDTH, f"{title}: {told or 0}", Markup("").join(drawn))
