"""Charts as SVG: lanes with bars, and steps over time. Colours are variables of the page's style.

Each chart is drawn in two widths, for desktop and phone, because text that shrinks with a chart is unreadable.
"""

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape
from typing import Any, Final

LANES_MAX: Final = 30
"""Maximum number of lanes of a chart; those with the most bars are kept."""
BARS_MAX: Final = 2_000
"""Maximum number of bars of a chart; the longest are kept."""
POINTS_MAX: Final = 1_000
"""Approximate maximum of points of a line; of points that coincide the highest is kept."""
WIDTHS: Final = {"wide": 10.4, "narrow": 4.3}
"""Widths of a chart, in inches of 72 points."""
_LANE_HEIGHT: Final = 0.3
_CHARACTER: Final = 0.082
_BAR_MIN_SHARE: Final = 0.004
"""The minimum width of a bar, as a share of the period, so that it is visible."""

# Matplotlib needs colour values; each of these is replaced by a variable of the page's style sheet.
COLOURS: Final = {
    "ink": "#010101",
    "line": "#020202",
    "good": "#030303",
    "bad": "#040404",
    "warn": "#050505",
    "calm": "#060606",
    "other": "#070707",
    "unknown": "#080808",
}
"""Colour names, defined in the style sheet as --NAME."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A time interval in a lane. `text` is its tooltip. Inexact bars are pale."""

    lane: str
    colour: str
    begin: datetime
    end: datetime
    text: str
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Series:
    """A number over time: it is `value` from `time` on."""

    name: str
    colour: str
    points: Sequence[tuple[datetime, int]]


@dataclass(frozen=True, slots=True)
class Period:
    """The period that a chart shows."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG for each of `WIDTHS`, and a note about what was left out; None: nothing."""

    svgs: dict[str, str]
    left_out: str | None


def draw_bars(
    bars: Sequence[Bar], span: Period, legend: Sequence[tuple[str, str]], title: str, description: str
) -> Picture:
    """Draw lanes with bars, in the order of their first bar. `legend` has (colour, meaning) pairs."""
    lanes, shown, left_out = _bounded(bars)
    margin = max((len(lane) for lane in lanes), default=1) * _CHARACTER + 0.25

    def plan(width: float) -> _Plan:
        # Names that leave too little room for their bars are placed above them.
        is_above = margin > width * 0.36
        lane_height = _LANE_HEIGHT * (1.6 if is_above else 1)
        least = (span.until - span.since) * _BAR_MIN_SHARE * (WIDTHS["wide"] / width)

        def draw(axes: Any) -> None:
            for number, bar in enumerate(shown):
                length = max(bar.end - bar.begin, least)
                axes.barh(
                    lanes.index(bar.lane) + (0.2 if is_above else 0),
                    length,
                    left=min(bar.begin, span.until - length),
                    height=0.4 if is_above else 0.62,
                    color=COLOURS[bar.colour],
                    alpha=1.0 if bar.is_exact else 0.45,
                    linewidth=0,
                    gid=f"bar-{number}",
                )
            axes.set_ylim(len(lanes) - 0.4, -0.6)
            axes.tick_params(axis="y", length=0)
            axes.set_yticks(range(len(lanes)), [] if is_above else lanes)
            for place, lane in enumerate(lanes if is_above else ()):
                axes.text(span.since, place - 0.08, lane, va="bottom")

        return _Plan(draw, len(lanes) * lane_height, 0.25 if is_above else margin)

    texts = [bar.text for bar in shown]
    return Picture(_drawn(plan, span, texts, legend, _Words(title, description)), left_out)


def draw_lines(lines: Sequence[Series], span: Period, title: str, description: str) -> Picture:
    """Draw numbers over time as steps, filled down to zero."""

    def draw(axes: Any) -> None:
        highest = 1
        for line in lines:
            points = thinned(line.points, span)
            times = [time for time, _ in points] + [span.until]
            values = [value for _, value in points] + [points[-1][1] if points else 0]
            highest = max(highest, *values)
            axes.fill_between(times, values, step="post", color=COLOURS[line.colour], alpha=0.35, linewidth=0)
            axes.step(times, values, where="post", color=COLOURS[line.colour], linewidth=1.4)
        axes.set_ylim(0, highest * 1.1)
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color=COLOURS["line"], linewidth=0.6)

    def plan(width: float) -> _Plan:  # noqa: ARG001 - the same for all
        return _Plan(draw, 1.9, 0.5)

    legend = [(line.colour, line.name) for line in lines]
    return Picture(_drawn(plan, span, [], legend, _Words(title, description)), None)


def thinned(points: Sequence[tuple[datetime, int]], span: Period) -> list[tuple[datetime, int]]:
    """About `POINTS_MAX` points at most: the highest and the last of each slice of time."""
    if len(points) <= POINTS_MAX:
        return list(points)
    slice_s = (span.until - span.since).total_seconds() / (POINTS_MAX / 2) or 1.0
    kept: dict[int, list[tuple[datetime, int]]] = {}
    for time, value in points:
        place = int((time - span.since).total_seconds() / slice_s)
        known = kept.setdefault(place, [(time, value), (time, value)])
        if value > known[0][1]:
            known[0] = (time, value)
        known[1] = (time, value)
    return [point for place in sorted(kept) for point in sorted(set(kept[place]))]


