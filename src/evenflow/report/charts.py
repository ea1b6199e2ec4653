"""Line charts as inline SVG, readable without scripts; a pointer over one reads values off (assets/page.js).

+--------------------------------------+
|  y  |                                |   plot: WIDTH x HEIGHT less the margins
|     |________________________________|
|                 x                    |
+--------------------------------------+
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from evenflow.observe.summary import format_seconds

WIDTH, HEIGHT = 560, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 8, 34
_LETTER = 6.5
MOST_POINTS = 300


_EMPTY = Markup('<figure class="card"><h3>{}</h3><div class="soft">no data</div></figure>')


@dataclass(frozen=True, slots=True)
class Series:
    """`dots` are points without a line between them, rings unless they are `filled`."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    dots: bool = False
    filled: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to pixels. `unit` is "s", "%" or whatever stands behind a number."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    unit: str

    def at(self, value: float) -> float:
        low, high, value = (math.log(v) if self.log else v for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + (self.end - self.start) * share

    def ticks(self) -> list[float]:
        return _log_ticks(self.low, self.high) if self.log else _even_ticks(self.low, self.high)

    def label(self, value: float) -> str:
        if self.unit == "s":
            return format_seconds(value) if value else "0"
        return f"{value:g}{self.unit}"


def _even_ticks(low: float, high: float) -> list[float]:
    raw = (high - low) / 7 or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    first = math.ceil(low / step)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(decades) > 4 else (1, 2, 5)
    ticks = [factor * 10.0**d for d in decades for factor in factors if low <= factor * 10.0**d <= high]
    return ticks if len(ticks) > 2 else [tick for tick in _even_ticks(low, high) if tick > 0.0]


@dataclass(frozen=True, slots=True)
class Chart:
    """`shaded` are spans of x that are not measured. `x_range` and `y_top` are those of the data if not given;
    `x_ticks` are where it is labelled, if not at round numbers."""

    title: str
    series: Sequence[Series]
    x_unit: str = "s"
    y_unit: str = ""
    x_log: bool = False
    y_log: bool = False
    shaded: Sequence[tuple[float, float]] = ()
    x_range: tuple[float, float] | None = None
    y_top: float | None = None
    x_ticks: Sequence[float] = ()

    def render(self) -> Markup:
        points = self._points()
        if not points:
            return _EMPTY.format(self.title)
        x, _ = self._scales(points)
        body = self.body()
        return Markup(
            '<figure class="card" data-chart="{}"><h3>{} <span class="where soft"></span></h3>'
            '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}<line class="cursor" y1="{}" y2="{}"/></svg>'
            '<div class="legend">{}</div></figure>'
        ).format(self._data(x), self.title, WIDTH, HEIGHT, self.title, body, _TOP, HEIGHT - _BOTTOM, self._legend())

    def body(self) -> Markup:
        """What is inside the <svg>: scales and lines, of WIDTH x HEIGHT; nothing if there are no data."""
        points = self._points()
        if not points:
            return Markup("")
        x, y = self._scales(points)
        return Markup("").join([*self._frame(x, y), *(self._line(s, i, x, y) for i, s in enumerate(self.series))])

    def _points(self) -> list[tuple[float, float]]:
        """Those that can be shown."""
        return [
            (x, y)
            for series in self.series
            for x, y in zip(series.xs, series.ys, strict=True)
            if y is not None and (x > 0 or not self.x_log) and (y > 0 or not self.y_log)
        ]

    def _scales(self, points: Sequence[tuple[float, float]]) -> tuple[Scale, Scale]:
        xs, ys = zip(*points, strict=True)
        bottom = min(ys) if self.y_log else min(0.0, *ys, 0.0)
        top = max(ys) if self.y_top is None else self.y_top
        left, right = (min(xs), max(xs)) if self.x_range is None else self.x_range
        top = top if top > bottom else bottom + 1.0
        right = right if right > left else left * 1.01 + 1e-9
        x = Scale(left, right, _LEFT, WIDTH - _RIGHT, self.x_log, self.x_unit)
        return x, Scale(bottom, top, HEIGHT - _BOTTOM, _TOP, self.y_log, self.y_unit)

    def _frame(self, x: Scale, y: Scale) -> list[Markup]:
        pieces = []
        for low, high in self.shaded:
            left, right = (x.at(min(max(value, x.low), x.high)) for value in (low, high))
            if right > left:
                pieces.append(
                    Markup('<rect class="cut" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
                        left, _TOP, right - left, HEIGHT - _TOP - _BOTTOM
                    )
                )
        for tick in y.ticks():
            at = f"{y.at(tick):.1f}"
            pieces.append(
                Markup(
                    '<line class="rule" x1="{}" x2="{}" y1="{at}" y2="{at}"/>'
                    '<text x="{}" y="{at}" dy="4" text-anchor="end">{}</text>'
                ).format(_LEFT, WIDTH - _RIGHT, _LEFT - 6, y.label(tick), at=at)
            )
        label = Markup('<text x="{:.1f}" y="{}" text-anchor="{}">{}</text>')
        for tick in self.x_ticks or x.ticks():
            middle, text = x.at(tick), x.label(tick)
            fits = middle + _LETTER / 2 * len(text) <= WIDTH
            pieces.append(
                label.format(middle if fits else WIDTH, HEIGHT - _BOTTOM + 16, "middle" if fits else "end", text)
            )
        pieces.append(
            Markup('<line class="axis" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(
                _LEFT, WIDTH - _RIGHT, y=HEIGHT - _BOTTOM
            )
        )
        return pieces

    def _line(self, series: Series, index: int, x: Scale, y: Scale) -> Markup:
        """Broken where there is no value."""
        if series.dots:
            return self._dots(series, index, x, y)
        runs: list[list[str]] = [[]]
        for at, value in zip(series.xs, series.ys, strict=True):
            if value is None or (value <= 0 and self.y_log) or (at <= 0 and self.x_log):
                runs.append([])
            else:
                runs[-1].append(f"{x.at(at):.1f},{y.at(value):.1f}")
        lines = (" ".join(run if len(run) > 1 else run * 2) for run in runs if run)
        return Markup("").join(Markup('<polyline class="s{}" points="{}"/>').format(index % 8, line) for line in lines)

    def _dots(self, series: Series, index: int, x: Scale, y: Scale) -> Markup:
        dot = Markup('<circle class="s{}" cx="{:.1f}" cy="{:.1f}" r="3.5"{}/>')
        fill = Markup(' style="fill:var(--s{})"').format(index % 8) if series.filled else ""
        return Markup("").join(
            dot.format(index % 8, x.at(at), y.at(value), fill)
            for at, value in zip(series.xs, series.ys, strict=True)
            if value is not None and (value > 0 or not self.y_log) and (at > 0 or not self.x_log)
        )

    def _legend(self) -> Markup:
        entry = Markup('<span><i style="background:var(--s{})"></i>{}<b></b></span>')
        return Markup("").join(entry.format(index % 8, series.name) for index, series in enumerate(self.series))

    def _data(self, x: Scale) -> str:
        """For the script: where each point is, and what it says."""
        series = []
        for each in self.series:
            kept = [(at, v) for at, v in zip(each.xs, each.ys, strict=True) if at > 0 or not self.x_log]
            series.append(
                {
                    "px": [round(x.at(at), 1) for at, _ in kept],
                    "x": [_short(at) for at, _ in kept],
                    "y": [None if v is None else _short(v) for _, v in kept],
                }
            )
        data = {"width": WIDTH, "xUnit": self.x_unit, "yUnit": self.y_unit, "series": series}
        return msgspec.json.encode(data).decode()


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def cdf(name: str, values: Sequence[float] | NDArray[np.float64]) -> Series:
    """The share of observations at or below, in per cent, on at most MOST_POINTS points; dense in the upper tail."""
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = len(ordered)
    if n > MOST_POINTS:
        upper = 100.0 - np.geomspace(50.0, 100.0 / n, MOST_POINTS // 2)
        shares = np.concatenate([np.linspace(0.0, 50.0, MOST_POINTS // 2, endpoint=False), upper])
        return Series(name, np.percentile(ordered, shares).tolist(), shares.tolist())
    return Series(name, ordered.tolist(), [100.0 * (rank + 1) / n for rank in range(n)])
