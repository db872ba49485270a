"""Charts of facts: Vega-Lite specifications, made with Altair. page.js sets their colours."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import altair as alt

from kafkalog_spark.format.layout import Codec
from kafkalog_spark.report.facts import Facts, Row, TopKeys
from kafkalog_spark.report.words import bytes_text, count_text, duration_text, rounded_text, size_text, time_text

Spec = dict[str, Any]

MAX_BARS = 20  # bars of one chart; the table below it has all rows
_BAR = 22  # pixels of one bar
_WIDE_RATIO = 1000  # ratio of largest to smallest value above which an axis is logarithmic
_CODECS = [*(codec.label for codec in Codec), "unknown"]  # a codec has the same colour in every chart
_OTHERS = "(others)"  # cannot be a topic: names of topics have no parentheses
_TIME_AXIS = alt.Axis(
    tickCount=6, labelOverlap=True,
    format={"hours": "%H:%M", "minutes": "%H:%M", "seconds": "%H:%M:%S", "day": "%b %d", "date": "%b %d"},
)  # fmt: skip
_LEGEND_TEXT, _LEGEND_WIDTH = 26, 100
"""Characters of a name, and of a line of names, in a legend that fits on a tablet."""
_RATE_UNITS = (("s", 1), ("min", 60), ("h", 3600), ("day", 86400))


def charts(facts: Facts) -> dict[str, Spec]:
    """Return the specifications by HTML id; charts without data are left out."""
    specs = {
        "chart-topics": _topics(facts),
        "chart-rate": _rate(facts, "bytes"),
        "chart-records": _rate(facts, "records"),
        "chart-timeline": _timeline(facts),
        "chart-compression": _compression(facts),
        "chart-producers": _producers(facts),
        "chart-lag": _lag(facts),
    }
    specs |= {f"chart-keys-{index}": _top_keys(keys) for index, keys in enumerate(facts.top_keys)}
    return {name: spec for name, spec in specs.items() if spec is not None}


def producer_name(producer_id: int, transactional_id: str | None) -> str:
    """Return the name under which the report shows a producer."""
    if producer_id < 0:
        return "without producer id"
    return str(producer_id) if transactional_id is None else f"{transactional_id} ({producer_id})"


def _spec(chart: Any, height: int) -> Spec:
    # Validation would be most of the time of the report.
    spec: Spec = chart.properties(width="container", height=height).to_dict(validate=False)
    spec.pop("config", None)  # page.js has one for light and one for dark mode
    return spec


def _shortened(text: str) -> str:
    """Return Vega's expression for a name, the middle of a long one cut out: names often begin alike."""
    return f"truncate({text}, width < 400 ? 19 : 44, 'center')"


def _readable_number(value: str, unit: str = "") -> str:
    """Return Vega's expression for a readable number, as of words.size_text and short_count: `1.5 kB`, `300 M`."""
    return (
        f"{value} < 1000 ? format({value}, '.3~r') + ({value} && '{unit and ' ' + unit}' || '')"
        f" : replace(format({value}, '.3~s'), regexp('(.)$'), ' $1{unit}')"
    )


