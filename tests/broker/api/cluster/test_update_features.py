"""UpdateFeatures as Apache Kafka 4.3.0 answers it, in every version; other levels only as a dry run.

More of what Kafka answered is in the admin scenario (test_admin_answers.py)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog_broker.api import load_all
from kafkalog_broker.protocol.connection_info import ConnectionInfo
from kafkalog_broker.protocol.request import Request
from tests.broker.api.helpers.plain_entities import plain, request_entity

SINCE = "The update failed for all features since the following feature had an error: Invalid update version "
NO_UPGRADE = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)
KAFKAS = [
    (("group.version", 1, 1), None),
    (("transaction.version", 2, 3), None),
    (("group.version", 2, 1), "2 for feature group.version. Local controller 1 only supports versions 0-1"),
    (("group.version", 0, 1), f"0 for feature group.version. {NO_UPGRADE}"),
    (("nonsense", 1, 1), "1 for feature nonsense. Local controller 1 does not support this feature."),
    (("group.version", -1, 1), "-1 for feature group.version. A feature version cannot be less than 0."),
    (("metadata.version", 6, 1), "6 for feature metadata.version. Local controller 1 only supports versions 7-30"),
]


def asked(version: int, *updates: tuple[str, int, int], dry_run: bool = True) -> dict[str, Any]:
    wanted = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": False}
        for name, level, kind in updates
    ]
    values = {"timeout": 10_000, "feature_updates": wanted, "validate_only": dry_run}
    request = Request(57, version, 1, "me", request_entity(57, version, values, {}), ConnectionInfo())
    found = plain(asyncio.run(load_all()[57].respond(request, SimpleNamespace(node_id=1))))
    assert found.pop("throttle_time") == 0
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("update", "why"), KAFKAS)
def test_response_equals_that_of_kafka(version: int, update: tuple[str, int, int], why: str | None) -> None:
    results = [] if why else [{"feature": update[0], "error_code": "none", "error_message": "NONE"}]
    code = "invalid_update_version" if why else "none"
    wanted = {"error_code": code, "error_message": SINCE + why if why else None}
    assert asked(version, update) == wanted | ({} if version == 2 else {"results": results})


@pytest.mark.parametrize("version", range(3))
def test_one_invalid_feature_refuses_all(version: int) -> None:
    answer = asked(version, ("group.version", 1, 1), ("nonsense", 1, 1))
    assert answer["error_code"] == "invalid_update_version"
    assert answer.get("results", []) == []


@pytest.mark.parametrize("version", [1, 2])
def test_unknown_upgrade_types_and_level_changes_are_refused(version: int) -> None:
    assert asked(version, ("group.version", 1, 7))["error_message"] == (
        f"{SINCE}1 for feature group.version. The controller does not support the given upgrade type."
    )
    assert asked(version, ("group.version", 0, 2))["error_code"] == "none"
    assert asked(version, ("group.version", 0, 2), dry_run=False)["error_message"] == (
        f"{SINCE}0 for feature group.version. This broker has no other level than 1."
    )


def test_streams_version_has_one_level() -> None:
    assert asked(2, ("streams.version", 2, 1))["error_message"] == (
        f"{SINCE}2 for feature streams.version. Local controller 1 only supports versions 0-1"
    )
