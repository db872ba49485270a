"""controller_mutation_rate (KIP-599): partitions that are made and removed.

Clients that know THROTTLING_QUOTA_EXCEEDED are refused what goes beyond, topic by topic; others are served, and wait.
A topic is charged once its name, the rights and all else were checked, as in ReplicationControlManager: what is
refused for another reason costs nothing, and the quota gives nothing away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.protocol.api_registry import Request
from kafkalog_broker.quotas.client_quotas import Client, ClientQuotas

EXCEEDED = "The throttling quota has been exceeded."

STRICT_FROM: Mapping[int, int] = {19: 6, 20: 5, 37: 3}
"""CreateTopics, DeleteTopics, CreatePartitions: the first version whose clients are refused."""


@dataclass(slots=True, kw_only=True)
class ChargedRequest(Request):
    """A request of one of these APIs from a client that may have a quota."""

    quotas: ClientQuotas
    client: Client

    def charge(self, partitions: int) -> None:
        if self.version < STRICT_FROM[self.api_key]:
            self.quotas.mutate(self.client, partitions)
        elif not self.quotas.may_mutate(self.client, partitions):
            raise BrokerError(ErrorCode.throttling_quota_exceeded, EXCEEDED)


def charged(quotas: ClientQuotas, client: Client, request: Request) -> ChargedRequest:
    """The same request, which costs its client what it changes."""
    same = {field.name: getattr(request, field.name) for field in fields(Request)}
    return ChargedRequest(quotas=quotas, client=client, **same)