def _tips(tips: Sequence[tuple[str, str]]) -> list[alt.Tooltip]:
    """Return the lines of a tooltip, given field and title of each."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in tips]


def _bars(rows: list[Row], title: str, tips: Sequence[tuple[str, str]], color: str | None = None, *,
          unit: str = "", log_if_wide: bool = False) -> Spec | None:  # fmt: skip
    """Return a chart of horizontal bars, or None without rows.

    Args:
        rows: Parts of bars: `bar` (number of the bar; names may be equal), `name`, `value`, and `label`, which is the
            same in all rows of a bar and is printed at its end.
        title: Title of the axis of values.
        tips: Field and title of each line of the tooltips.
        color: Field that has a color for each value.
        unit: Unit of the values.
        log_if_wide: True for a logarithmic axis if values differ widely. Each bar then has one row, above 0.
    """
    names = {row["bar"]: row["name"] for row in rows if row["bar"] < MAX_BARS}
    shown = [row for row in rows if row["bar"] in names]
    if not shown:
        return None
    sums = dict.fromkeys(names, 0.0)
    for row in shown:
        sums[row["bar"]] += row["value"]
    smallest, largest = min(sums.values()), max(sums.values())
    texts = json.dumps([names[bar] for bar in sorted(names)])
    # room for the labels at the right
    stack: Any = alt.Undefined
    if log_if_wide and largest > _WIDE_RATIO * smallest:
        start = 10.0 ** math.floor(math.log10(smallest))
        scale = alt.Scale(type="log", domain=[start, largest * (largest / start) ** 0.28], nice=False)
        title, stack = f"{title} (logarithmic)", None
    else:
        scale = alt.Scale(domain=[0, largest * 1.28 or 1], nice=False)
    y = alt.Y("bar:O", title=None, axis=alt.Axis(labelExpr=_shortened(f"{texts}[datum.value]")))
    labelled = f"datum.label ? {_readable_number('datum.value', unit)} : ''"
    bars = (
        alt.Chart()
        .mark_bar(cornerRadiusEnd=3)
        .encode(
            x=alt.X("value:Q", title=title, scale=scale, stack=stack, axis=alt.Axis(labelExpr=labelled, tickCount=5)),
            y=y,
            tooltip=_tips(tips),
        )
    )
    if color is not None:
        present = sorted({row[color] for row in shown})
        colors = alt.Scale(domain=_CODECS if color == "codec" else present)
        legend = alt.Legend(orient="top", title=None, values=present)
        bars = bars.encode(color=alt.Color(f"{color}:N", scale=colors, legend=legend))
    labels = (
        alt.Chart()
        .mark_text(align="left", dx=5)
        .encode(x=alt.X("sum(value):Q", scale=scale), y=y, text=alt.Text("max(label):N"))
    )
    return _spec(alt.layer(bars, labels, data=alt.InlineData(values=shown)), _BAR * len(names) + 10)


def _topics(facts: Facts) -> Spec | None:
    rows = [
        {"bar": bar, "name": topic.topic, "value": codec.size, "codec": codec.codec or "unknown",
         "size": size_text(codec.size), "records": codec.records, "label": size_text(topic.size)}
        for bar, topic in enumerate(facts.topics[:MAX_BARS])
        for codec in topic.codecs
    ]  # fmt: skip
    tips = [("name", "topic"), ("codec", "codec"), ("size", "size"), ("records", "records")]
    return _bars(rows, "size", tips, "codec", unit="B")


def _topic_colors(facts: Facts) -> alt.Scale:
    return alt.Scale(domain=[series.topic or _OTHERS for series in facts.rates])


def _rate(facts: Facts, measured: str) -> Spec | None:
    """Return the chart of the rate of `measured`, "bytes" or "records", over the time in which records were written.

    The unit of time is the shortest in which the busiest slice has at least one.
    """
    span = facts.span
    if span is None:
        return None
    names = [series.topic or _OTHERS for series in facts.rates]
    values = [series.bytes if measured == "bytes" else series.records for series in facts.rates]
    count = len(values[0])
    seconds = [max(ms, 1) / 1000 for ms in facts.written_ms]  # the sum of a slice without records is 0
    peak = max(sum(of_slice) / length for *of_slice, length in zip(*values, seconds, strict=True))
    unit, length = next((unit for unit in _RATE_UNITS if peak * unit[1] >= 1), _RATE_UNITS[-1])
    # the last value is repeated at its end, so that the last slice is as wide as the others
    rows = [
        {"t": span.start + (span.end - span.start) * at // count, "n": name,
         "v": float(f"{value / seconds[min(at, count - 1)] * length:.4g}")}
        for name, series in zip(names, values, strict=True)
        for at, value in enumerate((*series, series[-1]))
    ]  # fmt: skip
    base_unit = "B" if measured == "bytes" else ""
    chosen = alt.selection_point(fields=["n"], bind="legend")
    longest = max(min(len(name), _LEGEND_TEXT) for name in names)
    legend = alt.Legend(
        orient="bottom",
        title=None,
        columns=_LEGEND_WIDTH // (longest + 4),
        labelExpr=f"truncate(datum.label, width < 400 ? 16 : {_LEGEND_TEXT}, 'center')",
    )
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_area(interpolate="step-after")
        .encode(
            x=alt.X("t:T", title=None, scale=alt.Scale(type="utc"), axis=_TIME_AXIS),
            y=alt.Y(
                "v:Q",
                title=f"{measured}/{unit}",
                stack="zero",
                axis=alt.Axis(labelExpr=_readable_number("datum.value", base_unit), tickCount=5),
            ),
            color=alt.Color("n:N", scale=_topic_colors(facts), legend=legend),
            order=alt.Order("i:Q"),
            opacity=alt.condition(chosen, alt.value(0.85), alt.value(0.1)),
            tooltip=[
                alt.Tooltip("n:N", title="topic"),
                alt.Tooltip("t:T", title="from", format="%Y-%m-%d %H:%M:%S"),
                alt.Tooltip("w:N", title=f"{measured}/{unit}"),
            ],
        )
        .transform_calculate(i=f"indexof({json.dumps(names)}, datum.n)", w=_readable_number("datum.v", base_unit))
        .add_params(chosen)
    )
    return _spec(chart, 240 if measured == "bytes" else 180)


def _timeline(facts: Facts) -> Spec | None:
    span = facts.span
    if span is None or not facts.segments:
        return None
    colored = {series.topic for series in facts.rates}
    rows = []
    for segment in facts.segments:
        first, last = segment.first_timestamp, segment.last_timestamp
        if first is None or last is None or last < span.start or first > span.end:
            continue
        first, last = max(first, span.start), min(last, span.end)
        rows.append(
            {"p": f"{segment.topic}-{segment.partition}", "n": segment.topic if segment.topic in colored else _OTHERS,
             "a": first, "b": last, "o": f"{segment.base_offset} – {segment.end_offset - 1}",
             "s": size_text(segment.size), "k": segment.segments,
             "d": f"{time_text(segment.first_timestamp)}, {duration_text(last - first)}"}
        )  # fmt: skip
    names = list(dict.fromkeys(str(row["p"]) for row in rows))
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        # longer by 3 pixels, so that a segment of a short time is visible
        .mark_bar(cornerRadius=2, stroke="var(--card)", strokeWidth=1, height=12, x2Offset=3)
        .encode(
            x=alt.X("a:T", title=None, scale=alt.Scale(type="utc"), axis=_TIME_AXIS),
            x2="b:T",
            y=alt.Y("p:N", sort=names, title=None, axis=alt.Axis(labelExpr=_shortened("datum.label"))),
            color=alt.Color("n:N", scale=_topic_colors(facts), legend=None),
            tooltip=_tips([("p", "partition"), ("o", "offsets"), ("s", "size"), ("d", "from"), ("k", "segments")]),
        )
    )
    return _spec(chart, 20 * len(names) + 10)


def _compression(facts: Facts) -> Spec | None:
    rows: list[Row] = []
    for topic in facts.topics:
        codec = max((codec for codec in topic.codecs if codec.ratio), key=lambda codec: codec.size, default=None)
        if codec is not None and codec.ratio is not None and len(rows) < MAX_BARS:
            saved = size_text(codec.size * (codec.ratio - 1))
            label = f"{rounded_text(codec.ratio)} ×"
            rows.append({"bar": len(rows), "name": topic.topic, "value": codec.ratio, "codec": codec.codec,
                         "saved": saved, "label": label})  # fmt: skip
    tips = [("name", "topic"), ("codec", "codec"), ("label", "ratio"), ("saved", "saved, about")]
    return _bars(rows, "bytes of records to bytes in the log", tips, "codec", log_if_wide=True)


def _producers(facts: Facts) -> Spec | None:
    rows = [
        {"bar": bar, "name": producer_name(producer.producer_id, producer.transactional_id), "value": producer.size,
         "label": size_text(producer.size), "records": producer.records, "last": time_text(producer.last_timestamp)}
        for bar, producer in enumerate(facts.producers[:MAX_BARS])
    ]  # fmt: skip
    tips = [("name", "producer"), ("label", "size"), ("records", "records"), ("last", "last record")]
    return _bars(rows, "size", tips, unit="B")


def _lag(facts: Facts) -> Spec | None:
    by_group = Counter[str]()
    for topic_lag in facts.topic_lags:
        by_group[topic_lag.group_id] += topic_lag.lag
    bars = {group: bar for bar, group in enumerate(by_group)}
    rows = [
        {"bar": bars[topic_lag.group_id], "name": topic_lag.group_id, "topic": topic_lag.topic or _OTHERS,
         "value": topic_lag.lag, "label": count_text(by_group[topic_lag.group_id])}
        for topic_lag in facts.topic_lags
    ]  # fmt: skip
    return _bars(rows, "records", [("name", "group"), ("topic", "topic"), ("value", "lag")], "topic")


def _top_keys(keys: TopKeys) -> Spec | None:
    rows = [
        {"bar": bar, "name": bytes_text(key.key, 40), "key": bytes_text(key.key, 200), "value": key.records,
         "size": size_text(key.size), "label": count_text(key.records)}
        for bar, key in enumerate(keys.keys[:MAX_BARS])
    ]  # fmt: skip
    return _bars(rows, "records", [("key", "key"), ("value", "records"), ("size", "bytes of values")])
