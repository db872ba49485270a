"""Topic creation and deletion under ACLs, in cases that change too much for the scenario recorded from Kafka.

A file of its own: no other broker of this process may be watched while one of these starts.
"""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from kafkalog_broker.testing import allow, deny
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import request_entity
from tests.broker.security.helpers.acl_case import ADMIN
from tests.broker.security.helpers.acl_data_cases import metadata
from tests.broker.security.record_acls import AUTHORIZER

PROPERTIES = {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN}", "node.id": "1"}


def test_metadata_request_creates_a_topic_only_with_create_permission(tmp_path: Path) -> None:
    """Not recorded from Kafka, which responds before the topic exists."""
    with BrokerInProcess(tmp_path, {**PROPERTIES, "auto.create.topics.enable": "true"}) as broker:
        assert broker.broker.authorizer is not None
        broker.broker.authorizer.acls.change(
            (), [*allow("one", "DESCRIBE", "CREATE", topic="new"), *allow("two", "DESCRIBE", topic="*", cluster=True)]
        )
        request = request_entity(3, 8, metadata(["new", "other"], create=True), {})
        for user, wanted in (
            ("two", ["topic_authorization_failed"] * 2),
            ("one", ["none", "topic_authorization_failed"]),
        ):
            topics = broker.ask(request, principal=f"User:{user}").topics
            assert [topic.error_code.name for topic in sorted(topics, key=lambda topic: topic.name)] == wanted
        assert [topic.name for topic in broker.broker.topics] == ["new"]


def test_deletion_without_describe_permission_does_not_disclose_topics(tmp_path: Path) -> None:
    """Matches ControllerApis.deleteTopics: deletion by name needs DESCRIBE and DELETE, by ID only DELETE.

    Only a principal with DELETE learns that a name and an ID belong to the same topic. DELETE on the cluster includes
    DELETE on all topics.
    """
    with BrokerInProcess(tmp_path, PROPERTIES) as broker:
        assert broker.broker.authorizer is not None
        broker.broker.authorizer.acls.change(
            (),
            [
                *allow("one", "DELETE", topic="t"), *deny("one", "DESCRIBE", topic="*"),
                *allow("two", "DESCRIBE", topic="*"), *allow("three", "DELETE", cluster=True),
            ],
        )  # fmt: skip
        topic = broker.run(broker.broker.ensure_topic("t", 1, {}))

        def told(user: str, *topics: tuple[str | None, UUID | None]) -> list[tuple[str | None, bool, str]]:
            named = [{"name": name, "topic_id": (key or UUID(int=0)).hex} for name, key in topics]
            request = request_entity(20, 6, {"topics": named, "timeout": 5000}, {})
            answer = broker.ask(request, principal=f"User:{user}")
            found = [(one.name, one.topic_id is not None, one.error_code.name) for one in answer.responses]
            return sorted(found, key=lambda one: (one[0] or "", one[1]))

        refused, by_name, by_id = "topic_authorization_failed", ("t", None), (None, topic.id)
        assert told("one", by_name, ("no", None)) == [("no", False, refused), ("t", False, refused)]
        assert told("nobody", by_name, by_id) == [(None, True, refused), ("t", False, refused)]
        assert told("two", by_name, by_id) == [("t", False, refused), ("t", True, refused)]
        assert told("two", ("no", None)) == [("no", False, "unknown_topic_or_partition")]
        assert told("three", by_name, by_id, ("no", None)) == [
            ("no", False, "unknown_topic_or_partition"), ("t", True, "invalid_request"),
        ]  # fmt: skip
        assert "t" in broker.broker.topics
        assert told("one", by_id) == [("t", True, "none")]
