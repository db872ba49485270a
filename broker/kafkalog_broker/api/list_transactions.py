"""66 ListTransactions, versions 0 to 2: the transactional ids of this coordinator, filtered (KIP-664).

v1  open for longer than a time
v2  a regular expression for the id (KIP-1152): INVALID_REGULAR_EXPRESSION
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn
from kafkalog_broker.transactions.transaction_metadata import BY_LABEL, TransactionMetadata


@api(66, 0, 2)
async def handle(request: Request, broker: Broker) -> Any:
    asked = request.entity
    found = broker.transactions.table.all()
    unknown = [name for name in asked.state_filters if name not in BY_LABEL]
    if asked.state_filters:
        states = {BY_LABEL[name] for name in asked.state_filters if name in BY_LABEL}
        found = [metadata for metadata in found if metadata.state in states]
    if asked.producer_id_filters:
        producer_ids = set(asked.producer_id_filters)
        found = [metadata for metadata in found if metadata.producer_id in producer_ids]
    duration_ms = getattr(asked, "duration_filter", -1)
    if duration_ms >= 0:  # as in Kafka, also what has not begun has been open for long
        now_ms = broker.clock.now_ms()
        found = [metadata for metadata in found if now_ms - metadata.start_ms > duration_ms]
    pattern = getattr(asked, "transactional_id_pattern", None)
    if pattern:
        found = _matching(found, pattern)
    if request.access is not None:
        found = [one async for one in Turn().spread(found) if not request.refused(one.transactional_id, quiet=True)]
    return _answer(request, ErrorCode.none, found, unknown)


def _matching(found: Sequence[TransactionMetadata], pattern: str) -> list[TransactionMetadata]:
    """Those whose whole id matches. By RE2, as in Kafka: a pattern of Python's `re` can take for ever.

    Raises BrokerError invalid_regular_expression.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = pa.array([metadata.transactional_id for metadata in found], pa.string())
    try:
        pc.match_substring_regex(pa.array([""]), pattern=pattern)  # by itself: brackets must not close ours
        matches = pc.match_substring_regex(ids, pattern=rf"\A(?:{pattern})\z").to_pylist()
    except pa.ArrowInvalid as error:
        raise BrokerError(ErrorCode.invalid_regular_expression, f"{pattern!r} is no RE2 expression: {error}") from None
    return [metadata for metadata, matched in zip(found, matches, strict=True) if matched]


@on_error(66)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, code, (), ())


def _answer(request: Request, code: ErrorCode, found: Sequence[TransactionMetadata], unknown: Sequence[str]) -> Any:
    module = response_module(request)
    states = tuple(
        entity(
            module.TransactionState,
            transactional_id=metadata.transactional_id,
            producer_id=metadata.producer_id,
            transaction_state=metadata.state.label,
        )
        for metadata in found
    )
    return entity(
        module.ListTransactionsResponse,
        error_code=code,
        unknown_state_filters=tuple(unknown),
        transaction_states=states,
    )
