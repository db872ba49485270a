"""The ACL scenario run against a broker, and its responses in a form that can be compared between brokers."""

from __future__ import annotations

import json
import re
import socket
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkalog_broker.protocol.client_messages import plain_login_requests
from kafkalog_broker.testing_support.client_requests import ask, exchange
from tests.broker.api.helpers.plain_entities import TOKENS, plain, request_entity
from tests.broker.api.helpers.transaction_answers import read_described
from tests.broker.security.helpers.acl_case import ADMIN, TOPICS
from tests.broker.security.helpers.acl_scenario import cases, creations, preparation, settled, users

DESCRIBE_TRANSACTIONS = 65
WAIT_S = 120
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_THE_REQUEST = re.compile(r"Request Request\(.*\)(?= needs )")  # as Java prints the object
OF_THE_RUN = {
    "cluster_id",
    "log_dir",
    "total_bytes",
    "usable_bytes",
    "port",
    "producer_id",
    "log_append_time",
    "timestamp",
    "transaction_start_time",
    "generation_id",
    "leader_epoch",
    "records",
    "base_offset",
    "high_watermark",
    "log_end_offset",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
}
# Kafka keeps these in hash tables or shuffles them; nothing promises an order.
UNORDERED = {
    "topics",
    "responses",
    "results",
    "configs",
    "partitions",
    "config_resources",
    "replica_election_results",
    "results_by_topic_v3_and_below",
    "results_by_partition",
    "groups",
    "transaction_states",
    "resources",
    "acls",
    "matching_acls",
    "partition_result",
    "topic_partitions",
    "subscribed_topic_names",
}

Ask = Callable[[str, Any], dict[str, Any]]
"""ask(user, request): the answer, plain; {} where the connection was closed instead."""


def compared(answer: Any, ids: dict[str, str]) -> Any:
    """Return a response without values of its run and with lists sorted. ids: topic names by topic ID."""
    if isinstance(answer, list):
        return [compared(item, ids) for item in answer]
    if isinstance(answer, bytes):
        return "bytes" if answer else ""
    if isinstance(answer, str):
        if _UUID.fullmatch(answer):
            return ids.get(answer, "an id")
        return _THE_REQUEST.sub("The request", answer)
    if not isinstance(answer, dict):
        return answer
    found = {}
    for name, value in answer.items():
        if name == "listeners":
            value = "of the controller, which is the broker here"
        value = compared(value, ids)
        if name in OF_THE_RUN:
            value = "set" if value not in (-1, None, 0, "") else value
        if name in UNORDERED and value:
            value = sorted(value, key=lambda item: json.dumps(item, sort_keys=True))
        found[name] = value
    return found


LEFT_OUT = {"Produce": "error_message", "AlterConfigs of loggers": "error_message"}
"""What is not the same by choice: texts where Kafka has none."""


def known_differences(label: str, answer: Any) -> Any:
    """Return a response without fields that differ from Kafka on purpose."""
    left_out = next((field for start, field in LEFT_OUT.items() if label.startswith(start)), "")
    return compared(_without(left_out, answer), {})


def _without(field: str, answer: Any) -> Any:
    if isinstance(answer, list):
        return [_without(field, item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    return {name: _without(field, value) for name, value in answer.items() if name != field}


class Connections:
    """One for each user, with PLAIN."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: dict[str, socket.socket] = {}

    def ask(self, user: str, request: Any) -> dict[str, Any]:
        try:
            connection = self._of(user)
            if request.__api_key__ == DESCRIBE_TRANSACTIONS:
                return read_described(exchange(connection, request)[5:])  # correlation id, no tagged fields
            if request.__api_key__ in TOKENS:
                return {"answer": exchange(connection, request)[4:].hex()}
            return plain(ask(connection, request))  # type: ignore[no-any-return]
        except ConnectionError:
            self._open.pop(user).close()
            return {}

    def _of(self, user: str) -> socket.socket:
        if user not in self._open:
            self._open[user] = made = socket.create_connection(("127.0.0.1", self._port), WAIT_S)
            for request in plain_login_requests(user, ADMIN):
                assert not ask(made, request).error_code
        return self._open[user]

    def close(self) -> None:
        for one in self._open.values():
            one.close()


def prepare(ask: Ask) -> dict[str, uuid.UUID]:
    """Topics, ACLs, a group and a transactional id; the ids of the topics."""
    ids: dict[str, uuid.UUID] = {}
    for key, version, values in preparation():
        answer = ask(ADMIN, request_entity(key, version, values, {}))
        for topic in answer.get("topics", ()):
            ids[topic["name"]] = uuid.UUID(topic["topic_id"])
    assert set(ids) == set(TOPICS), answer
    for key, version, values in settled():
        request = request_entity(key, version, values, ids)
        _until(partial(ask, ADMIN, request), lambda told: wrong(told) == [])
    fields = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    _until(
        lambda: ask(ADMIN, request_entity(29, 3, fields, {})),
        lambda told: sum(len(one["acls"]) for one in told["resources"]) == len(creations()),
    )
    return ids


def _until(asked: Callable[[], Any], good: Callable[[Any], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not good(answer := asked()):
        if time.monotonic() > end:
            raise RuntimeError(f"still {answer}")
        time.sleep(0.05)


def wrong(answer: Any) -> list[str]:
    """Return all error codes in a response except `none`."""
    if isinstance(answer, list):
        return [code for item in answer for code in wrong(item)]
    if not isinstance(answer, dict):
        return []
    own = [answer["error_code"]] if answer.get("error_code", "none") != "none" else []
    return own + [code for value in answer.values() for code in wrong(value)]


def _learn(ask: Ask) -> None:
    """Return once the broker has acted on all that its controller has changed. It takes changes in their order: one
    more is made, and when that is seen another one, as the broker sees a change before it has acted on it."""
    entity = [{"entity_type": "client-id", "entity_name": "nobody's"}]
    component = {"entity_type": "client-id", "match_type": 0, "match": "nobody's"}
    described = request_entity(48, 1, {"components": [component], "strict": True}, {})
    for remove in (False, True):
        ops = [{"key": "producer_byte_rate", "value": 1.0, "remove": remove}]
        values = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
        assert wrong(ask(ADMIN, request_entity(49, 1, values, {}))) == []
        _until(partial(ask, ADMIN, described), lambda told, remove=remove: bool(told["entries"]) != remove)  # type: ignore[misc]


def table(ask: Ask, ids: dict[str, uuid.UUID], *, wait: bool = False) -> dict[str, Any]:
    """Case and rights to the answer. wait: until what changes something has done so, which the answer does not say."""
    names = {str(topic_id): f"the id of {name}" for name, topic_id in ids.items()}
    known = users()
    found = {}
    for case in cases():
        for rights in case.askers():
            answer = ask(known[rights], request_entity(case.key, case.version, case.values, ids))
            found[f"{case.label}: {', '.join(rights) or 'no rights'}"] = compared(answer, names)
            if wait and case.changes:
                _learn(ask)
    return found
