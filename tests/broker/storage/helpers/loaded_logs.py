"""Log directories for tests of the loader, and requests to load them."""

from __future__ import annotations

from kafkalog_broker.storage.recovery.log_loader import LoadRequest
from kafkalog_spark.format.layout import ControlType
from kafkalog_spark.log.write.encoded_batch import control_batch
from kafkalog_spark.log.write.segment_writer import SegmentWriter
from tests.broker.storage.helpers.stored_logs import NOW
from tests.log.helpers.batch_builder import TRANSACTIONAL, V2Record, batch


def request(directory, **fields):
    """Return a request to load the directory as after a crash, with `fields` changed."""
    return LoadRequest(directory=directory, **{"clean": False, **fields})


def name(offset, suffix):
    """Of a file of the segment with that base offset."""
    return f"{offset:020d}{suffix}"


def records(offset, count=1, *, size=10, **fields):
    """A batch; each record comes 1 ms after the one before."""
    return batch(offset, [V2Record(offset + i, NOW + offset + i, None, bytes(size)) for i in range(count)], **fields)


def write_log(directory, *segments, padded=True):
    """segments: lists of batches. As a running broker leaves them: closed ones whole, the last one's indexes padded."""
    directory.mkdir(exist_ok=True)
    for number, data in enumerate(segments):
        base = int.from_bytes(data[0][:8], "big")
        writer = SegmentWriter.create(directory, base)
        writer._write(b"".join(data), 0)
        writer.close()
        if padded and number == len(segments) - 1:
            for suffix in (".index", ".timeindex"):
                (directory / name(base, suffix)).write_bytes(bytes(1200))
    return directory


def transactions():
    """Producer 5 aborts offsets 0-1 with the marker at 3, producer 6 commits 2 with 4; 7 has an open one from 5 on."""
    fields = {"attributes": TRANSACTIONAL, "producer_epoch": 0}
    return [
        records(0, 2, producer_id=5, base_sequence=0, **fields),
        records(2, producer_id=6, base_sequence=0, **fields),
        control_batch(ControlType.ABORT, 3, NOW, producer_id=5, producer_epoch=0, coordinator_epoch=1).data,
        control_batch(ControlType.COMMIT, 4, NOW, producer_id=6, producer_epoch=0, coordinator_epoch=2).data,
        records(5, producer_id=7, base_sequence=0, **fields),
    ]
