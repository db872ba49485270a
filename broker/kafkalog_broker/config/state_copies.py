"""State of the broker in a JSON file, `{"version": 0, "generation": 3, ...}`, with a copy in every log directory; the
highest generation is read. Kafka keeps such state in its controllers' metadata log."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from kafkalog_spark.errors import CorruptFile, UnsupportedFormat
from kafkalog_spark.format.atomic_file import read_state, replace_files

VERSION = 0

_log = logging.getLogger(__name__)
Content = TypeVar("Content")


class StateCopies(Generic[Content]):
    """Copies of a state file that only the broker's user may read. `load` and `save` block: not for the event loop."""

    def __init__(
        self,
        name: str,
        directories: Iterable[Path],
        encode: Callable[[Content], Mapping[str, Any]],
        decode: Callable[[Mapping[str, Any]], Content],
    ) -> None:
        """encode, decode: the content, to and from the JSON object besides version and generation."""
        self._files = [Path(directory) / name for directory in directories]
        self._name, self._encode, self._decode = name, encode, decode
        self._generation = 0

    def load(self) -> Content | None:
        """The newest copy; None where there is none. One that is damaged, or in a directory that fails, is logged, and
        raised (CorruptFile, OSError) where there is no other. Raises UnsupportedFormat for a later release's, and
        OSError for a lack of descriptors: the copy that cannot be read then may be the newest."""
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
            if copy is not None and copy[0] > self._generation:
                self._generation, newest = copy
        if damaged is not None and not self._generation:
            raise damaged
        return newest

    def save(self, content: Content) -> None:
        """Replace the state; on disk on return. Raises OSError when no directory took it."""
        generation = self._generation + 1
        replace_files(self._files, self.dump(generation, content), private=True)
        self._generation = generation

    def dump(self, generation: int, content: Content) -> bytes:
        state = {"version": VERSION, "generation": generation, **self._encode(content)}
        return (json.dumps(state, indent=1) + "\n").encode("ascii")

    def parse(self, data: bytes) -> tuple[int, Content]:
        """Generation and content. Raises UnsupportedFormat for a later version, CorruptFile for all but a `dump`."""
        try:
            state = json.loads(data)
            if state["version"] != VERSION:
                raise UnsupportedFormat(f"version {state['version']} of {self._name}, only {VERSION} is known")
            generation, content = state["generation"], self._decode(state)
            if type(generation) is not int:
                raise TypeError("the generation is no whole number")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            # the text may quote a password: its type is enough
            raise CorruptFile(f"this is not the JSON that was written: {type(error).__name__}") from None
        return generation, content
