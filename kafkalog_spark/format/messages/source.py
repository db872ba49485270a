"""Python source that is generated line by line and compiled. Tracebacks and debuggers show its lines."""

from __future__ import annotations
import __future__

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Source of one function or class, and the objects that it refers to.

    Attributes:
        file: Name under which tracebacks show the lines.
    """

    def __init__(self, file: str, names: dict[str, Any]) -> None:
        self.file = f"<kafkalog: {file}>"
        self._names = dict(names)
        self._lines: list[str] = []
        self._indent = ""
        self._count = 0

    def add_line(self, text: str) -> None:
        """Add a line at the current indentation."""
        self._lines.append(self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add the line `head`; lines that are added inside the context are its body."""
        self.add_line(head)
        self._indent += " "
        yield
        self._indent = self._indent[:-1]

    def new_name(self, prefix: str, value: Any = None) -> str:
        """Return a new unique name that begins with `prefix` and, if `value` is not None, is bound to it."""
        self._count += 1
        name = f"{prefix}_{self._count}"
        if value is not None:
            self._names[name] = value
        return name

    def compile(self, name: str) -> Any:
        """Execute all lines and return the object with this name."""
        text = "\n".join(self._lines) + "\n"
        linecache.cache[self.file] = len(text), None, text.splitlines(keepends=True), self.file
        exec(compile(text, self.file, "exec", __future__.annotations.compiler_flag, dont_inherit=True), self._names)
        return self._names[name]
