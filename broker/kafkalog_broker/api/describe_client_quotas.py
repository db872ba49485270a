"""48 DescribeClientQuotas, versions 0 and 1: the entities that a filter lets through, and their quotas."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import TEXTS
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.quotas.quota_changes import Component, described
from kafkalog_broker.runtime.turn import Turn, in_turns


@api(48, 0, 1)
async def handle(request: Request, broker: Broker) -> Any:
    asked, module, turn = request.entity, response_module(request), Turn()
    quotas = dict(broker.quotas.quotas)  # they may be altered between two steps
    components = [Component(one.entity_type, one.match_type, one.match) for one in asked.components]
    try:
        found = await in_turns(described(quotas, components, strict=asked.strict), turn)
    except BrokerError as error:
        return _refused(request, error.code, error.what)
    entries = []
    async for whose in turn.spread(found):
        parts = tuple(
            entity(module.EntityData, entity_type=kind, entity_name=name) for kind, name in whose.named().items()
        )
        values = tuple(entity(module.ValueData, key=key, value=value) for key, value in quotas[whose].items())
        entries.append(entity(module.EntryData, entity=parts, values=values))
    return entity(module.DescribeClientQuotasResponse, error_code=ErrorCode.none, error_message="", entries=entries)


@on_error(48)
def failed(request: Request, code: ErrorCode) -> Any:
    return _refused(request, code, None if code in TEXTS else code.name)  # as Kafka


def _refused(request: Request, code: ErrorCode, text: str | None) -> Any:
    response = response_module(request).DescribeClientQuotasResponse
    return entity(response, error_code=code, error_message=text, entries=None)
