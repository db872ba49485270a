"""Python source that is generated line by line and compiled, so that tracebacks and debuggers can show it."""

from __future__ import annotations
import __future__

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Source of one function or class, and the names in it.

    Attributes:
        file: Name under which tracebacks show the lines.
    """

    def __init__(self, file: str, names: dict[str, Any]) -> None:
        self.file = f"<kafkalog: {file}>"
        self._names = dict(names)
        self._lines: list[str] = []
        self._indent = ""
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append(self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The lines inside the with statement are the body of `head`."""
        self.line(head)
        self._indent += " "
        yield
        self._indent = self._indent[:-1]

    def name(self, what: str, value: Any = None) -> str:
        """A new name that begins with `what` and has that value, unless a line assigns another one."""
        self._count += 1
        name = f"{what}_{self._count}"
        if value is not None:
            self._names[name] = value
        return name

    def compiled(self, name: str) -> Any:
        """The object of this name after all lines have been executed."""
        text = "\n".join(self._lines) + "\n"
        linecache.cache[self.file] = len(text), None, text.splitlines(keepends=True), self.file
        exec(compile(text, self.file, "exec", __future__.annotations.compiler_flag, dont_inherit=True), self._names)
        return self._names[name]
