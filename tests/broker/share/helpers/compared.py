"""Compares responses of two brokers, without the parts that may differ."""

from __future__ import annotations

from typing import Any


def compared(answer: Any) -> Any:
    """Return a response without error messages, for which Kafka uses the texts of its exceptions."""
    if isinstance(answer, dict):
        return {key: compared(value) for key, value in answer.items() if not key.endswith("error_message")}
    if isinstance(answer, list):
        return [compared(value) for value in answer]
    return answer


BY_CHANCE = {"and another", "a new session", "delivered again"}
"""Labels of requests whose response depends on timing: Kafka loads the state of a share partition over the network and
responds with the other partition meanwhile."""

BY_TOPIC_ID = {"the second joins", "the first has one left", "describe"}
"""Labels of responses that name one of two partitions. Which one a member keeps depends on the hash of the topic id,
which differs in each run."""


def are_the_same(label: str, one: Any, other: Any) -> bool:
    """Return whether the responses of two brokers to the request with this label are equal."""
    one, other = compared(one), compared(other)
    if label in BY_TOPIC_ID:
        one, other = _whichever(one), _whichever(other)
    return bool(one == other)


def _whichever(answer: Any) -> Any:
    """Return a response without the number of a partition that is the only one in its list."""
    if isinstance(answer, list):
        return [_whichever(one) for one in answer]
    if isinstance(answer, dict):
        return {
            name: "<one>" if name == "partitions" and len(value) == 1 else _whichever(value)
            for name, value in answer.items()
        }
    return answer
