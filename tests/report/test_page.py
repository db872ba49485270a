"""The page: whole, by itself, and harmless whatever topics and keys are called."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.cli.atomic_file import write_atomically
from kafkalog_spark.cli.report import main
from kafkalog_spark.format.names import segment_name
from kafkalog_spark.report import charts as charts_module
from kafkalog_spark.report import page as page_module
from kafkalog_spark.report.facts import Facts, TopKeys
from kafkalog_spark.report.html_table import MAX_TABLE_ROWS, html_table, number
from kafkalog_spark.report.key_counts import KeyCount
from kafkalog_spark.report.lag_totals import MAX_LAGS, MAX_TOPICS_PER_GROUP, LagTotals
from kafkalog_spark.report.page import page
from kafkalog_spark.report.time_bins import Span
from kafkalog_spark.report.words import (
    bytes_text,
    count_text,
    duration_text,
    rounded_text,
    short_count,
    size_text,
    time_text,
)
from tests.golden_data import KAFKA_4_3
from tests.log.helpers.batch_builder import V2Record, batch


@pytest.fixture(autouse=True)
def _without_vega(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bundle takes two seconds to make; tests/report/test_browser.py has it."""
    monkeypatch.setattr(page_module, "vega_bundle", lambda: "")


class Seen(HTMLParser):
    """Ids, tags and names of attributes of a page; every tag that is opened is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.attributes: set[tuple[str, str]] = set()
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {(tag, name) for name, _ in attrs}
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in ("meta", "input"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_page_has_every_section_and_chart_and_fetches_nothing(facts: Facts) -> None:
    text = page(facts, "Shop")
    seen = Seen(text)
    specs = json.loads(re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert set(specs) == {
        "chart-topics", "chart-rate", "chart-records", "chart-timeline", "chart-compression", "chart-producers",
        "chart-lag", "chart-keys-0",
    }  # fmt: skip
    assert set(specs) <= set(seen.ids)
    for name in re.findall(r'<a href="#([^"]+)"', text):
        assert name in seen.ids
    assert seen.tags.count("table") == 8
    for word in ("<title>Shop<", "shop-cluster", "clicks-2", "CRC-32C does not match", "dashboard", "user-0", "Shop"):
        assert word in text
    outside = re.sub(r'"\$schema":"[^"]*"', "", text)
    assert not re.findall(r"(?:src|href)=(?!\"#)|url\(|@import|https?://", outside)


def test_names_and_keys_are_text_and_never_markup(facts: Facts) -> None:
    bad = "</script><img src=x onerror=alert(1)>"
    topic = replace(facts.topics[0], topic=bad)
    keys = TopKeys("orders", 2, 0, (KeyCount(bad.encode(), 1, 1), KeyCount(b"\xff\x00", 1, 1)))
    text = page(replace(facts, topics=(topic, *facts.topics[1:]), top_keys=(keys,)), bad)
    assert "img" not in Seen(text).tags
    assert "0xff00" in text


MARKUP = "\"'><img src=x onerror=alert(1)><a href=javascript:alert(1)>`\u2028\u202e\x1b</script><!--"


def with_markup(value: Any) -> Any:
    """The same facts, with MARKUP in front of every text."""
    if isinstance(value, str):
        return MARKUP + value
    if isinstance(value, bytes):
        return MARKUP.encode() + value
    if isinstance(value, dict):
        return {name: with_markup(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [*map(with_markup, value)] if isinstance(value, list) else tuple(map(with_markup, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: with_markup(getattr(value, each.name)) for each in fields(value)})
    return value


def test_no_fact_becomes_a_tag_or_an_attribute(facts: Facts) -> None:
    plain, marked = Seen(page(facts)), Seen(page(with_markup(facts), MARKUP))
    assert marked.tags == plain.tags
    assert marked.attributes == plain.attributes


def test_no_name_ends_a_script_or_hides_its_end(facts: Facts) -> None:
    """`<!--<script` in a script: the next </script> is part of it, and the rest of the page."""
    bad = "<!--<script>x</script>"
    keys = TopKeys("orders", 1, 0, (KeyCount(bad.encode(), 1, 1),))
    lags = tuple(replace(lag, group_id=bad) for lag in facts.topic_lags)
    producers = tuple(replace(one, transactional_id=bad) for one in facts.producers)
    text = page(replace(facts, top_keys=(keys,), topic_lags=lags, producers=producers), bad)
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 3
    assert not [script for script in scripts if "<!--" in script or "<script" in script]
    specs = json.loads(scripts[0])
    assert bad in json.dumps(specs["chart-keys-0"])
    assert bad in json.dumps(specs["chart-lag"])
    assert bad in json.dumps(specs["chart-producers"])


EMPTY = Facts(("/data",), (), 0, (), (), (), None, (), 0, (), (), (), (), (), None, None)


def rows_of(spec: Any) -> list[dict[str, Any]]:
    (rows,) = spec["datasets"].values()
    return list(rows)


def bars_of(spec: Any) -> dict[int, int]:
    """Sums by bar, as Vega-Lite groups them."""
    y = spec["layer"][0]["encoding"]["y"]["field"]
    sums: Counter[int] = Counter()
    for row in rows_of(spec):
        sums[row[y]] += row["value"]
    return dict(sums)


def test_keys_with_equal_text_have_separate_bars() -> None:
    start = b"urn:shop:eu-central:customer:account:00000"
    keys = (start + b"1" + start, start + b"2" + start, None, b"null", b"\x00", b"0x00")
    spec = charts_module._top_keys(TopKeys("t", 21, 0, tuple(KeyCount(k, 6 - at, 0) for at, k in enumerate(keys))))
    assert spec is not None
    assert bars_of(spec) == {0: 6, 1: 5, 2: 4, 3: 3, 4: 2, 5: 1}
    label = spec["layer"][0]["encoding"]["y"]["axis"]["labelExpr"]
    labels = json.loads(label.removeprefix("truncate(").partition("[datum.value]")[0])
    assert labels[0] == labels[1]
    assert labels[2:] == ["null", '"null"', "0x00", '"0x00"']
    assert len({row["key"] for row in rows_of(spec)}) == 6


def test_topic_named_others_is_not_the_sum_of_other_topics(facts: Facts) -> None:
    rates = (replace(facts.rates[0], topic="others"), replace(facts.rates[1], topic=None))
    spec = charts_module._rate(replace(facts, rates=rates), "bytes")
    assert spec is not None
    assert spec["encoding"]["color"]["scale"]["domain"] == ["others", "(others)"]


def test_codec_has_the_same_colour_in_every_chart(facts: Facts) -> None:
    specs = charts_module.charts(facts)
    colors = [specs[name]["layer"][0]["encoding"]["color"] for name in ("chart-topics", "chart-compression")]
    assert colors[0]["scale"] == colors[1]["scale"]
    assert [color["legend"]["values"] for color in colors] == [
        sorted({row["codec"] for row in rows_of(specs[name])}) for name in ("chart-topics", "chart-compression")
    ]
    assert set(colors[0]["legend"]["values"]) <= set(colors[0]["scale"]["domain"])


def test_lag_chart_sums_all_committed_offsets_and_the_table_has_the_largest() -> None:
    totals = LagTotals()

    def add(group: str, topic: str, partition: int, lag: int | None) -> None:
        totals.add({"group_id": group, "topic": topic, "partition": partition, "lag": lag})

    for partition in range(5000):
        add("wide", "t", partition, 10)
        add("broad", f"t{partition % 20}", partition // 20, 1)
    add("narrow", "t", 0, 5000)
    add("unknown", "t", 0, None)
    assert len(totals.largest()) == MAX_LAGS
    assert [lag["group_id"] for lag in totals.largest()] == ["narrow", *["wide"] * (MAX_LAGS - 1)]
    spec = charts_module._lag(replace(EMPTY, topic_lags=totals.by_topic()))
    assert spec is not None
    assert bars_of(spec) == {0: 50_000, 1: 5000, 2: 5000}
    shown = {(row["name"], row["topic"]): row["value"] for row in rows_of(spec)}
    assert shown["broad", "(others)"] == 5000 - MAX_TOPICS_PER_GROUP * 250
    assert shown["broad", "t0"] == 250
    assert len(shown) == 2 + MAX_TOPICS_PER_GROUP + 1


@pytest.mark.parametrize(("ratios", "scale"), [((5.9, 2.0, 16_230.4), "log"), ((5.9, 2.0, 40.25), None)])
def test_every_ratio_is_drawn_at_its_value(facts: Facts, ratios: tuple[float, ...], scale: str | None) -> None:
    topics = [
        replace(topic, codecs=(replace(topic.codecs[0], ratio=ratio),))
        for topic, ratio in zip(facts.topics, ratios, strict=False)
    ]
    spec = charts_module._compression(replace(facts, topics=tuple(topics)))
    assert spec is not None
    assert bars_of(spec) == dict(enumerate(ratios))
    x = spec["layer"][0]["encoding"]["x"]
    assert x["scale"].get("type") == scale
    assert ("(logarithmic)" in x["title"]) == (scale == "log")
    low, high = x["scale"]["domain"]
    assert low <= min(ratios)
    assert high > max(ratios)
    assert rows_of(spec)[2]["label"] == ("16,200 ×" if scale else "40.2 ×")


def test_rates_count_only_the_time_with_writes(facts: Facts) -> None:
    """An hour of writing, and a record years before it."""
    rates = (replace(facts.rates[0], bytes=(100, 0, 7_200_000), records=(1, 0, 72_000)),)
    one = replace(facts, rates=rates, span=Span(0, 3 * 365 * 86_400_000), written_ms=(60_000, 0, 3_600_000))
    spec = charts_module._rate(one, "bytes")
    assert spec is not None
    assert spec["encoding"]["y"]["title"] == "bytes/s"
    rows = rows_of(spec)
    assert [row["v"] for row in rows] == [1.667, 0, 2000, 2000]
    assert rows[-1]["t"] == 3 * 365 * 86_400_000, "the last slice is as wide as the others"


def test_long_text_wraps_and_sizes_have_units(facts: Facts) -> None:
    topic = replace(facts.topics[0], topic="shop.orders.enriched-and-deduplicated.v2", records=5000, size=300_500_000)
    table = page_module._topic_table((topic, facts.topics[1]))
    assert f'<td class="long">{topic.topic}</td>' in table
    assert f"<td>{facts.topics[1].topic}</td>" in table
    assert ">60.1 kB</td>" in table


def test_wide_table_scrolls_in_place() -> None:
    style = page_module._file("page.css")
    assert "overflow-x: auto" in style.partition(".scroll {")[2].partition("}")[0]


def test_empty_directory_gives_a_page() -> None:
    text = page(EMPTY)
    Seen(text)
    assert "There are no partitions here." in text
    assert "--no-check" in text


def test_html_table_is_limited_in_rows() -> None:
    shown = html_table({"n": number}, range(MAX_TABLE_ROWS + 5), "rows")
    assert shown.count("<tr>") == MAX_TABLE_ROWS + 1
    assert "5 more rows are not shown" in shown


def test_offsets_sort_by_their_exact_value() -> None:
    assert 'data-v="1234567890123"' in html_table({"n": number}, [1_234_567_890_123], "rows")


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (size_text(0), "0 B"),
        (size_text(999), "999 B"),
        (size_text(999_600), "1 MB"),
        (size_text(1_234_567), "1.23 MB"),
        (count_text(1_234_567), "1,234,567"),
        (count_text(None), "–"),
        (short_count(999), "999"),
        (rounded_text(16_230), "16,200"),
        (rounded_text(5.917), "5.92"),
        (rounded_text(123.4), "123"),
        (rounded_text(0.05), "0.05"),
        (short_count(12_345 * 10**15), "12,300,000 T"),
        (short_count(19_940), "19.9 k"),
        (duration_text(900), "900 ms"),
        (duration_text(259_000_000), "3 days"),
        (duration_text(95_251_409_299), "3.02 years"),
        (duration_text(100_000), "100 s"),
        (time_text(1_767_225_600_000), "2026-01-01 00:00:00"),
        (time_text(2**62), f"{2**62} ms"),
        (bytes_text(None), "null"),
        (bytes_text(b""), '""'),
        (bytes_text(b"null"), '"null"'),
        (bytes_text(b"0x00"), '"0x00"'),
        (bytes_text(b'"null"'), '""null""'),
        (bytes_text(b"\x00" * 100), "0x" + "00" * 19 + "…" + "00" * 10),
        (bytes_text("käse".encode()), "käse"),
        (bytes_text(b"\x00\x01"), "0x0001"),
        (bytes_text(b"x" * 100), "x" * 40 + "…" + "x" * 20),
        (bytes_text(b"x" * 60), "x" * 60),
    ],
)
def test_numbers_are_formatted_for_reading(said: str, text: str) -> None:
    assert said == text


def test_report_command_does_not_change_the_log_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "logs" / "orders-0"
    directory.mkdir(parents=True)
    segment = directory / f"{segment_name(0)}.log"
    data = batch(0, [V2Record(0, 1_700_000_000_000, None, b"v")])
    segment.write_bytes(data)
    (tmp_path / "link").symlink_to(segment)
    (tmp_path / "there").symlink_to(tmp_path / "logs")
    monkeypatch.chdir(directory)
    for source in (tmp_path / "logs", directory, tmp_path / "there"):
        for out in (segment, tmp_path / "link", tmp_path / "there" / "orders-0" / "new.html", "report.html", directory):
            assert main([str(source), "-o", str(out), "--no-check"]) == 2, out
            assert "is inside" in capsys.readouterr().err
    assert [found.name for found in directory.iterdir()] == [segment.name]
    assert segment.read_bytes() == data
    beside = tmp_path / "logs.html"
    assert main([str(tmp_path / "logs"), "-o", str(beside), "--no-check"]) == 0


def test_report_file_is_replaced_atomically(tmp_path: Path) -> None:
    out, link = tmp_path / "out.html", tmp_path / "link.html"
    out.write_text("before")
    out.chmod(0o640)
    link.symlink_to(out)
    with pytest.raises(UnicodeEncodeError):
        write_atomically(str(link), "x" * 100_000 + "\udcff")
    assert out.read_text() == "before"
    write_atomically(str(link), "after")
    assert (out.read_text(), out.stat().st_mode & 0o777, link.is_symlink()) == ("after", 0o640, True)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["link.html", "out.html"]
    write_atomically("/dev/null", "gone")
    assert Path("/dev/null").is_char_device()


def test_report_command_writes_the_file_and_prints_its_path(
    tmp_path: Path,
    golden_copy: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = str(golden_copy(KAFKA_4_3, "codec-none-0"))
    out = tmp_path / "out.html"
    assert main([root, "-o", str(out), "--title", "Mine"]) == 0
    assert "<title>Mine</title>" in out.read_text()
    assert str(out) in capsys.readouterr().err
    assert main([root, "-o", "-", "--no-check"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")
    assert main([root, "-o", str(tmp_path / "missing" / "out.html"), "--no-check"]) == 1
    assert main([str(tmp_path / "nothing"), "-o", str(out)]) == 2
    assert main([root, "-o", str(out), "--top-keys", "shoes"]) == 2
    assert "topic shoes" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert main([root, "-o", str(out)]) == 2
    assert "pip install 'altair" in capsys.readouterr().err
