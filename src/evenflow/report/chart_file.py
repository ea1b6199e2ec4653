"""A chart as an SVG file of its own, for documents: title above, what the x axis is and the legend below."""

from markupsafe import Markup

from evenflow.report.charts import HEIGHT, WIDTH, Chart

_TITLE, _FOOT = 24, 40
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b08a00", "#56b4e9", "#6b5bd2", "#7a7a7a")
_STYLE = (
    "svg{background:#fff}text{fill:#444;font:11px system-ui,sans-serif}.title{font-size:13px;font-weight:600}"
    ".axis{stroke:#bbb}.rule{stroke:#eceef0}.cut{fill:#888;opacity:.1}polyline{fill:none;stroke-width:1.8}"
    "circle{fill:none;stroke-width:2}" + "".join(f".s{i}{{stroke:{colour}}}" for i, colour in enumerate(_COLOURS))
)
_LETTER, _MARK = 6.2, 26


def svg_file(chart: Chart, x_title: str) -> str:
    width, height = WIDTH, HEIGHT + _TITLE + _FOOT
    return str(
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" width="{}" role="img" aria-label="{}">'
            "<style>{}</style>"
            '<text class="title" x="{}" y="16" text-anchor="middle">{}</text><g transform="translate(0 {})">{}</g>'
            '<text x="{}" y="{}" text-anchor="middle">{}</text>{}</svg>\n'
        ).format(
            width,
            height,
            width,
            chart.title,
            Markup(_STYLE),
            width // 2,
            chart.title,
            _TITLE,
            chart.body(),
            width // 2,
            HEIGHT + _TITLE + 6,
            x_title,
            _legend(chart, height - 12),
        )
    )


def _legend(chart: Chart, y: int) -> Markup:
    """Marks and names side by side, in the middle."""
    widths = [_MARK + _LETTER * len(series.name) + 14 for series in chart.series]
    x = max(8.0, (WIDTH - sum(widths)) / 2)
    pieces = []
    for index, (series, width) in enumerate(zip(chart.series, widths, strict=True)):
        pieces.append(
            Markup('<polyline class="s{}" points="{:.0f},{y} {:.0f},{y}"/><text x="{:.0f}" y="{}">{}</text>').format(
                index % 8, x, x + 18, x + _MARK - 3, y + 4, series.name, y=y
            )
        )
        x += width
    return Markup("").join(pieces)
