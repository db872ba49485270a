"""tests/broker/apis.md lists the served APIs; the tests named there and in docs/protocol.md exist."""

from __future__ import annotations

import re
from pathlib import Path

from kafkalog_broker import api
from kafkalog_broker.protocol.api_messages import FIRST_OWN_API_KEY, api_keys, api_name, api_versions
from tests.broker.protocol.helpers.guide_classes import VERSIONS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "tests" / "broker" / "apis.md").read_text(encoding="utf-8")
FOR_CLIENTS = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if re.match(r"\| \d+ \| [A-Z]\w+ \|", line) and line.count("|") == 7
]
TABLE = {int(key): (name, guides, kafka, served, tests) for key, name, guides, kafka, served, tests in ROWS}


def span(lowest: int, highest: int) -> str:
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


def test_page_has_a_row_for_every_api() -> None:
    assert [key for key in TABLE if key < FIRST_OWN_API_KEY] == list(range(93))
    assert set(api_keys()) <= set(TABLE)
    named = {key: row[0] for key, row in TABLE.items() if key in api_keys()}
    assert named == {key: api_name(key) for key in named}


def test_listed_served_versions_equal_those_of_the_registry() -> None:
    served = {key: span(one.min_version, one.max_version) for key, one in api.load_all().items()}
    assert {key: row[3] for key, row in TABLE.items() if row[3] != "-"} == served


def test_listed_versions_of_kafka_and_the_guides_equal_those_of_the_message_classes() -> None:
    """Of Kafka, the stable ones: InitProducerId 6 is not."""
    for key, row in TABLE.items():
        if key in api_keys() and key != 22 and key < FIRST_OWN_API_KEY:
            known = api_versions(key)[len(VERSIONS.get(key, ())) :]
            assert row[2].removesuffix(" (controller)") == span(known[0], known[-1]), key


def test_every_api_with_a_format_in_the_guides_is_served_from_version_0_on() -> None:
    for name, guides, _, served, _ in TABLE.values():
        if guides and guides != "named":
            assert served.startswith("0"), name


def test_listed_test_files_of_served_apis_exist() -> None:
    for name, _, _, served, tests in TABLE.values():
        files = re.findall(r"`([\w/]+\.py)`", tests)
        assert bool(files) == (served != "-"), name
        for file in files:
            assert (ROOT / "tests" / "broker" / file).exists(), file
    for file in re.findall(r"`(\w+/[\w/]+\.py)`", PAGE + FOR_CLIENTS):
        places = (ROOT / "tests" / "broker" / file, ROOT / file, ROOT / "broker" / "kafkalog_broker" / file)
        assert any(place.exists() for place in places), file
