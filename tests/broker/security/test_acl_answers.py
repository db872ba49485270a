"""Responses to principals with and without each right equal those recorded from Apache Kafka 4.3.0.

The table is in helpers/acl_scenario.py, Kafka's answers in kafka-4.3.0-acls.json.xz (written by record_acls.py);
tests/interop/test_acl_answers.py asks both.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog_broker import api
from kafkalog_broker.protocol.api_messages import FIRST_OWN_API_KEY
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import plain
from tests.broker.api.helpers.transaction_answers import read_described
from tests.broker.security.helpers.acl_answers import known_differences, prepare, table
from tests.broker.security.helpers.acl_case import ADMIN
from tests.broker.security.helpers.acl_scenario import cases
from tests.broker.security.record_acls import AUTHORIZER, LISTENER, security

KAFKAS = json.loads(lzma.decompress(Path(__file__).with_name("kafka-4.3.0-acls.json.xz").read_bytes()))
PROPERTIES = {
    **{name.replace(LISTENER, "listener.name.plaintext."): value for name, value in security().items()},
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN}", "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1", "node.id": "1",
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with BrokerInProcess(tmp_path_factory.mktemp("acls"), PROPERTIES) as broker:

        def ask(user: str, request: Any) -> dict[str, Any]:
            answer = broker.ask(request, read_described, principal=f"User:{user}")
            return plain(answer) if answer is not None else {}  # type: ignore[no-any-return]

        yield table(ask, prepare(ask))


@pytest.mark.parametrize("label", KAFKAS)
def test_response_equals_that_of_kafka(label: str, answers: dict[str, Any]) -> None:
    assert known_differences(label, answers[label]) == known_differences(label, KAFKAS[label])


WITHOUT_RIGHTS = {17, 18, 36, 71, 72}
"""SaslHandshake, ApiVersions, SaslAuthenticate, those of telemetry: everybody may."""

OF_SHARE_GROUPS = {76, 77, 78, 79, *range(83, 88), 90, 91, 92}
"""tests/broker/share/test_share_rights.py asks them."""

OF_STREAMS_GROUPS = {88, 89}
"""tests/broker/groups/streams/test_streams_rights.py asks them."""


def test_scenario_covers_every_api() -> None:
    kafkas = {key for key in api.load_all() if key < FIRST_OWN_API_KEY}
    assert {case.key for case in cases()} == kafkas - WITHOUT_RIGHTS - OF_SHARE_GROUPS - OF_STREAMS_GROUPS


def test_recording_has_the_cases_of_the_scenario(answers: dict[str, Any]) -> None:
    assert list(answers) == list(KAFKAS), "record_acls.py must be run again"
