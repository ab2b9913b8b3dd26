"""Pictures of a written report, drawn with matplotlib, which needs neither a browser nor a display.

plotly draws the interactive pages; its still pictures need Chrome, which machines of production lack.
"""

from __future__ import annotations

import functools
import io
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib import font_manager, rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from workbench.report.written.document import Bar, Figure

WIDTH_INCHES = 6.3
_PIXELS_AN_INCH = 200
_CHINESE = (
    *("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "Microsoft YaHei", "SimHei"),
    *("PingFang SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Noto Serif CJK SC", "SimSun", "Noto Sans CJK JP"),
)
"""Fonts that have Chinese characters, the best first."""
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # a font without a normal weight is no news
_INK, _LINE, _LIMIT = "#1c1f24", "#c3cad3", "#b3261e"
_MEASURED, _STRONG = "#8fb0de", "#2457c5"
PointKind = Literal["other", "front", "baseline", "chosen"]
_LOOKS: dict[PointKind, dict[str, Any]] = {
    "other": {"color": "#9aa3ad", "marker": "o", "s": 22, "zorder": 2},
    "front": {"color": "#2457c5", "marker": "o", "s": 36, "zorder": 3},
    "baseline": {"facecolors": "none", "edgecolors": "#111111", "marker": "s", "s": 110, "zorder": 4},
    "chosen": {"facecolors": "none", "edgecolors": "#0a7d43", "marker": "*", "s": 240, "zorder": 5},
}


@functools.cache
def chinese_font() -> str | None:
    """A font of this machine with Chinese characters; None where there is none, and pictures then need other words.

    matplotlib keeps a list of fonts from its first start on: where that has none, files that came since are read, and
    files that are gone count for nothing.
    """
    manager = font_manager.fontManager
    installed = {font.name for font in manager.ttflist if Path(font.fname).exists()}
    if installed.isdisjoint(_CHINESE) and set(font_manager.findSystemFonts()) - {f.fname for f in manager.ttflist}:
        manager.ttflist = font_manager.FontManager().ttflist
        installed = {font.name for font in manager.ttflist}
    return next((name for name in _CHINESE if name in installed), None)


def png(figure: Figure) -> bytes:
    """Of `WIDTH_INCHES` at 200 pixels an inch."""
    return _drawn(figure, "png")


def svg(figure: Figure) -> str:
    """The `<svg>` element, letters as outlines: it looks alike wherever it is shown."""
    text = _drawn(figure, "svg").decode("utf-8")
    return text[text.index("<svg") :]


def _drawn(figure: Figure, form: str) -> bytes:
    fonts = [name for name in (chinese_font(),) if name is not None]
    settings: dict[Any, Any] = {
        "font.family": [*fonts, "DejaVu Sans"],
        "font.size": 9,
        "axes.unicode_minus": False,
        "text.parse_math": False,  # a '$' in somebody's name is no formula
        "svg.hashsalt": "report",  # ids of a picture are made from it: the same picture is the same text
        "text.color": _INK,
        "axes.labelcolor": _INK,
    }
    with rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # a user's name for something
        canvas = Canvas(figsize=(WIDTH_INCHES, figure.height_inches), layout="constrained")
        axes = canvas.add_subplot()
        figure.draw(axes)
        axes.spines[["top", "right"]].set_visible(False)
        (FigureCanvasSVG if form == "svg" else FigureCanvasAgg)(canvas)
        held = io.BytesIO()
        canvas.savefig(held, format=form, dpi=_PIXELS_AN_INCH, metadata={"Date": None} if form == "svg" else None)
    return held.getvalue()


def bars_figure(
    caption: str,
    axis: str,
    bars: Sequence[Bar],
    *,
    digits: int = 0,
    limit: tuple[str, float] | None = None,
) -> Figure:
    """Horizontal bars from 0, one below the other.

    Args:
        limit: (what it is called, where it stands).
    """
    draw = functools.partial(_bars, axis=axis, bars=bars, digits=digits, limit=limit)
    return Figure(caption=caption, draw=draw, height_inches=0.75 + 0.34 * len(bars))


def _bars(axes: Any, *, axis: str, bars: Sequence[Bar], digits: int, limit: tuple[str, float] | None) -> None:
    places = range(len(bars))
    ends = [bar.value if bar.high is None else bar.high for bar in bars]
    lowest, furthest = min([0.0, *ends]), max([0.0, *ends, *([limit[1]] if limit else [])])
    span = furthest - lowest or 1.0
    for place, bar, end in zip(places, bars, ends, strict=True):
        guessed = bar.evidence in ("predicted", "modelled")
        look = {"color": _STRONG if bar.strong else _MEASURED, "height": 0.62}
        if guessed:  # no measurement: hollow
            look |= {"color": "white", "edgecolor": _STRONG, "hatch": "///", "linewidth": 1.0}
        axes.barh(place, bar.value, **look)
        if bar.low is not None and bar.high is not None:
            axes.errorbar(bar.value, place, xerr=[[bar.value - bar.low], [bar.high - bar.value]], fmt="none",
                          ecolor=_INK, capsize=3, linewidth=1)  # fmt: skip
        axes.text(max(end, 0.0) + span * 0.015, place, f"{bar.value:,.{digits}f}", va="center", fontsize=8,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}, zorder=6)  # fmt: skip
    axes.set_yticks(list(places), [bar.label for bar in bars])
    axes.invert_yaxis()
    axes.set_xlim(lowest - (0.04 * span if lowest else 0.0), furthest + 0.16 * span)
    axes.set_xlabel(axis)
    if limit is not None:
        axes.axvline(limit[1], color=_LIMIT, linestyle="--", linewidth=1)
        axes.set_title(limit[0], fontsize=8, color=_LIMIT, loc="right")


def errors(axes: Any, *, x_axis: str, y_axis: str, values: Sequence[float], marks: Mapping[str, Sequence[int]]) -> None:
    """Errors in their order on a logarithmic axis, at whose lower edge 0 stands.

    Args:
        marks: what is marked → places of the values that are.
    """
    floor = min((value for value in values if value > 0), default=1e-7) / 2
    shown = [max(value, floor) for value in values]
    axes.semilogy(range(len(shown)), shown, color=_MEASURED, linewidth=1, marker=".", markersize=3)
    for (name, places), marker in zip(marks.items(), "DxosP^", strict=False):
        if places:
            look = {"facecolors": _LIMIT} if marker == "x" else {"facecolors": "none", "edgecolors": _STRONG}
            axes.scatter(places, [shown[at] for at in places], marker=marker, label=name, zorder=3, **look)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(x_axis)
    axes.set_ylabel(y_axis)
    if any(marks.values()):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=4, frameon=False, fontsize=8)


def points(
    axes: Any,
    *,
    x_axis: str,
    y_axis: str,
    found: Sequence[tuple[PointKind, float, float]],
    names: Mapping[PointKind, str],
) -> None:
    """Args: found: (kind, x, y); names: what each kind is called in the legend."""
    for kind, look in _LOOKS.items():
        at = [(x, y) for each, x, y in found if each == kind]
        if at:
            axes.scatter(*zip(*at, strict=True), label=names[kind], **look)
    axes.set_xlabel(x_axis)
    axes.set_ylabel(y_axis)
    axes.grid(color=_LINE, linewidth=0.4)
    axes.set_axisbelow(True)
    axes.margins(0.08)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=4, frameon=False, fontsize=8, scatterpoints=1)
