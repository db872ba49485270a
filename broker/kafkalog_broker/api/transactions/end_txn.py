"""26 EndTxn, versions 0 to 5: commits or aborts a transaction. Its markers are written before the response.

v2  PRODUCER_FENCED instead of INVALID_PRODUCER_EPOCH (KIP-588)
v4  TRANSACTION_ABORTABLE (KIP-890)
v5  the epoch is incremented, and the response has the producer ID and epoch to continue with
"""

from __future__ import annotations

from typing import Any

from kafkalog_broker.api.transactions.producer_response import END_TXN, producer_response
from kafkalog_broker.broker import Broker
from kafkalog_broker.coordinator.coordinator_record import ProducerIdAndEpoch
from kafkalog_broker.protocol.api_registry import api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.transactions.transaction_metadata import CLASSIC, EPOCH_BUMP

_FIRST_VERSION_WITH_EPOCH_BUMP = 5


@api(END_TXN, 0, 5)
async def end_txn(request: Request, broker: Broker) -> Any:
    body = request.entity
    producer = broker.transactions.end(
        body.transactional_id,
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
        commit=body.committed,
        client_version=EPOCH_BUMP if request.version >= _FIRST_VERSION_WITH_EPOCH_BUMP else CLASSIC,
    )
    # The decision must be on disk before a marker is, or a crash could lose it. If it cannot be flushed, this raises.
    await broker.transaction_ends.flush(body.transactional_id)
    await broker.transaction_ends.complete(body.transactional_id)
    return producer_response(request, producer)
