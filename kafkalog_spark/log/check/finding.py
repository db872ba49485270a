"""Results of checks: faults without a place, findings with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
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
    """Collects the findings of a check. `listener` gets each as it comes; `errors`, `notes` count all of them.

    Of one file MOST_OF_A_FILE are kept, and `tell_rest` adds one line for the others.
    """

    def __init__(self, listener: Callable[[Finding], None] | None = None) -> None:
        self.kept: list[Finding] = []
        self.errors = 0
        self.notes = 0
        self._listener = listener
        self._of_path: Counter[tuple[str, Severity]] = Counter()

    def add(self, severity: Severity, path: str, fault: Fault, topic_partition: str | None = None) -> None:
        if severity is Severity.ERROR:
            self.errors += 1
        else:
            self.notes += 1
        self._of_path[path, severity] += 1
        if self._of_path[path, severity] <= MOST_OF_A_FILE:
            self._keep(Finding(severity, path, fault, topic_partition))

    def add_errors(self, path: str, faults: Iterable[Fault], topic_partition: str | None = None) -> None:
        """Take faults of a file as findings of severity ERROR."""
        for fault in faults:
            self.add(Severity.ERROR, path, fault, topic_partition)

    def add_error(self, error: KafkalogError, path: str, topic_partition: str | None = None) -> None:
        """Take an exception of this package as a finding of severity ERROR."""
        what = error.what if error.hint is None else f"{error.what} ({error.hint})"
        self.add(Severity.ERROR, error.path or path, Fault(what, error.position, error.offset), topic_partition)

    def add_unreadable(self, error: KafkalogError | OSError, path: str, topic_partition: str | None = None) -> None:
        """Take what kept a file from being read as a finding of severity ERROR."""
        if isinstance(error, KafkalogError):
            self.add_error(error, path, topic_partition)
        else:
            self.add(Severity.ERROR, path, Fault(f"cannot be read: {error.strerror}"), topic_partition)

    def read(self, path: str, read: Callable[[], Content], topic_partition: str | None = None) -> Content | None:
        """The content of a small file; None where there is none, or a finding tells that it cannot be read."""
        try:
            return read()
        except FileNotFoundError:
            return None
        except (CorruptLog, UnsupportedFormat, OSError) as error:
            self.add_unreadable(error, path, topic_partition)
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
