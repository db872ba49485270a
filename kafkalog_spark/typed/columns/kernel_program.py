"""Program of a decoding kernel while it is compiled from schemas."""

from __future__ import annotations

from typing import Any

import numpy as np


class Program:
    """Rows of a program, and the operands that do not fit into a row.

    The programs of several schemas are appended to one another. If a schema turns out to be invalid, its part is
    removed again: call `mark` before a schema is compiled, and `back_to_mark` if that fails.

    Attributes:
        tables: Integers that rows refer to by index.
        texts: Bytes that rows refer to by position.
        java_texts: Numbers of the string columns in which bytes that are not UTF-8 become U+FFFD, because Java
            decodes their values to a `String`.
    """

    def __init__(self, *rows: list[Any]) -> None:
        """Create an empty program. `rows` are the lists of the subclass that grow with each schema."""
        self._rows = rows
        self.tables: list[int] = []
        self.texts = bytearray()
        self.java_texts: set[int] = set()
        self.mark()

    def mark(self) -> None:
        """Remember the current end of the program, where the part of the next schema begins."""
        self._mark = [len(part) for part in (*self._rows, self.tables, self.texts)]

    @property
    def row_count(self) -> int:
        """Number of rows in the first list of the subclass."""
        return len(self._rows[0])

    @property
    def begin(self) -> int:
        """`row_count` at the last `mark`."""
        return self._mark[0]

    def back_to_mark(self) -> None:
        """Remove everything that was added since the last `mark`."""
        for part, size in zip((*self._rows, self.tables, self.texts), self._mark, strict=True):
            del part[size:]

    def add_table(self, values: list[int]) -> int:
        """Append values to `tables`; return the index of the first."""
        self.tables += values
        return len(self.tables) - len(values)

    def add_text(self, text: bytes) -> int:
        """Append bytes to `texts`; return the position of the first."""
        self.texts += text
        return len(self.texts) - len(text)

    def operands(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (tables as int64[:], texts as uint8[:]) for a kernel. Both have at least one element."""
        return np.array(self.tables or [0], np.int64), np.frombuffer(bytes(self.texts) or b"\0", np.uint8)

    def arrays(self) -> Any:
        """Return the program as the named tuple of arrays that the kernel takes."""
        raise NotImplementedError
