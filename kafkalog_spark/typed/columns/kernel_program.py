"""Program of a decoding kernel while it is written, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np


class Program:
    """Program of a kernel, as it is written: its rows in lists, operands beyond them in `tables` and `texts`.
    java_texts: columns of strings that Java decodes into a String: what is not UTF-8 in them is replaced."""

    def __init__(self, *rows: list[Any]) -> None:
        self._rows = rows
        self.tables: list[int] = []
        self.texts = bytearray()
        self.java_texts: set[int] = set()
        self.mark()

    def mark(self) -> None:
        """Remember how much there is, for `back_to_mark`; a schema begins here."""
        self._mark = [len(part) for part in (*self._rows, self.tables, self.texts)]

    @property
    def begin(self) -> int:
        """How many rows there were at the mark."""
        return self._mark[0]

    def back_to_mark(self) -> None:
        for part, size in zip((*self._rows, self.tables, self.texts), self._mark, strict=True):
            del part[size:]

    def table(self, values: list[int]) -> int:
        """Add values to the tables; where they start."""
        self.tables += values
        return len(self.tables) - len(values)

    def text(self, text: bytes) -> int:
        """Add bytes to the texts; where they start."""
        self.texts += text
        return len(self.texts) - len(text)

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """(tables int64, texts uint8) as kernels take them."""
        return np.array(self.tables or [0], np.int64), np.frombuffer(bytes(self.texts) or b"\0", np.uint8)

    def arrays(self) -> Any:
        raise NotImplementedError
