"""Every API asked by principals with and without each right, in order: of a real Kafka and of this broker.

A case is one request; `rights` are the ACLs that together let it through. It is asked by somebody who has none of them,
by those who lack just one, by one who has all, and by those with each of `others`. A right is written
`[deny] [prefixed] OPERATION resource name [from host]`; resources: topic, group, id (transactional), user, cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

ADMIN = "admin"
"""The one super user. All users have this name as a password too."""

TOPICS = {"orders": 2, "secret": 1}
GROUP, TXN = "readers", "pay"
Values = dict[str, Any]
Rights = tuple[str, ...]

RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "id": 5, "user": 7}
OPERATIONS = {
    name: number
    for number, name in enumerate(
        [
            "ALL",
            "READ",
            "WRITE",
            "CREATE",
            "DELETE",
            "ALTER",
            "DESCRIBE",
            "CLUSTER_ACTION",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
            "IDEMPOTENT_WRITE",
            "CREATE_TOKENS",
        ],
        start=2,
    )
}


@dataclass(frozen=True)
class Case:
    """label, key, version, values: the request. changes: Kafka's broker acts on it after the answer."""

    label: str
    key: int
    version: int
    values: Values = field(repr=False)
    rights: Rights
    others: tuple[Rights, ...] = ()
    with_all: bool = True
    changes: bool = False

    def askers(self) -> Iterator[Rights]:
        found = [(), *(tuple(one for one in self.rights if one != left) for left in self.rights)]
        found += [*self.others, *([self.rights] if self.with_all else [])]
        yield from dict.fromkeys(found)


def acl(principal: str, right: str) -> Values:
    """The fields of a creation."""
    words = right.split()
    denies = words[0] == "deny"
    words = words[denies:]
    prefixed = words[0] == "prefixed"
    words = words[prefixed:]
    host = words[words.index("from") + 1] if "from" in words else "*"
    kind = words[1]
    return {
        "resource_type": RESOURCES[kind],
        "resource_name": "kafka-cluster" if kind == "cluster" else words[2],
        "resource_pattern_type": 4 if prefixed else 3,
        "principal": f"User:{principal}",
        "host": host,
        "operation": OPERATIONS[words[0]],
        "permission_type": 2 if denies else 3,
    }


ALL_THREE = ("orders", "secret", "nothing")
R_GROUP, W_TXN = f"READ group {GROUP}", f"WRITE id {TXN}"
MEMBER = {"group_id": GROUP, "generation_id": 1, "member_id": "m"}
OWNER = {"transactional_id": TXN, "producer_id": 777_777, "producer_epoch": 0}
