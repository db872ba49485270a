"""22 InitProducerId, versions 0 to 5: a producer id for an idempotent producer.

Without a transactional id every request gets a new id with epoch 0, also one that names the id it had (KIP-360), as
Kafka does. Transactional ids are refused until transactions are served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.errors import BrokerError, ErrorCode
from broker.protocol.api_registry import Request, api, on_error
from broker.protocol.response_entity import entity, response_module

if TYPE_CHECKING:
    from broker.server import Broker


@api(22, 0, 5)
async def handle(request: Request, broker: Broker) -> Any:
    transactional_id = request.entity.transactional_id
    if transactional_id is not None:
        if not transactional_id:
            raise BrokerError(ErrorCode.invalid_request, "a transactional id must not be empty")
        raise BrokerError(
            ErrorCode.transactional_id_authorization_failed, "this broker does not serve transactional producers"
        )
    return _answer(request, ErrorCode.none, broker.producer_ids.next(), 0)


@on_error(22)
def failed(request: Request, code: ErrorCode) -> Any:
    return _answer(request, code, -1, -1)


def _answer(request: Request, code: ErrorCode, producer_id: int, epoch: int) -> Any:
    response = response_module(request).InitProducerIdResponse
    return entity(response, error_code=code, producer_id=producer_id, producer_epoch=epoch)
