"""Results of checks: a Fault says what is wrong, a Finding also where (file, partition) and how severe it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat

Content = TypeVar("Content")

MAX_FINDINGS_PER_FILE = 10
"""Number of findings that are listed for a file: a damaged index may have a million wrong entries."""


class Severity(Enum):
    ERROR = "error"  # damage: no broker leaves a log in this state
    NOTE = "note"  # harmless: a running broker, or one that crashed, leaves a log in this state


class Fault(NamedTuple):
    """Something that is wrong in a file. The caller adds the path of the file.

    Attributes:
        what: What is wrong; with `expected` and `got`, the name of the wrong value.
        position: Byte in the file, or None.
        offset: Kafka offset, or None.
        expected: The expected value, or None.
        got: The found value; set if `expected` is.
    """

    what: str
    position: int | None = None
    offset: int | None = None
    expected: str | None = None
    got: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report: a fault in the file or directory `path`."""

    severity: Severity
    path: str
    fault: Fault
    topic_partition: str | None = None

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR

    def __str__(self) -> str:
        fault = self.fault
        problem = fault.what
        if fault.expected is not None:
            problem += f": expected {fault.expected}, got {fault.got}"
        text = KafkalogError(
            problem, topic_partition=self.topic_partition, path=self.path, position=fault.position, offset=fault.offset
        )
        return f"{self.severity.value}: {text}"


class Findings:
    """Collects the findings of a check.

    At most MAX_FINDINGS_PER_FILE findings of a file are kept and passed to `listener`. The properties `errors` and
    `notes` count all of them.
    """

    def __init__(self, listener: Callable[[Finding], None] | None = None) -> None:
        self.kept: list[Finding] = []
        self._listener = listener
        self._topic_partition: str | None = None
        self._counts: Counter[Severity] = Counter()
        self._counts_by_path: Counter[tuple[str, Severity]] = Counter()

    def for_partition(self, topic_partition: str) -> Findings:
        """Return a view of this object that adds the partition's name to each finding."""
        view = copy(self)
        view._topic_partition = topic_partition
        return view

    @property
    def errors(self) -> int:
        return self._counts[Severity.ERROR]

    @property
    def notes(self) -> int:
        return self._counts[Severity.NOTE]

    def add(self, severity: Severity, path: str, fault: Fault) -> None:
        self._counts[severity] += 1
        self._counts_by_path[path, severity] += 1
        if self._counts_by_path[path, severity] <= MAX_FINDINGS_PER_FILE:
            self._keep(Finding(severity, path, fault, self._topic_partition))

    def add_errors(self, path: str, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.add(Severity.ERROR, path, fault)

    def add_unreadable(self, error: KafkalogError | OSError, path: str) -> None:
        """Add an ERROR for a file that cannot be read: the one that the error names, else `path`."""
        if isinstance(error, KafkalogError):
            what = error.what if error.hint is None else f"{error.what} ({error.hint})"
            self.add(Severity.ERROR, error.path or path, Fault(what, error.position, error.offset))
        else:
            self.add(Severity.ERROR, error.filename or path, Fault(f"cannot be read: {error.strerror}"))

    def read(self, path: str, read: Callable[[], Content]) -> Content | None:
        """Return `read()`; None if the file does not exist, or if it cannot be read, which adds an ERROR for `path`."""
        try:
            return read()
        except FileNotFoundError:
            return None
        except (CorruptLog, UnsupportedFormat, OSError) as error:
            self.add_unreadable(error, path)
            return None

    def add_omitted(self) -> None:
        """Add one finding for each file that has more than MAX_FINDINGS_PER_FILE. Call it once, after the check."""
        for (path, severity), count in self._counts_by_path.items():
            omitted = count - MAX_FINDINGS_PER_FILE
            if omitted > 0:
                self._keep(Finding(severity, path, Fault(f"{omitted} more like these in this file")))
        self._counts_by_path.clear()

    def _keep(self, finding: Finding) -> None:
        self.kept.append(finding)
        if self._listener is not None:
            self._listener(finding)
