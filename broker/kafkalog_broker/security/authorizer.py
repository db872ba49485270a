"""Authorization by ACLs (Kafka: StandardAuthorizer): a denial decides first, then any permission, then the default."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from kafkalog_broker.config.authorizer_settings import AuthorizerSettings
from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol import acls
from kafkalog_broker.protocol.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from kafkalog_broker.protocol.api_messages import api_name
from kafkalog_broker.protocol.api_registry import Api
from kafkalog_broker.protocol.connection_info import PrincipalDecisions
from kafkalog_broker.protocol.request import Request
from kafkalog_broker.runtime.log_rate import LogRate
from kafkalog_broker.security.acl import EVERYBODY, Acl
from kafkalog_broker.security.acl_store import AclStore
from kafkalog_broker.security.api_rights import RIGHTS, Right

_log = logging.getLogger(__name__)

MAX_CACHED = 10_000  # cached decisions of one principal at one address, about 200 bytes each

MAX_CACHED_NAME = 249
"""Longest resource name, in characters, whose decision is cached. No topic name is longer, and few group IDs are, so
requests with invented long names use no memory."""

UNCACHED_UNTIL_CLEARED = 8 * MAX_CACHED
"""Decisions that were not cached, because the cache is full, after which it is cleared. A client that repeatedly
requests 20,000 topics finds half of them in the cache; clearing a full cache immediately would leave none."""

DecisionKey = tuple[Operation, ResourceType, str | None]
"""Operation, resource type and resource name; the name is None for any resource of the type."""


class Authorizer:
    """Decides which operations a principal may perform. A change of `acls` invalidates cached decisions."""

    def __init__(self, settings: AuthorizerSettings) -> None:
        self.settings = settings
        self.acls = AclStore()
        self._denied = LogRate(_log)
        self._principals: WeakValueDictionary[tuple[str, str], _CachedDecisions] = WeakValueDictionary()

    def access(self, request: Request) -> Access:
        """Return the rights of a request's sender."""
        connection = request.connection
        decisions = connection.decisions
        if decisions is None or decisions.principal != connection.principal:
            key = connection.principal, connection.host
            cached = self._principals.get(key)
            if cached is None:
                cached = self._principals[key] = _CachedDecisions(self, *key)
            decisions = connection.decisions = cached  # a strong reference for as long as the connection is open
        return Access(decisions, request, self._denied)

    def decide(self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Return True if a principal may perform an operation on a resource."""
        if principal in self.settings.super_users:
            return True
        has_acls = allowed = False
        for by_principal in self.acls.matching(resource, name):
            has_acls = True
            for acl_principal in (principal, EVERYBODY):
                for acl in by_principal.get(acl_principal, ()):
                    if acl.covers(host, operation):
                        if acl.permission is Permission.DENY:
                            return False
                        allowed = True
        return allowed or (self.settings.allow_everyone and not has_acls)

    def decide_for_any(self, principal: str, host: str, operation: Operation, resource: ResourceType) -> bool:
        """Return True if a principal may perform an operation on some resource of a type (KIP-679).

        As in Kafka, operations that others imply do not count.
        """
        if self.decide(principal, host, operation, resource, "hardcode"):  # Kafka uses this name too
            return True
        denied: set[tuple[PatternType, str]] = set()
        allowed: list[Acl] = []
        for acl in self.acls.of_principal(resource, principal):
            if acl.operation not in (operation, Operation.ALL) or not acl.covers(host, operation):
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


class _CachedDecisions:
    """Cached decisions about a principal at an address, for all its connections."""

    __slots__ = ("__weakref__", "_authorizer", "_cached", "_host", "_uncached", "_version", "principal")

    def __init__(self, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self._host = host
        self._cached: dict[DecisionKey, bool] = {}
        self._uncached = 0
        self._version = authorizer.acls.version

    def may(self, operation: Operation, resource: ResourceType, name: str | None) -> bool:
        authorizer, cached = self._authorizer, self._cached
        if self._version != authorizer.acls.version or self._uncached >= UNCACHED_UNTIL_CLEARED:
            cached.clear()
            self._version = authorizer.acls.version
            self._uncached = 0
        key = (operation, resource, name)
        decision = cached.get(key)
        if decision is None:
            if name is None:  # about ten keys in all, each expensive to decide
                decision = cached[key] = authorizer.decide_for_any(self.principal, self._host, operation, resource)
                return decision
            decision = authorizer.decide(self.principal, self._host, operation, resource, name)
            if len(name) <= MAX_CACHED_NAME:
                if len(cached) < MAX_CACHED:
                    cached[key] = decision
                else:
                    self._uncached += 1
        return decision


class Access:
    """Rights of a request's sender. The first denial of a request is logged."""

    __slots__ = ("_decisions", "_denied", "_has_logged", "_request")

    def __init__(self, decisions: PrincipalDecisions, request: Request, denied: LogRate) -> None:
        self._decisions = decisions
        self._request = request
        self._denied = denied
        self._has_logged = False

    def may(self, operation: Operation, resource: ResourceType, name: str | None, *, quiet: bool = False) -> bool:
        """Return True if the sender may perform an operation.

        Args:
            operation: The operation.
            resource: Type of the resource.
            name: Name of the resource; None for any resource of the type.
            quiet: Do not log a denial, because another right may suffice or the resource is left out of the response.
        """
        if self._decisions.may(operation, resource, name):
            return True
        if not quiet and not self._has_logged:
            self._has_logged = True
            request = self._request
            self._denied.log(
                logging.INFO,
                "Principal = %.300s is Denied operation = %s from host = %s on resource = %s:LITERAL:%.300r for "
                "request = %s",
                self._decisions.principal, operation.name, request.connection.host, resource.name, name or WILDCARD,
                api_name(request.api_key),
            )  # fmt: skip
        return False

    def authorization_error(self, name: str, *, quiet: bool = False) -> ErrorCode:
        """Return the error if the sender does not have the API's right on a named resource, or `none`."""
        right = RIGHTS[self._request.api_key].on_resource
        assert right is not None, "RIGHTS has no right on named resources for this API"
        return self.denial(right, name, quiet=quiet)

    def denial(self, right: Right, name: str | None, *, quiet: bool = False) -> ErrorCode:
        """Return the error if the sender does not have a right, or `none`."""
        if right.alternative is not None and self.may(*right.alternative, quiet=True):
            return ErrorCode.none
        if self.may(right.operation, right.resource, name, quiet=quiet):
            return ErrorCode.none
        return acls.DENIALS[right.resource][0]

    def operations(self, resource: ResourceType, name: str) -> int:
        """Return the allowed operations as bits (KIP-430)."""
        may = self._decisions.may
        return acls.operation_bits(
            tuple(operation for operation in acls.OPERATIONS[resource] if may(operation, resource, name))
        )


def admit(request: Request, authorizer: Authorizer) -> None:
    """Set `request.access`, which handlers check for each resource.

    Raises:
        BrokerError: If a right that the whole request requires is missing.
    """
    access = request.access = authorizer.access(request)
    if request.entity is None:  # ApiVersions of an unknown version
        return
    for right in RIGHTS[request.api_key].of_request(request):
        code = access.denial(
            right, CLUSTER_NAME if right.name_field is None else getattr(request.entity, right.name_field)
        )
        if code is not ErrorCode.none:
            raise BrokerError(code)


def guarded(authorizer: Authorizer, api: Api) -> Api:
    """Return an API whose handler is called only if the sender has the required rights."""
    handle = api.handler

    def handle_admitted(request: Request, broker: Any) -> Any:
        admit(request, authorizer)
        return handle(request, broker)

    return replace(api, handler=handle_admitted)
