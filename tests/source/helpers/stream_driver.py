"""A streaming query without Spark: the calls of Spark's micro-batch engine, in its order, with everything as JSON or
pickled in between (MicroBatchExecution, python_streaming_source_runner.py).

    query = Query(path, startingOffsets="earliest")
    query.trigger()                                   # [["0", "1"]]: the batches that ran, each as the values read
    Query(path, checkpoint=query.checkpoint)          # a restart

A trigger writes the end of a batch to the checkpoint before it plans the tasks, and the commit after they have run.
"""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.serializers import SpecialLengths, read_int, write_with_length
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.datasource_internal import ReadLimitRegistry
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafkalog_spark.datasource import KafkaLogDataSource
from kafkalog_spark.source.split import Split
from tests.source.helpers.driver import SUBSCRIPTIONS

MOST_BATCHES = 100  # of one trigger: a query that does not end is a failure, not a hang


class Crash(Exception):
    """The query is killed here."""


@dataclass
class Checkpoint:
    """`offsets`: the text of each batch's end, `committed`: how many batches are done."""

    offsets: list[str] = field(default_factory=list)
    committed: int = 0


class Query:
    """One run of a query. `trigger_kind`: processing, once or availableNow."""

    def __init__(
        self,
        *paths: Path | str,
        checkpoint: Checkpoint | None = None,
        trigger_kind: str = "processing",
        crash_before: str | None = None,
        **options: object,
    ) -> None:
        texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        if len(paths) == 1:
            texts["path"] = str(paths[0])
        else:
            texts["paths"] = json.dumps([str(path) for path in paths])
        if not texts.keys() & SUBSCRIPTIONS:
            texts["allTopics"] = "true"
        self.checkpoint = Checkpoint() if checkpoint is None else checkpoint
        self.crash_before = crash_before
        self.trigger_kind = trigger_kind
        source = _pickled(KafkaLogDataSource(CaseInsensitiveDict(texts)))
        self.schema = source.schema()
        source = _pickled(source)
        self._source = source
        self.reader = source.streamReader(schema=self.schema)
        self.pickled_reader = cloudpickle.dumps(_pickled(source).streamReader(schema=self.schema))
        self.planned: list[Split] = []
        self.tasks = 0
        self.prefetched = False
        if trigger_kind == "availableNow":
            self.reader.prepareForTriggerAvailableNow()
        limit = self.reader.getDefaultReadLimit()
        as_dict = {**limit.__dict__, "_type": type(limit).__name__}
        self._limit = ReadLimitRegistry().get(json.loads(json.dumps(as_dict)))
        self._rerun = len(self.checkpoint.offsets) > self.checkpoint.committed

    def trigger(self) -> list[list[str]]:
        """One trigger, or with availableNow all of them; what each batch that ran has read, sorted."""
        ran: list[list[str]] = []
        while (batch := self.batch()) is not None:
            ran.append(sorted(value.decode() for value in batch["value"].to_pylist()))
            assert len(ran) < MOST_BATCHES, "the query does not end"
            if self.trigger_kind != "availableNow":
                break
        return ran

    def batch(self) -> pa.Table | None:
        """The next batch's rows; None when there is none."""
        offsets = self.checkpoint.offsets
        if not self._rerun:
            start = self._start(len(offsets))
            limit = ReadAllAvailable() if self.trigger_kind == "once" else self._limit
            end = _through_json(self.reader.latestOffset(json.loads(start), limit))
            _through_json(self.reader.reportLatestOffset())
            if offsets and end == offsets[-1]:
                return None
            offsets.append(end)
            self._crash("planning")
            if len(offsets) > 1:
                self.reader.commit(json.loads(offsets[-2]))
        self._rerun = False
        pickled, prefetched = self._plan(self._start(len(offsets) - 1), offsets[-1])
        self.planned = [split for one in pickled for split in pickle.loads(one).value]
        self.tasks = len(pickled)
        self.prefetched = prefetched is not None
        self._crash("reading")
        expected = to_arrow_schema(self.schema, timezone="UTC")
        batches = [b for one in pickled for b in pickle.loads(self.pickled_reader).read(pickle.loads(one))]
        table = pa.Table.from_batches(batches, schema=expected)
        if prefetched is not None:  # the tasks' rows are what Spark reads when it has lost those
            assert pa.Table.from_batches(prefetched, schema=expected) == table
        self._crash("commit")
        self.checkpoint.committed = len(offsets)
        return table

    @property
    def end(self) -> Any:
        """The offsets that the checkpoint ends with, without the topic ids."""
        return {topic: offsets for topic, offsets in json.loads(self.checkpoint.offsets[-1]).items() if offsets}

    def _plan(self, start: str, end: str) -> tuple[list[bytes], list[pa.RecordBatch] | None]:
        """The pickled partitions, and the rows where they came with the plan, as Spark's runner sends them."""
        asked, answer = io.BytesIO(), io.BytesIO()
        for text in (start, end):
            write_with_length(text.encode(), asked)
        asked.seek(0)
        runner.partitions_func(self.reader, self._source, self.schema, 10_000, asked, answer)
        answer.seek(0)
        pickled = [answer.read(read_int(answer)) for _ in range(read_int(answer))]
        match read_int(answer):
            case runner.PREFETCHED_RECORDS_NOT_FOUND:
                return pickled, None
            case runner.EMPTY_PYARROW_RECORD_BATCHES:
                rows: list[pa.RecordBatch] = []
            case _:
                assert read_int(answer) == SpecialLengths.START_ARROW_STREAM
                rows = list(pa.ipc.open_stream(answer))
        assert len(pickled) == 1, "rows that come with the plan are one partition (PythonMicroBatchStream)"
        return pickled, rows

    def _start(self, batch: int) -> str:
        """Spark keeps the end of each batch, not the start of the first."""
        return self.checkpoint.offsets[batch - 1] if batch else _through_json(self.reader.initialOffset())

    def _crash(self, step: str) -> None:
        if self.crash_before == step:
            raise Crash(step)


def _through_json(value: Any) -> str:
    return json.dumps(value)


def _pickled(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))
