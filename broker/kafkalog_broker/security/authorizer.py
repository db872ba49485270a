"""Authorization by ACLs (StandardAuthorizer): a denial takes precedence, then any permission, then the default."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from kafkalog_broker.config.properties import AuthorizerSettings
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol import acls
from kafkalog_broker.protocol.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.api_registry import Api
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.process import LogRate
from kafkalog_broker.security.acl import EVERYBODY, Acl, AclStore
from kafkalog_broker.security.api_rights import RIGHTS, Right

_log = logging.getLogger(__name__)

KNOWN = 10_000  # decisions that are remembered of one principal at one address, some 200 bytes each

KNOWN_NAME = 249
"""Characters of the longest name about which a decision is remembered: no topic has a longer one, and groups with such
names are rare. Who asks about other things at length fills no memory."""

BEGIN_ANEW = 8 * KNOWN
"""Age of a remembered decision, in decisions that were not, once there is no room: who asks for all of 20,000
topics again and again is known half of them, where to begin anew at once would mean to know none."""

Question = tuple[Operation, ResourceType, str | None]


class Authorizer:
    """`acls` may be changed at any time: decisions that were remembered before are forgotten."""

    def __init__(self, settings: AuthorizerSettings) -> None:
        self.settings = settings
        self.acls = AclStore()
        self._denied = LogRate(_log)
        self._principals: WeakValueDictionary[tuple[str, str], _Decisions] = WeakValueDictionary()

    def access(self, request: Request) -> Access:
        connection = request.connection
        decisions = connection.decisions
        if decisions is None or decisions.principal != connection.principal:
            key = connection.principal, connection.host
            decisions = self._principals.get(key)
            if decisions is None:
                decisions = self._principals[key] = _Decisions(self, *key)
            connection.decisions = decisions  # as long as a connection is open, what is known of it stays
        return Access(decisions, request, self._denied)

    def decide(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        if principal in self.settings.super_users:
            return True
        has_acls = allowed = False
        for by_principal in self.acls.about(resource, name):
            has_acls = True
            for whose in (principal, EVERYBODY):
                for acl in by_principal.get(whose, ()):
                    if acl.speaks_of(host, operation):
                        if acl.permission is Permission.DENY:
                            return False
                        allowed = True
        return allowed or (self.settings.allow_everyone and not has_acls)

    def decide_for_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """True if there can be a resource of that type that somebody may do it with (KIP-679). Operations that others
        imply do not count, as in Kafka."""
        if self.decide(principal, host, operation, resource, "hardcode"):  # the name that Kafka asks about too
            return True
        denied: set[tuple[PatternType, str]] = set()
        allowed: list[Acl] = []
        for acl in self.acls.of_principal(resource, principal):
            if acl.operation not in (operation, Operation.ALL) or not acl.speaks_of(host, operation):
                continue
            if acl.permission is Permission.ALLOW:
                allowed.append(acl)
            elif acl.pattern[1:] == (PatternType.LITERAL, WILDCARD):
                return False
            else:
                denied.add(acl.pattern[1:])
        return any(not _is_denied(acl, denied) for acl in allowed)


def _is_denied(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    _, kind, name = acl.pattern
    if kind is PatternType.LITERAL and name == WILDCARD:
        return False
    if kind is PatternType.LITERAL and (kind, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


class _Decisions:
    """Decisions about a principal at an address, for all its connections."""

    __slots__ = ("__weakref__", "_authorizer", "_host", "_known", "_left_out", "_version", "principal")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer, self.principal, self._host = authorizer, principal, host
        self._known: dict[Question, bool] = {}
        self._left_out = 0
        self._version = authorizer.acls.version

    def may(self, operation: Operation, resource: ResourceType, name: str | None) -> bool:
        authorizer, known = self._authorizer, self._known
        if self._version != authorizer.acls.version or self._left_out >= BEGIN_ANEW:
            known.clear()
            self._version, self._left_out = authorizer.acls.version, 0
        key = (operation, resource, name)
        found = known.get(key)
        if found is None:
            if name is None:  # some ten questions in all, each answered by a look at many ACLs
                found = known[key] = authorizer.decide_for_any(self.principal, self._host, operation, resource)
                return found
            found = authorizer.decide(self.principal, self._host, operation, resource, name)
            if len(name) <= KNOWN_NAME:
                if len(known) < KNOWN:
                    known[key] = found
                else:
                    self._left_out += 1
        return found


class Access:
    """Permissions of a request's sender, as Request asks for them. The first denial is logged."""

    __slots__ = ("_decisions", "_denied", "_request", "_told")

    def __init__(self, decisions: _Decisions, request: Request, denied: LogRate) -> None:
        self._decisions, self._request, self._denied = decisions, request, denied
        self._told = False

    def may(self, operation: Operation, resource: ResourceType, name: str | None, *, quiet: bool = False) -> bool:
        """name None: some resource of the type. quiet: a refusal is no denial to be logged, as something else may do
        instead, or it is left out of an answer."""
        if self._decisions.may(operation, resource, name):
            return True
        if not quiet and not self._told:
            self._told = True
            request = self._request
            self._denied.log(
                logging.INFO,
                "Principal = %.300s is Denied operation = %s from host = %s on resource = %s:LITERAL:%.300r for "
                "request = %s",
                self._decisions.principal, operation.name, request.connection.host, resource.name, name or WILDCARD,
                api_name(request.api_key),
            )  # fmt: skip
        return False

    def refused(self, name: str, *, quiet: bool = False) -> ErrorCode:
        right = RIGHTS[self._request.api_key].each
        assert right is not None, "the table of rights says that nothing is named"
        return self.refusal(right, name, quiet=quiet)

    def refusal(self, right: Right, name: str | None, *, quiet: bool = False) -> ErrorCode:
        if right.unless is not None and self.may(*right.unless, quiet=True):
            return ErrorCode.none
        if self.may(right.operation, right.resource, name, quiet=quiet):
            return ErrorCode.none
        return acls.REFUSALS[right.resource][0]

    def operations(self, resource: ResourceType, name: str) -> int:
        may = self._decisions.may
        return acls.operation_bits(tuple(one for one in acls.OPERATIONS[resource] if may(one, resource, name)))


def admit(request: Request, authorizer: Authorizer) -> None:
    """Raises BrokerError where a right to the whole is missing; handlers ask `request.access` about each thing."""
    access = request.access = authorizer.access(request)
    if request.entity is None:  # ApiVersions of a version that nobody knows
        return
    for right in RIGHTS[request.api_key].of(request):
        code = access.refusal(right, CLUSTER_NAME if right.of is None else getattr(request.entity, right.of))
        if code is not ErrorCode.none:
            raise BrokerError(code)


def guarded(authorizer: Authorizer, api: Api) -> Api:
    handle = api.handler

    def handle_admitted(request: Request, broker: Any) -> Any:
        admit(request, authorizer)
        return handle(request, broker)

    return replace(api, handler=handle_admitted)
