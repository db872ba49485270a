"""Counters that handlers update for the metrics: bytes read by consumers, and errors in responses.

Bytes that producers send are not counted here, because each log knows how much was appended to it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

_FETCH = 1  # API key
_ARRAY = re.compile("tuple|list|Sequence|Collection")  # annotation of an array

MAX_ENTRIES = 1000  # largest number of structs of a response that are searched for errors


class Traffic:
    """Counters since the start.

    Attributes:
        bytes_out: Bytes of records sent to consumers, by topic.
        errors: Number of response structs with an error, by API key and error code.
    """

    def __init__(self) -> None:
        self.bytes_out: Counter[str] = Counter()
        self.errors: Counter[tuple[int, int]] = Counter()

    def count_fetch(self, partitions: Iterable[Any]) -> None:
        """Count the partitions of a Fetch response."""
        for partition in partitions:
            if partition.size and partition.log is not None:
                self.bytes_out[partition.log.topic] += partition.size
            elif partition.error_code:
                self.errors[_FETCH, int(partition.error_code)] += 1

    def count_errors(self, api_key: int, response: Any) -> None:
        """Count the error codes in a response entity, at all levels of its arrays."""
        entities_left = MAX_ENTRIES
        unvisited = [response]
        while unvisited and entities_left > 0:
            entity = unvisited.pop()
            entities_left -= 1
            entity_class: Any = type(entity)  # Any, because mypy does not consider a class hashable
            codes, arrays = codes_and_arrays(entity_class)
            for name in codes:
                if code := int(getattr(entity, name)):
                    self.errors[api_key, code] += 1
            for name in arrays:
                value = getattr(entity, name)
                if isinstance(value, tuple | list) and value:
                    element: Any = type(value[0])
                    unvisited += value[:entities_left] if _names(element) else ()

    def count_failed_request(self, api_key: int, code: int) -> None:
        """Count a request that failed as a whole."""
        self.errors[api_key, int(code)] += 1

    def keep_topics(self, topics: set[str]) -> None:
        """Drop the counters of all topics except `topics`."""
        for name in self.bytes_out.keys() - topics:
            del self.bytes_out[name]


@cache
def codes_and_arrays(entity_class: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of a class's fields that are error codes, and of those that are arrays."""
    codes = tuple(name for name in _names(entity_class) if name == "error_code" or name.endswith("_error_code"))
    return codes, tuple(
        name for name, annotation in entity_class.__annotations__.items() if _ARRAY.search(str(annotation))
    )


@cache
def _names(entity_class: Any) -> tuple[str, ...]:
    """Return the field names of an entity class or of a tuple that replaces one; empty for other types."""
    return tuple(getattr(entity_class, "_fields", getattr(entity_class, "__dataclass_fields__", ())))
