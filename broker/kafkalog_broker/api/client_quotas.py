"""Quotas of users, client ids and addresses.

48 DescribeClientQuotas, versions 0 and 1: the entities that a filter lets through, and their quotas.
49 AlterClientQuotas, versions 0 and 1: quotas set and removed; on disk before it is answered. Entities are altered one
by one, and refused one by one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.acls import TEXTS
from kafkalog_broker.protocol.api_registry import Layer, Request, api, on_error
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.quotas.client_quotas import throttled
from kafkalog_broker.quotas.quota_changes import altered, described
from kafkalog_broker.runtime.fair_scheduling import TimeSlice

_logger = logging.getLogger(__name__)
_LOGGED = 30  # entities that a line of the log names


@api(48, 0, 1)
async def describe_client_quotas(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    quotas = dict(broker.quotas.quotas)  # they may be altered between two steps
    components = [(one.entity_type, one.match_type, one.match) for one in asked.components]
    try:
        found = await broker.run_computing(described, quotas, components, strict=asked.strict)
    except BrokerError as error:
        return respond(request, error_code=error.code, error_message=error.what, entries=None)
    entries = []
    async for whose in turn.spread(found):
        values = [{"key": key, "value": value} for key, value in quotas[whose].items()]
        entries.append({"entity": _entity_parts(whose.named()), "values": values})
    return respond(request, error_message="", entries=entries)


@on_error(48)
def describe_client_quotas_failed(request: Request, code: ErrorCode) -> Any:
    text = None if code in TEXTS else code.name  # as Kafka
    return respond(request, error_code=code, error_message=text, entries=None)


@api(49, 0, 1)
async def alter_client_quotas(request: Request, broker: Broker) -> Any:
    asked, turn = request.entity, TimeSlice()
    answers, done = [], {}
    async with broker.altering:
        quotas = dict(broker.quotas.quotas)
        async for entry in turn.spread(asked.entries):
            named = [(one.entity_type, one.entity_name) for one in entry.entity]
            code, text = ErrorCode.none, None
            try:
                operations = [(one.key, None if one.remove else float(one.value)) for one in entry.ops]
                whose, values = altered(quotas, named, operations)
                if not asked.validate_only:
                    quotas[whose] = done[whose] = values
            except BrokerError as error:
                code, text = error.code, error.what
            answers.append({"error_code": code, "error_message": text, "entity": _entity_parts(dict(named))})
        if done:
            await broker.save("quotas", broker.quota_file.save, quotas)
            async for whose, values in turn.spread(done.items()):
                broker.quotas.change(whose, values)
            keep_to_quotas(broker)
            named_first = [whose.named() for whose in islice(done, _LOGGED)]
            _logger.info("the quotas of %d entities are changed: %.1000r", len(done), named_first)
    return respond(request, entries=answers)


@on_error(49)
def alter_client_quotas_failed(request: Request, code: ErrorCode) -> Any:
    """Each entry is refused, with the parts of its entity."""
    answers = []
    for entry in request.entity.entries:
        parts = _entity_parts({one.entity_type: one.entity_name for one in entry.entity})
        answers.append({"error_code": code, "error_message": TEXTS.get(code), "entity": parts})
    return respond(request, entries=answers)


def _entity_parts(named: Mapping[str, str | None]) -> list[dict[str, Any]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in named.items()]


def keep_to_quotas(broker: Broker) -> None:
    """Wrap the handlers with the quotas, or unwrap them while there are none."""
    broker.apis.wrap(Layer.QUOTAS, partial(throttled, broker.quotas) if broker.quotas.in_use else None)
