"""Settings of the authorizer: `authorizer.class.name` and the properties of Kafka's standard authorizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from kafkalog_broker.config.definition import NO_JAVA, invalid_value

AUTHORIZER_CLASS = "authorizer.class.name"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"

AUTHORIZER_PROPERTIES = frozenset({SUPER_USERS, ALLOW_EVERYONE})
"""Properties that Kafka's authorizer defines, not its broker."""


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """Settings of the standard authorizer.

    Attributes:
        super_users: Principals that may perform all operations.
        allow_everyone: True if everyone may access a resource without ACLs.
    """

    super_users: frozenset[str] = frozenset()
    allow_everyone: bool = False

    @classmethod
    def of(cls, class_name: str | None, properties: Mapping[str, str]) -> Self | None:
        """Read the settings.

        Args:
            class_name: Value of authorizer.class.name.
            properties: Properties of the start.

        Returns:
            None without an authorizer; everyone may then perform all operations.

        Raises:
            ConfigError: If the class is not supported or a super user is malformed.
        """
        if not class_name:
            return None
        if class_name != STANDARD_AUTHORIZER:
            raise invalid_value(
                AUTHORIZER_CLASS, class_name, NO_JAVA, f"the supported authorizer is {STANDARD_AUTHORIZER}"
            )
        texts = (text.strip() for text in properties.get(SUPER_USERS, "").split(";"))
        super_users = frozenset(filter(None, texts))
        malformed = next((text for text in sorted(super_users) if not all(text.partition(":")[::2])), None)
        if malformed is not None:
            reason = "expected a string in format principalType:principalName"
            raise invalid_value(
                SUPER_USERS, malformed, reason, "for example super.users=User:admin;User:CN=ops,O=Example"
            )
        # As with Java's Boolean.valueOf, any text other than true is false.
        return cls(super_users, properties.get(ALLOW_EVERYONE, "").strip().lower() == "true")
