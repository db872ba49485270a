"""51 AlterUserScramCredentials, version 0: users of SCRAM made, changed and removed; on disk before it is answered."""

from __future__ import annotations

import logging
from typing import Any

from kafkalog_broker.admin.responses import needs_text
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.security.scram_users import Deletion, Outcome, Upsertion, changed

_logger = logging.getLogger(__name__)


@api(51, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    asked, known = request.entity, broker.scram_users
    deletions = [Deletion(one.name, one.mechanism) for one in asked.deletions]
    upsertions = [
        Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in asked.upsertions
    ]
    async with broker.changes.altering:
        users = known.copy()
        outcomes: dict[str, Outcome] = await broker.run_blocking(changed, users, deletions, upsertions)
        done = [name for name, (code, _) in outcomes.items() if code is ErrorCode.none]
        if done:
            try:
                await broker.run_blocking(known.save, users)
            except OSError as error:
                raise BrokerError(ErrorCode.kafka_storage_error, f"the users could not be written: {error}") from None
            known.use(users)
            _logger.info("SCRAM credentials of %d users are changed: %.1000r", len(done), done)
    return _answer(request, outcomes)


@on_error(51)
def failed(request: Request, code: ErrorCode) -> Any:
    asked = request.entity
    names = dict.fromkeys(one.name for one in (*asked.deletions, *asked.upsertions))
    return _answer(request, dict.fromkeys(names, (code, needs_text(request, code))))


def _answer(request: Request, outcomes: dict[str, Outcome]) -> Any:
    module = response_module(request)
    return entity(
        module.AlterUserScramCredentialsResponse,
        results=tuple(
            entity(module.AlterUserScramCredentialsResult, user=name, error_code=code, error_message=text)
            for name, (code, text) in outcomes.items()
        ),
    )
