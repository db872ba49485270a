"""Runs a script that was recorded with a real Kafka against a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog_broker.admin import topic_creation
from tests.broker.api.helpers.broker_in_process import BrokerInProcess
from tests.broker.api.helpers.plain_entities import plain, request_entity
from tests.broker.groups.helpers.consumer_script import Ask, create_topics


def replayed(
    directory: Path, kafkas: dict[str, Any], properties: Mapping[str, str], topics: dict[str, int],
    run: Callable[[Ask, dict[str, str]], Iterator[tuple[str, Any]]],
) -> dict[str, Any]:  # fmt: skip
    """Return the responses of this broker. Topics get their recorded IDs, on which assignments depend."""
    ids = chain((UUID(kafkas["topics"][name]) for name in topics), (UUID(int=number) for number in count(1)))
    with (
        pytest.MonkeyPatch.context() as patch,
        BrokerInProcess(directory, {**properties, "node.id": "1"}) as broker,
    ):

        def ask(key: int, version: int, values: dict[str, Any]) -> dict[str, Any]:
            broker.run(asyncio.sleep(0.001))  # what the broker does by itself
            return plain(broker.ask(request_entity(key, version, values, {})))  # type: ignore[no-any-return]

        patch.setattr(topic_creation, "new_uuid", lambda: next(ids))
        create_topics(ask, topics)
        return dict(run(ask, kafkas["topics"]))
