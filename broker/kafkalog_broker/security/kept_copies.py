"""A small state of the broker in a file, with a copy in every log directory; the highest generation is read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from kafkalog_spark.errors import CorruptFile
from kafkalog_spark.format.atomic_file import read_state, replace_files

_log = logging.getLogger(__name__)
Content = TypeVar("Content")


class KeptCopies(Generic[Content]):
    """`load` and `save` are for another thread than the event loop's. Only the broker's user may read the files."""

    def __init__(
        self,
        name: str,
        directories: Iterable[Path],
        parse: Callable[[bytes], tuple[int, Content]],
        dump: Callable[[int, Content], bytes],
    ) -> None:
        """parse, dump: the generation and what is kept, from and to the bytes of a file."""
        self._files = [Path(directory) / name for directory in directories]
        self._parse, self._dump = parse, dump
        self._generation = 0

    def load(self) -> Content | None:
        """The newest copy; None where there is none. Raises CorruptFile for one that is damaged where there is no
        other, UnsupportedFormat for one of a later release."""
        damaged: CorruptFile | None = None
        newest: Content | None = None
        for file in self._files:
            try:
                found = read_state(file, self._parse)
            except CorruptFile as error:
                _log.warning("%s", error)
                damaged = error
                continue
            if found is not None and found[0] > self._generation:
                self._generation, newest = found
        if damaged is not None and not self._generation:
            raise damaged
        return newest

    def save(self, content: Content) -> None:
        """On disk on return. Raises OSError when no directory took it."""
        generation = self._generation + 1
        replace_files(self._files, self._dump(generation, content), private=True)
        self._generation = generation
