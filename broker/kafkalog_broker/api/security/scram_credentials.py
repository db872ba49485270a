"""Credentials of SCRAM users (KIP-554).

50 DescribeUserScramCredentials, version 0: the mechanisms of users and their iterations; no part of the password.
51 AlterUserScramCredentials, version 0: creates, changes and deletes users; saved before the response.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any

from kafkalog_broker.api.error_responses import denial_message
from kafkalog_broker.api.itemized_responses import respond_in_slices
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import api, on_error
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.protocol.responses import build_response
from kafkalog_broker.security.scram_changes import Outcome, apply_changes, mechanism_number

_logger = logging.getLogger(__name__)


@api(50, 0, 0)
async def describe_user_scram_credentials(request: Request, broker: Broker) -> Any:
    """Handle DescribeUserScramCredentials. Results and messages match Kafka's `ScramImage.describe`."""
    users = broker.scram_users.users
    names = [user.name for user in request.entity.users or ()]
    occurrences = Counter(names or chain.from_iterable(users.values()))

    def result(name: str) -> dict[str, Any]:
        credentials = [
            {"mechanism": mechanism_number(mechanism), "iterations": by_name[name].iterations}
            for mechanism, by_name in users.items()
            if name in by_name
        ]
        code, message = ErrorCode.none, ""  # as in Kafka, the protocol's default instead of null
        if names and occurrences[name] > 1:
            code = ErrorCode.duplicate_resource
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif not credentials:
            code = ErrorCode.resource_not_found
            message = f"Attempt to describe a user credential that does not exist: {name}"
        return {
            "user": name, "error_code": code, "error_message": message,
            "credential_infos": credentials if code is ErrorCode.none else (),
        }  # fmt: skip

    return await respond_in_slices(request, "results", map(result, occurrences), error_message="")


@on_error(50)
def describe_user_scram_credentials_error(request: Request, code: ErrorCode) -> Any:
    """Return the error response. As in Kafka, it has a result for each requested user, but without the name."""
    return build_response(request, error_code=code, results=[{"error_code": code}] * len(request.entity.users or ()))


@api(51, 0, 0)
async def alter_user_scram_credentials(request: Request, broker: Broker) -> Any:
    scram_users = broker.scram_users
    async with broker.alteration_lock:
        users = scram_users.copy()
        outcomes: dict[str, Outcome] = await broker.run_blocking(apply_changes, users, request.entity)
        altered = [name for name, (code, _) in outcomes.items() if code is ErrorCode.none]
        if altered:
            await broker.save("the users", scram_users.copies.save, users)
            scram_users.users = users
            _logger.info("SCRAM credentials of %d users are changed: %.1000r", len(altered), altered)
    return await _alter_response(request, outcomes)


@on_error(51)
async def alter_user_scram_credentials_error(request: Request, code: ErrorCode) -> Any:
    body = request.entity
    names = dict.fromkeys(user.name for user in (*body.deletions, *body.upsertions))
    return await _alter_response(request, dict.fromkeys(names, (code, denial_message(request, code))))


async def _alter_response(request: Request, outcomes: Mapping[str, Outcome]) -> Any:
    return await respond_in_slices(request, "results", (
        {"user": name, "error_code": code, "error_message": message} for name, (code, message) in outcomes.items()
    ))  # fmt: skip
