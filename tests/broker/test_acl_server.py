"""A broker process with ACLs: they hold for principals of SASL and of certificates, and after a restart."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic

from kafkalog_broker.protocol.client_messages import create_topic_request, plain_login_requests
from kafkalog_broker.testing import RunningBroker, allow, deny, running_broker
from kafkalog_broker.testing_support.client_requests import ask

USERS = {"alice": "a", "bob": "b"}


def connected(broker: RunningBroker, user: str) -> socket.socket:
    connection = socket.create_connection((broker.host, broker.port), 30)
    context = broker.ssl_context(user)
    if context is not None:
        return context.wrap_socket(connection, server_hostname=broker.host)
    for request in plain_login_requests(user, USERS[user]):
        assert not ask(connection, request).error_code
    return connection


def seen(broker: RunningBroker, user: str, topic: str = "orders") -> str:
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=topic, topic_id=None),),  # type: ignore[arg-type]
        allow_auto_topic_creation=False, include_topic_authorized_operations=False,
    )  # fmt: skip
    with connected(broker, user) as connection:
        return str(ask(connection, request).topics[0].error_code.name)


@pytest.mark.end_to_end
def test_acls_hold_after_a_restart_and_a_denied_request_changes_nothing() -> None:
    acls = [
        allow("alice", "read", topic="ord*"),
        allow("bob", "ALL", topic="*"),
        deny("bob", "DESCRIBE", topic="orders"),
    ]
    with running_broker(topics={"orders": 1}, security="SASL_PLAINTEXT", users=USERS, acls=acls) as broker:
        for _ in range(2):
            assert [seen(broker, user) for user in USERS] == ["none", "topic_authorization_failed"]
            assert seen(broker, "bob", "more") == "unknown_topic_or_partition"
            broker.stop()
            broker.start()
        request: Any = create_topic_request("ledger", 1, {})
        with connected(broker, "alice") as connection:
            assert ask(connection, request).topics[0].error_message == "Authorization failed."
        assert seen(broker, "bob", "ledger") == "unknown_topic_or_partition"
        denied = [line for line in broker.log().splitlines() if " is Denied " in line]
        assert len(denied) == 3
        assert "Principal = User:alice is Denied operation = CREATE from host = 127.0.0.1" in denied[-1]
        assert "'ledger' for request = CreateTopics" in denied[-1]


@pytest.mark.end_to_end
def test_acl_for_the_principal_of_a_certificate_holds() -> None:
    acls = [allow("alice", "READ", topic="orders")]
    with running_broker(topics={"orders": 1}, security="SSL", users=USERS, acls=acls) as broker:
        assert [seen(broker, user) for user in USERS] == ["none", "topic_authorization_failed"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: allow("alice", "REED", topic="x"), "not REED"),
        (lambda: allow("alice", topic="x"), "not empty"),
        (lambda: deny("alice", "READ"), "cluster=True"),
        (lambda: running_broker(acls=[]).__enter__(), "acls need users"),
    ],
)
def test_invalid_acl_arguments_raise_value_error(wrong: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        wrong()
