"""Users of SCRAM.

50 DescribeUserScramCredentials, version 0: the mechanisms of users, with their iterations; nothing of what is kept of a
password. As ScramImage.describe answers.

51 AlterUserScramCredentials, version 0: users made, changed and removed; on disk before it is answered."""

from __future__ import annotations

import logging
from typing import Any

from kafkalog_broker.admin.responses import needs_text
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, respond, response_module
from kafkalog_broker.security.scram_users import Deletion, Outcome, Upsertion, changed, number_of


@api(50, 0, 0)
def describe_user_scram_credentials(request: Request, broker: Broker) -> Any:
    module, users = response_module(request), broker.scram_users.users
    asked = [user.name for user in request.entity.users or ()]
    times: dict[str, int] = {}
    for name in asked or [name for known in users.values() for name in known]:
        times[name] = times.get(name, 0) + 1
    results = []
    for name in times:
        found = [(number_of(mechanism), known[name]) for mechanism, known in users.items() if name in known]
        code, text = ErrorCode.none, ""  # as Kafka: the protocol's default, not null
        if asked and times[name] > 1:
            code = ErrorCode.duplicate_resource
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif not found:
            code = ErrorCode.resource_not_found
            text = f"Attempt to describe a user credential that does not exist: {name}"
        infos = tuple(
            entity(module.CredentialInfo, mechanism=mechanism, iterations=kept.iterations)
            for mechanism, kept in (found if code is ErrorCode.none else ())
        )
        results.append(
            entity(
                module.DescribeUserScramCredentialsResult,
                user=name, error_code=code, error_message=text, credential_infos=infos,
            )
        )  # fmt: skip
    return respond(
        request,
        error_code=ErrorCode.none,
        error_message="",
        results=tuple(results),
    )


@on_error(50)
def describe_user_scram_credentials_failed(request: Request, code: ErrorCode) -> Any:
    """Each user that was asked for is refused, without being named, as by Kafka."""
    module = response_module(request)
    refused = entity(
        module.DescribeUserScramCredentialsResult, user="", error_code=code, error_message=None, credential_infos=()
    )
    return respond(request, error_code=code, error_message=None, results=(refused,) * len(request.entity.users or ()),
    )  # fmt: skip


_logger = logging.getLogger(__name__)


@api(51, 0, 0)
async def alter_user_scram_credentials(request: Request, broker: Broker) -> Any:
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
                await broker.run_blocking(known.copies.save, users)
            except OSError as error:
                raise BrokerError(ErrorCode.kafka_storage_error, f"the users could not be written: {error}") from None
            known.users = users
            _logger.info("SCRAM credentials of %d users are changed: %.1000r", len(done), done)
    return _altered(request, outcomes)


@on_error(51)
def alter_user_scram_credentials_failed(request: Request, code: ErrorCode) -> Any:
    asked = request.entity
    names = dict.fromkeys(one.name for one in (*asked.deletions, *asked.upsertions))
    return _altered(request, dict.fromkeys(names, (code, needs_text(request, code))))


def _altered(request: Request, outcomes: dict[str, Outcome]) -> Any:
    module = response_module(request)
    return respond(
        request,
        results=tuple(
            entity(module.AlterUserScramCredentialsResult, user=name, error_code=code, error_message=text)
            for name, (code, text) in outcomes.items()
        ),
    )