def _bounded(bars: Sequence[Bar]) -> tuple[list[str], list[Bar], str | None]:
    lanes = list(dict.fromkeys(bar.lane for bar in bars))
    chosen = list(bars)
    notes = []
    if len(lanes) > LANES_MAX:
        counts = {lane: sum(bar.lane == lane for bar in bars) for lane in lanes}
        busiest = set(sorted(lanes, key=lambda lane: -counts[lane])[:LANES_MAX])
        notes.append(f"the {LANES_MAX} of {len(lanes)} lanes with the most bars")
        lanes = [lane for lane in lanes if lane in busiest]
        chosen = [bar for bar in chosen if bar.lane in busiest]
    if len(chosen) > BARS_MAX:
        notes.append(f"the {BARS_MAX} longest of {len(chosen)} intervals")
        longest = sorted(range(len(chosen)), key=lambda place: chosen[place].begin - chosen[place].end)[
            :BARS_MAX
        ]
        chosen = [chosen[place] for place in sorted(longest)]
    return lanes, chosen, f"Shown are {' and '.join(notes)}." if notes else None


@dataclass(frozen=True, slots=True)
class _Plan:
    """The layout of a chart of one width: height of the lanes and margin for their names, in inches."""

    draw: Callable[[Any], None]
    height: float
    margin: float


@dataclass(frozen=True, slots=True)
class _Words:
    """Text for screen readers."""

    title: str
    description: str


def _drawn(
    plan: Callable[[float], _Plan],
    span: Period,
    texts: Sequence[str],
    legend: Sequence[tuple[str, str]],
    words: _Words,
) -> dict[str, str]:
    return {
        name: _finished(_draw(plan(width), span, width, legend), texts, words, name)
        for name, width in WIDTHS.items()
    }


def _draw(plan: _Plan, span: Period, width: float, legend: Sequence[tuple[str, str]]) -> str:
    from matplotlib import dates, rc_context  # noqa: PLC0415 - takes a second, and only reports need it
    from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415
    from matplotlib.patches import Patch  # noqa: PLC0415

    rows = 1 if width > 6 or len(legend) < 3 else 2
    top, bottom = 0.12 + 0.24 * rows, 0.42
    height, margin = plan.height, plan.margin
    whole = height + top + bottom
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "quorate",
        "font.size": 9.5,
        "timezone": "UTC",
        "text.parse_math": False,  # a name with dollar signs is no formula
    }
    for key in ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"):
        style[key] = COLOURS["ink"]
    for key in ("axes.edgecolor", "xtick.color", "ytick.color"):
        style[key] = COLOURS["line"]
    with rc_context(style):
        figure = Figure(figsize=(width, whole))
        FigureCanvasSVG(figure)
        axes = figure.add_axes((margin / width, bottom / whole, 1 - (margin + 0.3) / width, height / whole))
        axes.patch.set_visible(False)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        last = max(span.until, span.since + timedelta(milliseconds=1))
        axes.set_xlim(dates.date2num([span.since, last]))  # type: ignore[no-untyped-call]
        axes.xaxis_date("UTC")
        ticks = {"minticks": 3, "maxticks": 8 if width > 6 else 4}
        locator: Any = dates.AutoDateLocator(tz="UTC", **ticks)  # type: ignore[no-untyped-call]
        # Without these, no interval fits a little less than three of the next larger unit.
        for unit, whole in (
            *((dates.MONTHLY, 12), (dates.DAILY, 31), (dates.HOURLY, 24)),
            *((dates.MINUTELY, 60), (dates.SECONDLY, 60)),
        ):
            locator.intervald[unit] = [*locator.intervald[unit], whole]
        axes.xaxis.set_major_locator(locator)
        formatter = dates.ConciseDateFormatter(locator, tz="UTC")  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(formatter)
        axes.grid(axis="x", color=COLOURS["line"], linewidth=0.6)
        axes.set_axisbelow(True)
        plan.draw(axes)
        handles = [Patch(facecolor=COLOURS[colour], linewidth=0, label=text) for colour, text in legend]
        figure.legend(
            handles=handles,
            loc="upper left",
            ncols=-(-len(handles) // rows),
            frameon=False,
            borderaxespad=0,
            bbox_to_anchor=(0.005, 1),
            handlelength=1.1,
            handletextpad=0.5,
            columnspacing=1.2,
        )
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return file.getvalue()


def _finished(svg: str, texts: Sequence[str], words: _Words, name: str) -> str:
    """Adapt an SVG to the page: unique ids, the page's colours, and text for screen readers."""
    drawn = svg[svg.index("<svg") :]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(
        r'<g id="bar-(\d+)">', lambda match: f"<g><title>{escape(texts[int(match[1])])}</title>", drawn
    )
    drawn = re.sub(r'<g id="[A-Za-z0-9]+_\d+">', "<g>", drawn)
    for colour, code in COLOURS.items():
        drawn = drawn.replace(code, f"var(--{colour})")
    # The remaining ids are of clips and marks, and may occur in other charts too.
    prefix = f"{name}-{re.sub('[^a-z0-9]+', '-', words.title.lower())}-"
    drawn = re.sub(r'(id="|url\(#|href="#)', lambda match: match[1] + prefix, drawn)
    return re.sub(
        r"<svg [^>]*?viewBox=\"([^\"]*)\"[^>]*>",
        lambda match: (
            f'<svg class="{name}" viewBox="{match[1]}" role="img" xmlns="http://www.w3.org/2000/svg" '
            f'xmlns:xlink="http://www.w3.org/1999/xlink"><title>{escape(words.title)}</title>'
            f"<desc>{escape(words.description)}</desc>"
        ),
        drawn,
        count=1,
    )
