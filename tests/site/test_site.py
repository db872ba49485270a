"""The documentation as a site: built without a warning, every link leads somewhere, nothing is fetched from elsewhere;
in a browser no page is wider than its screen, and the search finds things."""

from __future__ import annotations

import functools
import http.server
import posixpath
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.end_to_end

ROOT = Path(__file__).parent.parent.parent
WAYS_IN = {
    "Read": "start/local.html",
    "Write": "sink.html",
    "Operate": "broker.html",
    "Test": "testing.html",
    "Contribute": "repository/CONTRIBUTING.html",
}
"""The first page sends each kind of reader to a page of their own."""
PLATFORMS = ("local", "emr", "databricks", "kubernetes")
DESK, PHONE = (1280, 900, False), (390, 844, True)

_BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_DRIVER = shutil.which("chromedriver")
needs_a_browser = pytest.mark.skipif(
    _BROWSER is None or _DRIVER is None, reason="needs Chromium (Debian: apt-get install chromium chromium-driver)"
)


@pytest.fixture(scope="module")
def site() -> Path:
    """build/site, made as `make site` does; strict: a warning fails it."""
    command = [sys.executable, str(ROOT / "docs_site" / "build.py")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ROOT / "build" / "site"


@dataclass
class Page(HTMLParser):
    """What a page has: anchors, links to follow, and what a browser loads by itself."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe") and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given.get("href", ""))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    found = {}
    for path in sorted(site.rglob("*.html")):
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        found[path.relative_to(site).as_posix()] = page
    return found


def test_every_link_leads_to_a_page_a_file_or_an_anchor(site: Path, pages: dict[str, Page]) -> None:
    broken, followed = [], 0
    for name, page in pages.items():
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            at = unquote(parts.path)
            if name == "404.html" and at.startswith("/"):
                target = at.lstrip("/") or "index.html"  # served for any path, so its links begin at the root
            else:
                target = posixpath.normpath(posixpath.join(posixpath.dirname(name), at)) if at else name
            target = f"{target}/index.html" if (site / target).is_dir() else target
            followed += 1
            if not (site / target).is_file():
                broken.append(f"{name}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                broken.append(f"{name}: {link} (no such anchor)")
    assert not broken, "\n".join(broken)
    assert followed > 1000


def test_nothing_is_fetched_from_elsewhere(pages: dict[str, Page]) -> None:
    elsewhere = {(name, load) for name, page in pages.items() for load in page.loads if urlsplit(load).netloc}
    assert not elsewhere


def test_every_page_is_in_the_navigation_or_in_a_list_of_it(site: Path, pages: dict[str, Page]) -> None:
    menu = {posixpath.normpath(link.partition("#")[0]) for link in pages["index.html"].links if "://" not in link}
    written = {
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")
    }
    assert written - menu == set()
    assert {f"start/{platform}.html" for platform in PLATFORMS} <= menu
    assert len(pages) >= 60


def test_each_reader_has_a_way_in_on_the_first_page(pages: dict[str, Page], site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    cards = re.findall(r"<strong>(\w+)</strong>.*?Begin with <a href=\"(?:\./)?([^\"]+)\"", text, re.DOTALL)
    assert dict(cards) == WAYS_IN


def test_the_python_api_has_signatures_and_docstrings(site: Path) -> None:
    text = (site / "api.html").read_text(encoding="utf-8")
    for name in ("kafkalog_spark.register", "kafkalog_spark.log.log_dir.LogDirs.scan",
                 "kafkalog_broker.testing.running_broker", "kafkalog_spark.source.lag.LagListener"):  # fmt: skip
        assert f'id="{name}"' in text, name
    assert ":::" not in text
    assert "read_committed" in text, "a parameter of scan"


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.binary_location = _BROWSER or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(_DRIVER))
    yield driver
    driver.quit()


def screen(browser: Any, size: tuple[int, int, bool]) -> None:
    width, height, mobile = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@needs_a_browser
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_no_page_is_wider_than_the_screen(
    browser: Any, served: str, pages: dict[str, Page], size: tuple[int, int, bool]
) -> None:
    screen(browser, size)
    wide = []
    for name in pages:
        browser.get(f"{served}/{name}")
        width = browser.execute_script("return document.documentElement.scrollWidth")
        if width > size[0]:
            wide.append(f"{name}: {width} of {size[0]} pixels")
        severe = [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
        assert not severe, (name, severe)
    assert not wide


@needs_a_browser
@pytest.mark.parametrize("opened", ["served", "from a disk"])
def test_the_search_finds_an_option(browser: Any, served: str, site: Path, opened: str) -> None:
    from selenium.webdriver import ActionChains

    screen(browser, DESK)
    browser.get(f"{served}/index.html" if opened == "served" else (site / "index.html").as_uri())
    browser.find_element("css selector", ".md-search__button").click()
    ActionChains(browser).send_keys("maxBytesPerTrigger").perform()
    end = time.monotonic() + 120
    found: list[str] = []
    while time.monotonic() < end:
        found = browser.execute_script(
            "return [...document.querySelectorAll('body > div')].filter(div => div.shadowRoot)"
            ".flatMap(div => [...div.shadowRoot.querySelectorAll('a')]).map(a => a.href)"
        )
        if any("options.html" in link for link in found):
            return
        time.sleep(0.05)
    raise AssertionError(f"the search found {found}")
