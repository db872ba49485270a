"""What of two brokers' answers has to be equal."""

from __future__ import annotations

from typing import Any


def compared(answer: Any) -> Any:
    """Without what Kafka says in its own exceptions' words, where an error code says the same."""
    if isinstance(answer, dict):
        return {key: compared(value) for key, value in answer.items() if not key.endswith("error_message")}
    if isinstance(answer, list):
        return [compared(value) for value in answer]
    return answer


BY_CHANCE = {"and another", "a new session", "delivered again"}
"""Kafka loads the state of a share partition over its network, and answers with the other partition meanwhile."""

BY_TOPIC_ID = {"the second joins", "the first has one left", "describe"}
"""Which of the two partitions a member keeps depends on the hash of the topic's id, which is another in each run."""


def are_the_same(label: str, one: Any, other: Any) -> bool:
    """Whether two brokers' answers to the request of that label say the same."""
    one, other = compared(one), compared(other)
    if label in BY_TOPIC_ID:
        one, other = _whichever(one), _whichever(other)
    return bool(one == other)


def _whichever(answer: Any) -> Any:
    """Without the number of a partition that is alone."""
    if isinstance(answer, list):
        return [_whichever(one) for one in answer]
    if isinstance(answer, dict):
        return {
            name: "<one>" if name == "partitions" and len(value) == 1 else _whichever(value)
            for name, value in answer.items()
        }
    return answer
