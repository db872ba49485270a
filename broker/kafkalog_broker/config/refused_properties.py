"""Properties that this broker refuses instead of ignoring them."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalog_broker.config.definition import NO_JAVA

REFUSED: Mapping[str, str] = {
    "create.topic.policy.class.name": f"{NO_JAVA}, so no topic would be refused",
    "alter.config.policy.class.name": f"{NO_JAVA}, so no change would be refused",
    "client.quota.callback.class": f"{NO_JAVA}, so no client would be held to a quota",
    "config.providers": "values of the form ${provider:path:key} cannot be resolved",
}
"""Property -> why it cannot have an effect. The broker does not start with such a property, because its user relies on
the effect."""
