"""50 DescribeUserScramCredentials, version 0: which users have which mechanisms, with how many iterations. Nothing of
what is kept of a password. As ScramImage.describe answers."""

from __future__ import annotations

from typing import Any

from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.api_registry import Request, api, on_error
from kafkalog_broker.protocol.response_entity import entity, response_module
from kafkalog_broker.runtime.turn import Turn
from kafkalog_broker.security.scram_users import number_of


@api(50, 0, 0)
async def handle(request: Request, broker: Broker) -> Any:
    module, users = response_module(request), broker.scram_users.users
    asked = [user.name for user in request.entity.users or ()]
    times: dict[str, int] = {}
    for name in asked or [name for known in users.values() for name in known]:
        times[name] = times.get(name, 0) + 1
    results = []
    async for name in Turn().spread(list(times)):
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
    return entity(
        module.DescribeUserScramCredentialsResponse,
        error_code=ErrorCode.none,
        error_message="",
        results=tuple(results),
    )


@on_error(50)
def failed(request: Request, code: ErrorCode) -> Any:
    """Each user that was asked for is refused, without being named, as by Kafka."""
    module = response_module(request)
    refused = entity(
        module.DescribeUserScramCredentialsResult, user="", error_code=code, error_message=None, credential_infos=()
    )
    return entity(
        module.DescribeUserScramCredentialsResponse,
        error_code=code, error_message=None, results=(refused,) * len(request.entity.users or ()),
    )  # fmt: skip
