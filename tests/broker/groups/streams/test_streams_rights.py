"""Authorization of streams group members."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kafkalog_broker.testing import allow, running_broker
from tests.broker.api.helpers.plain_entities import plain
from tests.broker.groups.helpers.streams_script import Script, subtopology
from tests.broker.share.test_share_rights import alice, said

PROPERTIES = {
    "offsets.topic.num.partitions": 1,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 0,
}
RIGHTS = [
    allow("alice", "READ", group="readers"),
    allow("alice", "READ", group="owners"),
    allow("alice", "READ", group="makers"),
    *(allow("alice", "DESCRIBE", topic=topic) for topic in ("open", "mine", "theirs")),
    allow("alice", "CREATE", topic="mine"),
]


@pytest.fixture(scope="module")
def connection() -> Iterator[socket.socket]:
    topics = {"open": 2, "closed": 1}
    with running_broker(
        PROPERTIES, topics=topics, security="SASL_PLAINTEXT", users={"alice": "secret"}, acls=RIGHTS
    ) as running:
        with running.connect() as administrator:  # who lets the internal topic be made
            while said(administrator, 10, 6, key_type=0, coordinator_keys=["makers"]).coordinators[0].error_code:
                pass
        with alice(running) as connected:
            yield connected


def joined(connection: socket.socket, group: str, topic: str, *stores: str) -> dict[str, Any]:
    script = Script(lambda *_: {}, {})
    answer = said(connection, 88, 0, **script.joining(group, "m", "P", subtopology("0", topic, stores=stores)))
    found: dict[str, Any] = plain(answer)
    return found


def test_members_may_read_the_group_and_describe_its_topics(connection: socket.socket) -> None:
    assert joined(connection, "other", "open")["error_code"] == "group_authorization_failed"
    assert joined(connection, "readers", "closed")["error_code"] == "topic_authorization_failed"
    assert joined(connection, "readers", "open", "closed")["error_code"] == "topic_authorization_failed"
    assert joined(connection, "readers", "open")["error_code"] == "none"


def test_internal_topics_are_created_for_members_with_the_create_right(connection: socket.socket) -> None:
    (status,) = joined(connection, "owners", "open", "mine")["status"]
    assert status["status_detail"] == "Internal topics are missing: mine"
    assert not plain(said(connection, 88, 0, **Script(lambda *_: {}, {}).heartbeat("owners", "m", 2)))["status"]
    (status,) = joined(connection, "makers", "open", "theirs")["status"]
    assert status["status_detail"] == "Internal topics are missing: theirs; Unauthorized to CREATE on topics theirs."
    assert said(connection, 88, 0, **Script(lambda *_: {}, {}).heartbeat("makers", "m", -1)).error_code.name == "none"


def test_describe_needs_the_describe_right(connection: socket.socket) -> None:
    """READ includes DESCRIBE."""
    joined(connection, "readers", "open")
    answer = said(connection, 89, 0, group_ids=["readers", "other"], include_authorized_operations=True)
    codes = {group["group_id"]: group["error_code"] for group in plain(answer)["groups"]}
    assert codes == {"readers": "none", "other": "group_authorization_failed"}
