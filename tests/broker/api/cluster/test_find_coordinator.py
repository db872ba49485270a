from __future__ import annotations

import asyncio

import pytest

from kafkalog_broker.api import load_all
from kafkalog_broker.api.error_responses import INVALID_REQUEST_MESSAGE
from kafkalog_broker.config.authorizer_settings import AuthorizerSettings
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.security.authorizer import Authorizer
from kafkalog_broker.testing import allow
from tests.broker.api.helpers.group_calls import FIND, FakeBroker, call, decoded, error_answer, read, versions

TOPIC = "AAAAAAAAAAAAAAAAAAAABQ"
SHARE_KEY = f"g:{TOPIC}:0"


def values(key_type: int = 0) -> dict[str, object]:
    return {"key": "g", "key_type": key_type, "coordinator_keys": ["g", "h"]}


@pytest.mark.parametrize("version", versions(FIND))
def test_this_broker_coordinates_all_groups(version: int) -> None:
    broker = FakeBroker()
    answer = call(broker, FIND, version, **values())  # type: ignore[arg-type]
    here = {"node_id": 7, "host": "broker.example", "port": 9092, "error_code": "none"}
    if version >= 4:
        assert answer == {"coordinators": [here | {"key": key, "error_message": ""} for key in ("g", "h")]}
    else:
        assert answer == here | ({"error_message": "NONE"} if version >= 1 else {})
    assert broker.created == [("__consumer_offsets", 50, "compact")]
    call(broker, FIND, version, **values())  # type: ignore[arg-type]
    assert broker.created == [("__consumer_offsets", 50, "compact")]


@pytest.mark.parametrize("version", versions(FIND))
def test_coordinator_is_not_available_without_its_topic(version: int) -> None:
    answer = call(FakeBroker(refuses=ErrorCode.policy_violation), FIND, version, **values())  # type: ignore[arg-type]
    for told in answer.get("coordinators", [answer]):
        assert (told["error_code"], told["node_id"], told["host"], told["port"]) == (
            "coordinator_not_available", -1, "", -1,
        )  # fmt: skip


@pytest.mark.parametrize("version", [version for version in versions(FIND) if version >= 1])
def test_this_broker_coordinates_all_transactional_ids(version: int) -> None:
    broker = FakeBroker()
    for _ in range(2):
        answer = call(broker, FIND, version, **values(1))  # type: ignore[arg-type]
        assert {told["error_code"] for told in answer.get("coordinators", [answer])} == {"none"}
        assert broker.created == [("__transaction_state", 50, "compact")]


def test_unknown_key_type_is_refused() -> None:
    answer = call(FakeBroker(), FIND, 6, **values(3))  # type: ignore[arg-type]
    assert {told["error_code"] for told in answer["coordinators"]} == {"invalid_request"}
    assert error_answer(FIND, 0, ErrorCode.not_controller, **values())["error_code"] == "not_controller"


@pytest.mark.parametrize("version", [version for version in versions(FIND) if 1 <= version < 6])
def test_share_coordinator_below_version_6_is_refused(version: int) -> None:
    """As in Kafka's `KafkaApis.getCoordinator`, whatever the keys and the rights of the client are."""
    broker, rights = FakeBroker(), Authorizer(AuthorizerSettings())
    request = decoded(FIND, version, {"key": SHARE_KEY, "key_type": 2, "coordinator_keys": ["g", SHARE_KEY]})
    request.access = rights.access(request)
    answer = read(request, asyncio.run(load_all()[FIND].respond(request, broker)))
    refused = {"node_id": -1, "host": "", "port": -1, "error_code": "invalid_request"}
    if version >= 4:
        assert answer == {"coordinators": [refused | {"key": key, "error_message": ""} for key in ("g", SHARE_KEY)]}
    else:
        assert answer == refused | {"error_message": INVALID_REQUEST_MESSAGE}
    assert broker.created == []


@pytest.mark.parametrize(
    "key", ["", "g", f"g:{TOPIC}", f":{TOPIC}:0", "g:not-a-uuid:0", f"g:{TOPIC}:abc", f"g:{TOPIC}:", f"g:{TOPIC}x:0"]
)
def test_share_partition_key_that_kafka_cannot_parse_is_refused(key: str) -> None:
    """Kafka's `SharePartitionKey.validate` decides."""
    broker = FakeBroker()
    assert error_codes(broker, key) == ["invalid_request"]
    assert broker.created == []
    assert error_codes(broker, key, SHARE_KEY, f"a:b:{TOPIC}:7") == ["invalid_request", "none", "none"]
    assert broker.created == [("__share_group_state", 50, "delete")]


def error_codes(broker: FakeBroker, *keys: str) -> list[str]:
    answer = call(broker, FIND, 6, key_type=2, coordinator_keys=list(keys))
    return [told["error_code"] for told in answer["coordinators"]]


@pytest.mark.parametrize("version", versions(FIND))
def test_denied_client_does_not_create_the_topic(version: int) -> None:
    broker, rights = FakeBroker(), Authorizer(AuthorizerSettings())
    seen = []
    for _ in range(2):
        request = decoded(FIND, version, values())
        request.access = rights.access(request)
        answer = read(request, asyncio.run(load_all()[FIND].respond(request, broker)))
        seen.append(([told["error_code"] for told in answer.get("coordinators", [answer])], len(broker.created)))
        rights.acls.change((), allow("ANONYMOUS", "DESCRIBE", group="g"))
    refused = "group_authorization_failed"
    keys = 2 if version >= 4 else 1
    assert seen == [([refused] * keys, 0), (["none", refused][:keys], 1)]


def test_request_without_keys_does_not_create_the_topic() -> None:
    broker = FakeBroker()
    assert call(broker, FIND, 6, key_type=0, coordinator_keys=[]) == {"coordinators": []}
    assert broker.created == []
