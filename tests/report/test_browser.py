"""The report in a browser: Chromium draws every chart, on a desk and on a phone, in light and dark."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog_spark.cli.report import main
from kafkalog_spark.format.names import segment_name
from tests.log.helpers.batch_builder import V2Record, batch
from tests.report.shop_directory import START, write_shop

_BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.skipif(
        _BROWSER is None or _DRIVER is None, reason="needs Chromium (Debian: apt-get install chromium chromium-driver)"
    ),
    pytest.mark.end_to_end,
]

DESK, PHONE = (1200, 900, False), (390, 844, True)
_PATIENCE = 60


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    write_shop(root / "shop")
    assert main([str(root / "shop"), "-o", str(root / "report.html"), "--top-keys", "orders"]) == 0
    return root / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.binary_location = _BROWSER or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(_DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def shown(browser: Any) -> Callable[..., Any]:
    """`shown(path, (width, height, mobile), dark)`: the page with all charts drawn."""

    def show(path: Path, size: tuple[int, int, bool], dark: bool = False) -> Any:
        width, height, mobile = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        browser.get_log("browser"), browser.get_log("performance")  # what was before
        browser.get(path.as_uri())
        deadline = time.monotonic() + _PATIENCE
        while browser.execute_script("return document.body.dataset.charts") != "drawn":
            assert time.monotonic() < deadline, browser.get_log("browser")
            time.sleep(0.05)
        return browser

    return show


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_chart_is_drawn_within_the_page(
    report: Path, shown: Callable[..., Any], size: tuple[int, int, bool], dark: bool
) -> None:
    page = shown(report, size, dark)
    charts = page.execute_script(
        "return [...document.querySelectorAll('.chart')].map(c => [c.id, c.querySelectorAll('svg path').length,"
        " c.querySelector('svg').getBoundingClientRect().right])"
    )
    assert len(charts) == 8
    for name, marks, right in charts:
        assert marks > 3, name
        assert right <= size[0], name
    assert page.execute_script("return document.documentElement.scrollWidth") <= size[0]
    tables = page.execute_script("return [...document.querySelectorAll('.scroll')].map(t => t.clientWidth)")
    assert all(0 < width < size[0] for width in tables)
    assert page.get_log("browser") == []
    fetched = [entry["message"] for entry in page.get_log("performance") if "requestWillBeSent" in entry["message"]]
    assert all('"url":"file:' in message or '"url":"data:' in message for message in fetched)
    back = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(int(part) for part in back.removeprefix("rgb(").rstrip(")").split(","))
    assert (brightness < 200) == dark
    label = page.execute_script("return document.querySelector('#chart-topics .mark-text text').getAttribute('fill')")
    assert (label == "#94a3b8") == dark


def test_axes_have_readable_numbers_and_include_the_newest_records(report: Path, shown: Callable[..., Any]) -> None:
    page = shown(report, DESK)
    texts = (
        "return [...document.querySelectorAll('#{} .role-axis-label text')].map(t => t.textContent)"
        ".filter(t => /^[0-9.]+( |$)/.test(t))"
    )
    assert page.execute_script(texts.format("chart-topics"))[:2] == ["0", "200 kB"]
    assert "0" in page.execute_script(texts.format("chart-rate"))
    areas, plot = page.execute_script(
        "const right = s => Math.max(...[...document.querySelectorAll(s)].map(e => e.getBoundingClientRect().right));"
        "return [right('#chart-rate .mark-area path'), right('#chart-rate .role-axis-grid line')]"
    )
    assert abs(areas - plot) < 2


def test_tables_sort_and_filter(report: Path, shown: Callable[..., Any]) -> None:
    page = shown(report, DESK)
    cells = "return [...document.querySelectorAll('#partitions tbody tr')].filter(r => !r.hidden).map(r => r.cells[{}]"
    click = "document.querySelectorAll('#partitions th')[{}].click()"
    names = page.execute_script(cells.format(0) + ".textContent)")
    assert names[0].startswith("clicks-")
    page.execute_script(click.format(0))
    assert page.execute_script(cells.format(0) + ".textContent)") == sorted(names)
    page.execute_script(click.format(4))
    ends = page.execute_script(cells.format(4) + ".dataset.v)")
    assert [int(end) for end in ends] == sorted(map(int, ends), reverse=True)
    page.execute_script(
        "const f = document.querySelector('#keys-0 .filter'); f.value = 'USER-12';f.dispatchEvent(new Event('input'))"
    )
    left = page.execute_script(
        "return [...document.querySelectorAll('#keys-0 tbody tr')].filter(r => !r.hidden).length"
    )
    assert 1 <= left < 5


def test_markup_in_keys_and_names_does_not_break_the_page(tmp_path: Path, shown: Callable[..., Any]) -> None:
    bad = b"<!--<script>alert(1)</script>"
    directory = tmp_path / "logs" / "orders-0"
    directory.mkdir(parents=True)
    keys = [bad, bad, b"null", None, b"\xe2\x80\xa8'\"\\"]
    records = [V2Record(at, START + at, key, b"v") for at, key in enumerate(keys)]
    (directory / f"{segment_name(0)}.log").write_bytes(batch(0, records))
    out = tmp_path / "out.html"
    assert main([str(tmp_path / "logs"), "-o", str(out), "--top-keys", "orders"]) == 0
    page = shown(out, DESK)
    assert page.get_log("browser") == []
    labels = page.execute_script(
        "return [...document.querySelectorAll('#chart-keys-0 .role-axis-label text')].map(t => t.textContent)"
    )
    assert {bad.decode(), '"null"', "null", "0xe280a827225c"} <= set(labels)  # the others are numbers, beneath the bars
    assert page.execute_script("return document.querySelectorAll('main section').length") > 7


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_long_names_with_a_common_prefix_are_distinct_and_fit_the_page(
    tmp_path: Path, shown: Callable[..., Any], size: tuple[int, int, bool]
) -> None:
    names = [f"company.department-of-orders.events-enriched-and-deduplicated.v{number}" for number in range(10, 21)]
    for name in names:
        directory = tmp_path / "logs" / f"{name}-0"
        directory.mkdir(parents=True)
        (directory / f"{segment_name(0)}.log").write_bytes(batch(0, [V2Record(0, START, b"k", b"v")]))
    out = tmp_path / "out.html"
    assert main([str(tmp_path / "logs"), "-o", str(out), "--top-keys", names[0]]) == 0
    page = shown(out, size)
    assert page.execute_script("return document.documentElement.scrollWidth") <= size[0]
    for part in ("chart-topics .role-axis-label", "chart-rate .role-legend-label", "chart-timeline .role-axis-label"):
        labels = page.execute_script(
            f"return [...document.querySelectorAll('#{part} text')].map(t => [t.textContent,"
            " t.getBoundingClientRect().right]).filter(([text]) => text.startsWith('company'))"
        )
        assert len({text for text, _ in labels}) == len(labels) >= 8, labels
        assert all(right <= size[0] for _, right in labels), labels


def test_thousand_partitions_stay_below_two_megabytes(tmp_path: Path, shown: Callable[..., Any]) -> None:
    root = tmp_path / "many"
    for partition in range(1000):
        directory = root / f"topic-{partition % 40}-{partition // 40}"
        directory.mkdir(parents=True)
        data = b""
        for at in range(3):
            time_ms = START + (partition * 7 + at) * 60_000
            records = [V2Record(at * 5 + one, time_ms + one, b"key-%d" % partition, b"v" * 50) for one in range(5)]
            data += batch(at * 5, records, producer_id=partition, producer_epoch=0, base_sequence=at * 5)
        (directory / f"{segment_name(0)}.log").write_bytes(data)
    out = tmp_path / "many.html"
    assert main([str(root), "-o", str(out)]) == 0
    assert out.stat().st_size < 2_000_000
    page = shown(out, DESK)
    assert page.execute_script("return document.querySelectorAll('#partitions tbody tr').length") == 1000
