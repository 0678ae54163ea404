"""The HTML of a report: one file without scripts and external resources. Pure, except for the drawing."""

from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from typing import Any, Final

from pyspark_quorate.report.charts import draw_bars, draw_lines
from pyspark_quorate.report.history import History, in_words
from pyspark_quorate.report.sections import ROWS_SHOWN, Section, period_of, sections_of

_STYLE: Final = """
:root{color-scheme:light dark;--paper:#fff;--card:#f7f8fa;--ink:#1c2330;--soft:#566072;--line:#d9dde4;--good:#2a9d74;
--bad:#d1495b;--warn:#e0a02e;--calm:#3d78c2;--other:#8a63c8;--unknown:#a3aab5}
@media (prefers-color-scheme:dark){:root{--paper:#12161d;--card:#1a2029;--ink:#e6e9ef;--soft:#9aa5b6;--line:#333c4a;
--good:#3fb68b;--bad:#ef6b7b;--warn:#edb44e;--calm:#6ba3e8;--other:#ab8ae6;--unknown:#77808f}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main,header,footer{max-width:1060px;margin:0 auto;padding:0 16px}
h1{font-size:1.6rem;margin:1.6rem 0 .2rem}h2{font-size:1.25rem;margin:2.4rem 0 .3rem;overflow-wrap:anywhere}
h3{font-size:1.05rem;margin:0 0 .3rem}
.soft,footer{color:var(--soft)}
.soft{margin:.1rem 0}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px;margin:14px 0}
.finding{margin:0 0 .6rem;padding-left:10px;border-left:3px solid var(--good)}
.finding.bad{border-color:var(--bad)}
ul.short{padding-left:1.2rem;margin:.5rem 0}ul.short a{color:inherit}
svg{display:block;width:100%;height:auto}
svg text{font-family:system-ui,-apple-system,"Segoe UI",sans-serif!important}
svg.narrow{display:none}
details{margin-top:8px}summary{cursor:pointer;color:var(--soft)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.84rem;width:100%}
th,td{text-align:left;padding:3px 12px 3px 0;border-bottom:1px solid var(--line);
white-space:nowrap;vertical-align:top;font-variant-numeric:tabular-nums}
td:last-child{white-space:normal}
footer{padding:14px 16px 40px;font-size:.84rem}
@media (max-width:640px){svg.wide{display:none}svg.narrow{display:block}section{padding:12px}h1{font-size:1.35rem}}
@media print{:root{--paper:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#bbb;--good:#2a9d74;--bad:#c0303f;
--warn:#d18f18;--calm:#2f67ad;--other:#774fb5;--unknown:#999}
body{font-size:11pt}section{break-inside:avoid;border-color:#bbb}details{display:none}svg.wide{display:block}
svg.narrow{display:none}h2{break-after:avoid}*{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
"""


def render(histories: Sequence[History], made_at: datetime, done: Callable[[], object] = lambda: None) -> str:
    """Render the report. `done` is called after each history."""
    parts = []
    for number, history in enumerate(histories, start=1):
        parts.append(_cluster(history, number))
        done()
    if not histories:
        parts.append("<p>The lake has no clusters yet.</p>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<link rel="icon" href="data:,"><title>History of Kafka clusters</title>'
        f"<style>{_STYLE}</style></head><body><header><h1>History of "
        f"{'a Kafka cluster' if len(histories) == 1 else f'{len(histories)} Kafka clusters'}</h1></header>"
        f"<main>{''.join(parts)}</main><footer>Made by Quorate at {made_at:%Y-%m-%d %H:%M:%S} UTC. "
        "All times are UTC. "
        "Pale bars: a gap hides the start or the end, or a change in between. "
        "Metadata logs record what happened and when, but not who did it.</footer></body></html>\n"
    )


def _cluster(history: History, number: int) -> str:
    span = period_of(history)
    sections = sections_of(history)
    bad = [(place, section) for place, section in enumerate(sections, start=1) if section.is_bad]
    short = "".join(
        f'<li><a href="#s{number}-{place}">{escape(section.title)}</a>: {escape(section.finding)}</li>'
        for place, section in bad
    )
    drawn = "".join(
        _section(section, history, f"s{number}-{place}") for place, section in enumerate(sections, start=1)
    )
    cut = (
        f"<p>Some rows are left out of: {escape(', '.join(sorted(history.cut)))}.</p>" if history.cut else ""
    )
    return (
        f"<h2>Cluster {escape(history.cluster_id)}</h2>"
        f'<p class="soft">{span.since:%Y-%m-%d %H:%M:%S} to {span.until:%Y-%m-%d %H:%M:%S} UTC, '
        f"{escape(in_words(span.until - span.since))}</p>"
        + (
            f'<p>Needs attention:</p><ul class="short">{short}</ul>'
            if bad
            else "<p>Nothing needs attention.</p>"
        )
        + cut
        + drawn
    )


def _section(section: Section, history: History, anchor: str) -> str:
    span = period_of(history)
    description = f"{section.finding} The table below has the same data."
    title = f"{section.title}, {history.cluster_id}"
    picture = None
    if section.bars:
        picture = draw_bars(section.bars, span, section.legend, title, description)
    elif section.lines:
        picture = draw_lines(section.lines, span, title, description)
    drawn = ""
    if picture is not None:
        drawn = f"<div>{picture.svgs['wide']}{picture.svgs['narrow']}</div>"
        if picture.left_out:
            drawn += f'<p class="soft">{escape(picture.left_out)}</p>'
    return (
        f'<section id="{anchor}"><h3>{escape(section.title)}</h3>'
        f'<p class="finding{" bad" if section.is_bad else ""}">{escape(section.finding)}</p>{drawn}'
        f"{_details(section)}</section>"
    )


def _details(section: Section) -> str:
    if not section.rows:
        return ""
    count = len(section.rows)
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in section.headers)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>"
        for row in section.rows[:ROWS_SHOWN]
    )
    words = f"{count} rows" if count != 1 else "1 row"
    if count > ROWS_SHOWN:
        words = f"the first {ROWS_SHOWN} of {words}"
    return (
        f'<details><summary>Table: {words}</summary><div class="scroll" tabindex="0" role="region" '
        f'aria-label="{escape(section.title)}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>'
    )


def _cell(value: Any) -> str:
    return "" if value is None else escape(str(value))
