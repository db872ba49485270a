"""Results of checks: faults without a place, findings with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from kafkalog_spark.errors import CorruptLog, KafkalogError, UnsupportedFormat

Content = TypeVar("Content")

MOST_OF_A_FILE = 10
"""Findings of one file that are listed one by one: a damaged index may have a million wrong entries."""


class Severity(Enum):
    """ERROR: no broker leaves such a thing. NOTE: brokers do, running or after a crash, and it does no harm."""

    ERROR = "error"
    NOTE = "note"


class Fault(NamedTuple):
    """Something wrong in a file that the caller knows. position: byte; offset: of Kafka; None where it has none."""

    what: str
    position: int | None = None
    offset: int | None = None
    expected: str | None = None
    got: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A line of the report. `path`: the file or directory that it is about."""

    severity: Severity
    path: str
    fault: Fault
    topic_partition: str | None = None

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR

    def __str__(self) -> str:
        fault = self.fault
        what = fault.what
        if fault.expected is not None:
            what += f": expected {fault.expected}, got {fault.got}"
        place = KafkalogError(
            what, topic_partition=self.topic_partition, path=self.path, position=fault.position, offset=fault.offset
        )
        return f"{self.severity.value}: {place}"


class Findings:
    """Collects the findings of a check. `listener` gets each as it comes; `errors`, `notes` count all of them. Of one
    file MOST_OF_A_FILE are kept, and `tell_rest` adds one line for the others."""

    def __init__(self, listener: Callable[[Finding], None] | None = None) -> None:
        self.kept: list[Finding] = []
        self._listener = listener
        self._topic_partition: str | None = None
        self._counts: Counter[Severity] = Counter()
        self._of_path: Counter[tuple[str, Severity]] = Counter()

    def of(self, topic_partition: str) -> Findings:
        """The same findings, to which its holder adds those of a partition."""
        same = copy(self)
        same._topic_partition = topic_partition
        return same

    @property
    def errors(self) -> int:
        return self._counts[Severity.ERROR]

    @property
    def notes(self) -> int:
        return self._counts[Severity.NOTE]

    def add(self, severity: Severity, path: str, fault: Fault) -> None:
        self._counts[severity] += 1
        self._of_path[path, severity] += 1
        if self._of_path[path, severity] <= MOST_OF_A_FILE:
            self._keep(Finding(severity, path, fault, self._topic_partition))

    def add_errors(self, path: str, faults: Iterable[Fault]) -> None:
        for fault in faults:
            self.add(Severity.ERROR, path, fault)

    def add_unreadable(self, error: KafkalogError | OSError, path: str) -> None:
        """Take what kept `path`, or the file that the error names, from being read as a finding of severity ERROR."""
        if isinstance(error, KafkalogError):
            what = error.what if error.hint is None else f"{error.what} ({error.hint})"
            self.add(Severity.ERROR, error.path or path, Fault(what, error.position, error.offset))
        else:
            self.add(Severity.ERROR, error.filename or path, Fault(f"cannot be read: {error.strerror}"))

    def read(self, path: str, read: Callable[[], Content]) -> Content | None:
        """The content of a small file; None where there is none, or a finding tells that it cannot be read."""
        try:
            return read()
        except FileNotFoundError:
            return None
        except (CorruptLog, UnsupportedFormat, OSError) as error:
            self.add_unreadable(error, path)
            return None

    def tell_rest(self) -> None:
        """Say of which files more was found than was listed."""
        for (path, severity), count in self._of_path.items():
            if count > MOST_OF_A_FILE:
                self._keep(Finding(severity, path, Fault(f"{count - MOST_OF_A_FILE} more like these in this file")))
        self._of_path.clear()

    def _keep(self, finding: Finding) -> None:
        self.kept.append(finding)
        if self._listener is not None:
            self._listener(finding)
