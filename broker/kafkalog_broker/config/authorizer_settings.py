"""Who decides who may do what: `authorizer.class.name` and the properties of Kafka's standard authorizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from kafkalog_broker.config.definition import ConfigError

CLASS = "authorizer.class.name"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

AUTHORIZER_PROPERTIES = frozenset({SUPER_USERS, ALLOW_EVERYONE})
"""Those that belong to the authorizer: Kafka's brokers have no definition of them."""


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """super_users: principals that may do everything. allow_everyone: what holds for a resource without any ACL."""

    super_users: frozenset[str] = frozenset()
    allow_everyone: bool = False

    @classmethod
    def of(cls, class_name: str, properties: Mapping[str, str]) -> Self | None:
        """None: there is no authorizer, and everybody may do everything. Raises ConfigError."""
        if not class_name:
            return None
        if class_name != STANDARD:
            raise ConfigError(
                f"Invalid value {class_name[:200]} for configuration {CLASS}: classes of Java cannot be loaded",
                name=CLASS,
                hint=f"the authorizer that there is: {STANDARD}",
            )
        texts = (text.strip() for text in properties.get(SUPER_USERS, "").split(";"))
        super_users = frozenset(filter(None, texts))
        wrong = next((text for text in sorted(super_users) if not all(text.partition(":")[::2])), None)
        if wrong is not None:
            raise ConfigError(
                f"Invalid value {wrong[:200]} for configuration {SUPER_USERS}: expected a string in format "
                "principalType:principalName",
                name=SUPER_USERS,
                hint="for example super.users=User:admin;User:CN=ops,O=Example",
            )
        # As Java's Boolean.valueOf: anything but true is false.
        return cls(super_users, properties.get(ALLOW_EVERYONE, "").strip().lower() == "true")
