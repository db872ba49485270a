"""Counters of handlers while metrics are on: bytes read by consumers, errors in answers. What comes in needs no
counting: a log knows what was appended to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

LOOKED_AT = 1000  # entries of an answer that are looked at for errors: 0.2 us each, and an answer may have 100,000


class Traffic:
    """bytes_out: of records, by topic. errors: by API key and code, one for each entry of an answer that has one."""

    def __init__(self) -> None:
        self.bytes_out: Counter[str] = Counter()
        self.errors: Counter[tuple[int, int]] = Counter()

    def fetched(self, partitions: Iterable[Any]) -> None:
        for one in partitions:
            if one.size and one.log is not None:
                self.bytes_out[one.log.topic] += one.size
            elif one.error_code:
                self.errors[1, int(one.error_code)] += 1

    def answered(self, api_key: int, response: Any) -> None:
        """A response: its own error code, those of its entries, and of theirs."""
        left = LOOKED_AT
        waiting = [response]
        while waiting and left > 0:
            entity = waiting.pop()
            left -= 1
            kind: Any = type(entity)  # typeshed takes no class for hashable
            codes, arrays = codes_and_arrays(kind)
            for name in codes:
                if code := int(getattr(entity, name)):
                    self.errors[api_key, code] += 1
            for name in arrays:
                value = getattr(entity, name)
                if isinstance(value, tuple | list) and value:
                    element: Any = type(value[0])
                    waiting += value[:left] if _names(element) else ()

    def refused(self, api_key: int, code: int) -> None:
        self.errors[api_key, int(code)] += 1

    def forget(self, topics: set[str]) -> None:
        for name in self.bytes_out.keys() - topics:
            del self.bytes_out[name]


@cache
def codes_and_arrays(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of a class's fields that are error codes, and of those that are arrays."""
    codes = tuple(name for name in _names(kind) if name == "error_code" or name.endswith("_error_code"))
    return codes, tuple(name for name, annotation in kind.__annotations__.items() if _ARRAY.search(str(annotation)))


_ARRAY = re.compile("tuple|list|Sequence|Collection")


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Names of the fields of structs of messages and of tuples that stand for them; none of anything else."""
    return tuple(getattr(kind, "_fields", getattr(kind, "__dataclass_fields__", ())))
