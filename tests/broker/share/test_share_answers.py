"""Responses to requests of share groups equal those of Apache Kafka 4.3.0 (kafka-4.3.0-share.json.xz).

The requests are in helpers/share_script.py; record_share.py sends them to a real Kafka.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog_broker.testing import RunningBroker, running_broker
from tests.broker.share.helpers.compared import BY_CHANCE, are_the_same
from tests.broker.share.helpers.share_script import LOCK_MS, PATIENT, PATIENT_LOCK_MS, prepared
from tests.broker.share.record_share import ANSWERS

pytestmark = pytest.mark.end_to_end

KAFKAS = json.loads(lzma.decompress(ANSWERS.read_bytes()))


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with running_broker(PATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def ours(broker: RunningBroker) -> dict[str, Any]:
    """Responses of this broker. Its locks are longer than those of the recorded Kafka and expire by its manual clock.
    The lock duration in responses is replaced by the recorded one."""

    def locks_end() -> None:
        broker.clock.advance(seconds=PATIENT_LOCK_MS / 1000 + 1)

    answers: dict[str, Any] = _with_kafkas_locks(prepared(broker.bootstrap, locks_end))
    return answers


def _with_kafkas_locks(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_with_kafkas_locks(one) for one in answer]
    if not isinstance(answer, dict):
        return answer
    found = {name: _with_kafkas_locks(value) for name, value in answer.items()}
    if found.get("acquisition_lock_timeout") == PATIENT_LOCK_MS:
        found["acquisition_lock_timeout"] = LOCK_MS
    return found


def test_script_is_the_one_sent_to_kafka(ours: dict[str, Any]) -> None:
    assert set(ours) == set(KAFKAS), "record_share.py must be run again"


@pytest.mark.parametrize("label", sorted(KAFKAS.keys() - BY_CHANCE))
def test_response_equals_that_of_kafka(ours: dict[str, Any], label: str) -> None:
    assert are_the_same(label, ours[label], KAFKAS[label]), (ours[label], KAFKAS[label])


def test_partitions_are_assigned_to_both_members(ours: dict[str, Any]) -> None:
    labels = ("the first has one left", "the second joins")
    given = [ours[label]["assignment"]["topic_partitions"][0]["partitions"] for label in labels]
    assert sorted(given) == [[0], [1]]
