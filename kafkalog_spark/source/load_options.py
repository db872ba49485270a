"""The options of a load, before it is known whether a batch or a stream is loaded: `schema()` cannot know.

What only one of the two refuses is refused when the load turns out to be that one: `startingOffsets=latest` by the
first query of a batch, `endingOffsets` by the start of a stream. What both refuse is refused by `.load()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.options import ReadOptions, parse_read_options, warn_of


@dataclass
class LoadOptions:
    """The same options as a batch reads them and as a stream does; an OptionError where that refuses them.

    `logged`: names without effect that have been logged. Spark keeps the data source, and this in it, after `schema()`.
    """

    as_batch: ReadOptions | OptionError
    as_stream: ReadOptions | OptionError
    logged: set[str] = field(default_factory=set)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> LoadOptions:
        """Never raises: `either`, `batch` and `stream` do."""
        return cls(_parsed(options, streaming=False), _parsed(options, streaming=True))

    def either(self) -> ReadOptions:
        """What batch and stream have in common: paths, columns. Raises OptionError when both refuse the options; logs
        those without effect on any."""
        kinds = [kind for kind in (self.as_batch, self.as_stream) if isinstance(kind, ReadOptions)]
        if not kinds:
            assert isinstance(self.as_batch, OptionError)
            raise self.as_batch
        self._tell(name for name in kinds[0].ignored if all(name in kind.ignored for kind in kinds))
        return kinds[0]

    def batch(self) -> ReadOptions:
        """Raises OptionError; logs what has no effect on a batch, once."""
        return self._chosen(self.as_batch)

    def stream(self) -> ReadOptions:
        """Raises OptionError; logs what has no effect on a stream, once."""
        return self._chosen(self.as_stream)

    def _chosen(self, kind: ReadOptions | OptionError) -> ReadOptions:
        if isinstance(kind, OptionError):
            raise kind
        self._tell(kind.ignored)
        return kind

    def _tell(self, ignored: Iterable[str]) -> None:
        news = [name for name in ignored if name not in self.logged]
        warn_of(news)
        self.logged.update(news)


def _parsed(options: Mapping[str, str], *, streaming: bool) -> ReadOptions | OptionError:
    try:
        return parse_read_options(options, streaming=streaming, quiet=True)
    except OptionError as error:
        return error.with_traceback(None)
