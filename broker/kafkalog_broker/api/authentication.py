"""SASL, users of SCRAM, and delegation tokens. `net/sasl_gate.py` decides what may come when.

17 SaslHandshake, versions 0 and 1: the mechanism that a client will use.
v0  the mechanism's messages follow as bare frames; v1: as SaslAuthenticate
36 SaslAuthenticate, versions 0 to 2: the messages of a mechanism.
v1  session_lifetime_ms: when the client has to authenticate again (KIP-368)
50 DescribeUserScramCredentials, version 0: the mechanisms of users, with their iterations; nothing of what is kept of a
password. As ScramImage.describe answers.
51 AlterUserScramCredentials, version 0: users made, changed and removed; on disk before it is answered.

Delegation tokens (KIP-48), which this broker does not issue: as a Kafka without delegation.token.secret.key.
38 CreateDelegationToken, versions 1 to 3; 39 RenewDelegationToken and 40 ExpireDelegationToken, versions 1 and 2;
41 DescribeDelegationToken, versions 1 to 3. Version 2 is flexible, version 3 has tokens for other owners (KIP-373).
"""

from __future__ import annotations

import logging
from collections import Counter
from itertools import chain
from typing import Any

from kafkalog_broker.admin.responses import needs_text, respond_in_slices
from kafkalog_broker.broker import Broker
from kafkalog_broker.errors import ErrorCode
from kafkalog_broker.protocol.acls import Operation, ResourceType
from kafkalog_broker.protocol.api_registry import ANONYMOUS, Request, api, on_error
from kafkalog_broker.protocol.response_entity import respond
from kafkalog_broker.security.sasl_mechanism import SaslFailed
from kafkalog_broker.security.scram_changes import Outcome, changed, number_of


@api(17, 0, 1)
async def sasl_handshake(request: Request, broker: Broker) -> Any:
    exchange = request.connection.sasl
    if exchange is None or exchange.failure is not None:  # without SASL, authenticated already, or a second one
        return respond(request, error_code=ErrorCode.illegal_sasl_state)
    served = exchange.handshake(request.entity.mechanism)
    code = ErrorCode.none if served else ErrorCode.unsupported_sasl_mechanism
    return respond(request, error_code=code, mechanisms=exchange.mechanisms)


@api(36, 0, 2)
async def sasl_authenticate(request: Request, broker: Broker) -> Any:
    exchange = request.connection.sasl
    if exchange is None:
        what = "SaslAuthenticate request received after successful authentication"
        return respond(request, error_code=ErrorCode.illegal_sasl_state, error_message=what)
    try:
        answer = exchange.authenticate(bytes(request.entity.auth_bytes))
    except SaslFailed as error:
        return respond(
            request, error_code=ErrorCode.sasl_authentication_failed, error_message=error.client_message or ""
        )
    lifetime_ms = 0 if exchange.session is None else exchange.session.lifetime_ms or 0  # 0: for ever, or ended
    return respond(request, error_message="", auth_bytes=answer, session_lifetime=lifetime_ms)


@api(50, 0, 0)
async def describe_user_scram_credentials(request: Request, broker: Broker) -> Any:
    users = broker.scram_users.users
    asked = [user.name for user in request.entity.users or ()]
    times = Counter(asked or chain.from_iterable(users.values()))

    def answer(name: str) -> dict[str, Any]:
        found = [(number_of(mechanism), known[name]) for mechanism, known in users.items() if name in known]
        code, text = ErrorCode.none, ""  # as Kafka: the protocol's default, not null
        if asked and times[name] > 1:
            code = ErrorCode.duplicate_resource
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif not found:
            code = ErrorCode.resource_not_found
            text = f"Attempt to describe a user credential that does not exist: {name}"
        infos = [
            {"mechanism": mechanism, "iterations": kept.iterations}
            for mechanism, kept in (found if code is ErrorCode.none else ())
        ]
        return {"user": name, "error_code": code, "error_message": text, "credential_infos": infos}

    return await respond_in_slices(request, "results", map(answer, times), error_message="")


