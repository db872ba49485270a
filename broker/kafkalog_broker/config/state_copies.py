"""State of the broker in a JSON file, `{"version": 0, "generation": 3, ...}`, with a copy in every log directory.

The copy with the highest generation is read. Kafka keeps such state in its controllers' metadata log.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import replace_files
from kafkalog_spark.format.regular_file import read_state

VERSION = 0

_log = logging.getLogger(__name__)
Content = TypeVar("Content")


class StateCopies(Generic[Content]):
    """Copies of a state file that only the broker's user may read. `load` and `save` block."""

    def __init__(
        self,
        name: str,
        directories: Iterable[Path],
        encode: Callable[[Content], Mapping[str, Any]],
        decode: Callable[[Mapping[str, Any]], Content],
    ) -> None:
        """
        Args:
            name: Name of the file.
            directories: Log directories.
            encode: Turns the content into the JSON object, without version and generation.
            decode: Turns the JSON object into the content.
        """
        self._files = [Path(directory) / name for directory in directories]
        self._name = name
        self._encode = encode
        self._decode = decode
        self._generation = 0

    def load(self) -> Content | None:
        """Return the content of the newest copy, or None if there is no copy. A copy that cannot be read is logged.

        Raises:
            CorruptFile: If the only copies are damaged.
            UnsupportedFormat: If a later release wrote a copy.
            OSError: If the only copies cannot be read, or for a lack of file descriptors, because the unreadable copy
                may then be the newest.
        """
        damaged: CorruptFile | OSError | None = None
        newest: Content | None = None
        for file in self._files:
            try:
                copy = read_state(file, self.parse)
            except (CorruptFile, OSError) as error:
                if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                _log.warning("%s", error)
                damaged = error
                continue
            if copy is None:
                continue
            generation, content = copy
            if generation > self._generation:
                self._generation, newest = generation, content
        if damaged is not None and not self._generation:
            raise damaged
        return newest

    def save(self, content: Content) -> None:
        """Replace the state and sync the copies to disk. Raises OSError if no copy was written."""
        generation = self._generation + 1
        replace_files(self._files, self.dump(generation, content), private=True)
        self._generation = generation

    def dump(self, generation: int, content: Content) -> bytes:
        """Return the bytes of the file."""
        state = {"version": VERSION, "generation": generation, **self._encode(content)}
        return (json.dumps(state, indent=1) + "\n").encode("ascii")

    def parse(self, data: bytes) -> tuple[int, Content]:
        """Return generation and content of a file's bytes. Raises UnsupportedFormat or CorruptFile."""
        try:
            state = json.loads(data)
            if state["version"] != VERSION:
                raise UnsupportedFormat(f"version {state['version']} of {self._name}, only {VERSION} is known")
            generation = state["generation"]
            content = self._decode(state)
            if type(generation) is not int:
                raise TypeError("the generation is not an integer")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            # The message has only the type of the error, because its text may quote a password.
            raise CorruptFile(f"the JSON does not have the expected content: {type(error).__name__}") from None
        return generation, content