@on_error(50)
def describe_user_scram_credentials_failed(request: Request, code: ErrorCode) -> Any:
    # Each user that was asked for is refused, without being named, as by Kafka.
    return respond(request, error_code=code, results=[{"error_code": code}] * len(request.entity.users or ()))


_logger = logging.getLogger(__name__)


@api(51, 0, 0)
async def alter_user_scram_credentials(request: Request, broker: Broker) -> Any:
    known = broker.scram_users
    async with broker.altering:
        users = known.copy()
        outcomes: dict[str, Outcome] = await broker.run_blocking(changed, users, request.entity)
        done = [name for name, (code, _) in outcomes.items() if code is ErrorCode.none]
        if done:
            await broker.save("the users", known.copies.save, users)
            known.users = users
            _logger.info("SCRAM credentials of %d users are changed: %.1000r", len(done), done)
    return await _altered(request, outcomes)


@on_error(51)
async def alter_user_scram_credentials_failed(request: Request, code: ErrorCode) -> Any:
    asked = request.entity
    names = dict.fromkeys(one.name for one in (*asked.deletions, *asked.upsertions))
    return await _altered(request, dict.fromkeys(names, (code, needs_text(request, code))))


async def _altered(request: Request, outcomes: dict[str, Outcome]) -> Any:
    return await respond_in_slices(request, "results", (
        {"user": name, "error_code": code, "error_message": text} for name, (code, text) in outcomes.items()
    ))  # fmt: skip


_TIMES = ("issue_timestamp", "expiry_timestamp", "max_timestamp")


@api(38, 1, 3)
async def create_delegation_token(request: Request, broker: Broker) -> Any:
    asked = request.entity
    own_kind, _, own_name = request.connection.principal.partition(":")
    kind, name, code = own_kind, own_name, _error_of(request, broker)
    if getattr(asked, "owner_principal_name", None):
        kind, name = asked.owner_principal_type or "", asked.owner_principal_name
    if code is ErrorCode.delegation_token_auth_disabled:
        owner = f"{kind}:{name}"
        is_own = owner == request.connection.principal
        if not (is_own or request.may(Operation.CREATE_TOKENS, ResourceType.USER, owner)):
            code = ErrorCode.delegation_token_authorization_failed
        elif any(renewer.principal_type != "User" for renewer in asked.renewers):
            code = ErrorCode.invalid_principal_type
    return respond(
        request, error_code=code, principal_type=kind, principal_name=name, token_requester_principal_type=own_kind,
        token_requester_principal_name=own_name, **dict.fromkeys(_TIMES, _no_time(code)),
    )  # fmt: skip


@api(39, 1, 2)
@api(40, 1, 2)
async def renew_or_expire_delegation_token(request: Request, broker: Broker) -> Any:
    code = _error_of(request, broker)
    return respond(request, error_code=code, expiry_timestamp=_no_time(code))


@api(41, 1, 3)
async def describe_delegation_token(request: Request, broker: Broker) -> Any:
    return respond(request, error_code=_error_of(request, broker))


def _error_of(request: Request, broker: Broker) -> ErrorCode:
    """Error of every request about tokens, never `none`; another one for clients that did not authenticate."""
    protocol = broker.config.listener_security[request.connection.listener].protocol
    if protocol == "PLAINTEXT" or (protocol == "SSL" and request.connection.principal == ANONYMOUS):
        return ErrorCode.delegation_token_request_not_allowed
    return ErrorCode.delegation_token_auth_disabled


def _no_time(code: ErrorCode) -> int:
    """Times of an answer without a token: 0 where a controller of Kafka's refuses it, -1 where a broker does."""
    return 0 if code is ErrorCode.delegation_token_auth_disabled else -1
