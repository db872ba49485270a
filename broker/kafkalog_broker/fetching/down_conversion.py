"""Down-conversion of batches into messages v0 or v1 for clients that know no others (RecordsUtil.downConvert).

Left out: headers of records, control batches, and records of aborted transactions, since such a client cannot tell.
Offsets stay, timestamps go in v0, and a compressed batch becomes wrappers with its codec, of at most WRAPPED_BYTES of
messages and from the record on that was asked for, so that a client gets on with any batch whose records fit into what
it asks for. zstd, which these formats do not have, is UNSUPPORTED_COMPRESSION_TYPE. Messages that the client can read
go out as they lie there.

For a thread. One call looks at one window of the log, READ_BYTES or a batch that is larger, and ends early when it has
taken AT_ONCE_S: then it is another request's turn there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog_broker.errors import BrokerError, ErrorCode
from kafkalog_broker.fetching.fetch_read import Fetched, FetchedPartition
from kafkalog_broker.fetching.fetch_session import FetchPartition
from kafkalog_broker.protocol.hot_messages import PartitionFetchResponse
from kafkalog_broker.runtime.fair_scheduling import TimeSlice
from kafkalog_broker.storage.append.fetched_batches import sweep_batches
from kafkalog_broker.storage.append.kernel_fields import MessageColumn, SetFault, Unit
from kafkalog_broker.storage.append.recompression import checksum, unpacked, wrapper_of
from kafkalog_broker.storage.append.record_walk import as_array, load_kernel
from kafkalog_broker.storage.partition.log import Log
from kafkalog_spark.errors import CorruptBatch, KafkalogError
from kafkalog_spark.format import layout
from kafkalog_spark.format.layout import MAX_DECOMPRESSED, Codec, H
from kafkalog_spark.format.transaction_index import AbortedTransaction
from kafkalog_spark.log.decode.scratch import Scratch
from kafkalog_spark.log.read.batch_filters import AbortedBatches
from kafkalog_spark.log.write.compress import compress

I64 = npt.NDArray[np.int64]
U8 = npt.NDArray[np.uint8]


class ConversionRequest(NamedTuple):
    """Request for one window. until: no batch from there on. room: bytes. What a first message may be that has no room:
    `whole`, or `cut` off at it; else it stays away."""

    offset: int
    until: int
    magic: int
    room: int
    whole: bool
    cut: bool


class Conversion(IntEnum):
    HIDDEN = 0  # control batches and aborted records
    READABLE = 1  # goes out as it lies there
    RECORDS = 2  # v2, not compressed
    PACKED_RECORDS = 3
    MESSAGES = 4  # v1 that must become v0
    PACKED_MESSAGES = 5


def kinds_of(table: I64, request: ConversionRequest, aborted: Callable[[], Sequence[AbortedTransaction]]) -> I64:
    """int64[n]: the Conversion of each batch. aborted: transactions with records in them, where there are any."""
    magic, attributes = table[:, H.MAGIC], table[:, H.ATTRIBUTES]
    packed = (attributes & layout.ATTRIBUTE_CODEC) != Codec.NONE
    kinds: I64 = (np.where(magic == 2, Conversion.RECORDS, Conversion.MESSAGES) + packed).astype(np.int64)
    kinds[magic <= request.magic] = Conversion.READABLE
    is_v2 = magic == 2
    kinds[is_v2 & ((attributes & layout.ATTRIBUTE_CONTROL) != 0)] = Conversion.HIDDEN
    if (is_v2 & ((attributes & layout.ATTRIBUTE_TRANSACTIONAL) != 0)).any():
        kinds[AbortedBatches(aborted()).excludes(table)] = Conversion.HIDDEN
    return kinds


READ_BYTES = 256 << 10
OVERHEAD = layout.LEGACY_MIN_SIZE[1]  # bytes that a wrapper has more than its value
_LZ4_CHECKSUM_AT = 6  # in a frame that tells neither its size nor a dictionary: `compress` makes no other
WRAPPED_BYTES = 1 << 20  # bytes of messages in a wrapper: what clients of that time asked for at most by default
MOST_WRAPPED = WRAPPED_BYTES // layout.LEGACY_MIN_SIZE[0]
AT_ONCE_S = 0.005
MOST_BATCH = MAX_DECOMPRESSED  # bytes of a batch that is taken into memory


@dataclass(slots=True)
class Converted:
    """Converted window. pieces: bytes-like, `size` bytes in all. next_offset: all below was looked at. is_full:
    there is no more room."""

    request: ConversionRequest
    next_offset: int
    pieces: list[Any] = field(default_factory=list)
    size: int = 0
    is_full: bool = False

    @property
    def left(self) -> int:
        return self.request.room - self.size

    def add(self, piece: Any) -> None:
        self.pieces.append(piece)
        self.size += len(piece)

    def add_too_large(self, piece: Any) -> None:
        """A message, or wrapper of one, for which there is no room."""
        self.is_full = True
        if not self.pieces and self.request.whole:
            self.add(piece)
        elif not self.pieces and self.request.cut:
            self.add(piece[: self.request.room])


def convert(log: Log, request: ConversionRequest, remote: Any = None) -> Converted:
    """The window at `request.offset`, in the local log or `remote`, a RemoteRead. Raises BrokerError where nothing
    comes before what is wrong: as Log.find_range, corrupt_message, message_too_large, unsupported_compression_type."""
    end_s = perf_counter() + AT_ONCE_S
    out = Converted(request, request.offset)
    found: Any = remote or log.find_range(request.offset, READ_BYTES, up_to=request.until, at_least_one=True)
    held = remote.records if remote else next(iter(found.slices), None)
    if held is None:
        out.next_offset = request.until
        return out
    if len(held) > MOST_BATCH:
        raise BrokerError(
            ErrorCode.message_too_large, f"a batch of {len(held)} bytes, {MOST_BATCH} are converted at most"
        )
    data = memoryview(held if remote else log.read_slice(held))
    aborted = partial(log.aborted_transactions, request.offset, found.next_offset)
    try:
        load_kernel()  # in its way: nobody waits for LLVM
        table, wrong = sweep_batches(data)
        kinds = kinds_of(table, request, (lambda: remote.aborted or ()) if remote else aborted)
        # neighbours of one kind together, unless each makes a wrapper of its own
        for first, last in pairwise(np.flatnonzero(np.diff(kinds, prepend=-1, append=-1)).tolist()):
            kind = Conversion(int(kinds[first]))
            is_packed = kind in (Conversion.PACKED_RECORDS, Conversion.PACKED_MESSAGES)
            for begin, end in pairwise(range(first, last + 1)) if is_packed else ((first, last),):
                match kind:
                    case Conversion.READABLE:
                        _readable(out, data, table[begin:end])
                    case Conversion.RECORDS | Conversion.MESSAGES:
                        _plain(out, data, table[begin:end], kind)
                    case Conversion.PACKED_RECORDS | Conversion.PACKED_MESSAGES:
                        _packed(out, data, table[begin:end], kind)
                if out.is_full:
                    return out
                out.next_offset = max(int(table[end - 1, H.LAST_OFFSET]) + 1, out.next_offset)
                if perf_counter() >= end_s:
                    return out
        if wrong is None and (rest := len(data) - int(table[:, H.SIZE].sum())):
            wrong = CorruptBatch(f"{rest} bytes come after a batch and are none")
        if wrong is not None:
            raise wrong
    except KafkalogError as error:
        if not out.pieces:
            if isinstance(error, BrokerError):
                raise
            raise BrokerError(ErrorCode.corrupt_message, error.what) from error
        out.is_full = True  # it is reported when it is asked for
    else:
        out.next_offset = found.next_offset
    return out


def _readable(out: Converted, data: memoryview, rows: I64) -> None:
    start = int(rows[0, H.POSITION])
    ends = np.cumsum(rows[:, H.SIZE])
    fitting = int(np.searchsorted(ends, out.left, side="right"))
    if fitting:
        out.add(data[start : start + int(ends[fitting - 1])])
    if fitting < len(rows):
        position, size = int(rows[fitting, H.POSITION]), int(rows[fitting, H.SIZE])
        out.add_too_large(data[position : position + size])


def _plain(out: Converted, data: memoryview, rows: I64, kind: Conversion) -> None:
    """Batches and messages that are not compressed, all in one call."""
    units, most = _units(rows), len(rows)
    if kind == Conversion.MESSAGES:
        units[:, Unit.START], units[:, Unit.BASE_OFFSET] = rows[:, H.POSITION], 0
    else:
        most = min(int(np.maximum(rows[:, H.COUNT], 0).sum()), int(rows[:, H.SIZE].sum()) // layout.MIN_RECORD_SIZE)
    magic, payload = out.request.magic, as_array(data)
    messages, malformed = _find(kind, payload, units, out.request.offset, most)
    fitting = int(np.searchsorted(_ends(messages, magic), out.left, side="right"))
    if fitting:
        out.add(_write(payload, messages[:fitting], magic))
    if fitting < len(messages):
        out.add_too_large(_write(payload, messages[fitting : fitting + 1], magic))
    elif malformed:
        raise CorruptBatch("a record is malformed")


def _packed(out: Converted, data: memoryview, rows: I64, kind: Conversion) -> None:
    """A compressed batch or wrapper becomes wrappers of what there is room for."""
    from kafkalog_spark.log.decode.decompressed_batches import open_wrapper  # with Numba: not when a broker starts

    row = rows[0]
    position, size = int(row[H.POSITION]), int(row[H.SIZE])
    codec, batch = int(row[H.ATTRIBUTES]) & layout.ATTRIBUTE_CODEC, data[position : position + size]
    if codec == Codec.ZSTD:
        raise BrokerError(
            ErrorCode.unsupported_compression_type, "zstd batches are not converted for clients that do not know zstd"
        )
    units = _units(rows)
    if kind == Conversion.PACKED_MESSAGES:
        scratch = Scratch(READ_BYTES, most=MAX_DECOMPRESSED)
        opened = open_wrapper(batch, 1, int(row[H.ATTRIBUTES]), int(row[H.LAST_OFFSET]), scratch, MAX_DECOMPRESSED)
        payload = scratch.read_only()
        units[0, Unit.END], units[0, Unit.BASE_OFFSET] = opened.end, opened.add
    else:
        records = unpacked(codec, batch[layout.RECORDS_AT :])
        payload = as_array(records)
        units[0, Unit.END] = len(records)
    units[0, Unit.START] = 0
    _pack_again(out, kind, codec, payload, units)


def _pack_again(out: Converted, kind: Conversion, codec: int, payload: U8, units: I64) -> None:
    magic, unit = out.request.magic, units[0]
    append_time = bool(unit[Unit.APPEND_TIME])
    while True:
        messages, malformed = _find(kind, payload, units, out.request.offset, MOST_WRAPPED)
        ends = _ends(messages, magic)
        # of a wrapper that fits even when its messages do not compress
        chunk = max(min(out.left - OVERHEAD - out.left // 64, WRAPPED_BYTES), 1)
        count = int(np.searchsorted(ends, chunk, side="right"))
        if malformed and count == len(messages):
            raise CorruptBatch("a record is malformed")
        if not len(messages):
            return
        count = max(count, 1)  # a message that is larger
        while True:
            some = messages[:count]
            newest = some[:, MessageColumn.TIMESTAMP].max(initial=layout.NO_TIMESTAMP)
            time = unit[Unit.TIMESTAMP] if append_time else newest
            plain = _write(payload, some, magic, relative=magic == 1)
            value = compress(Codec(codec), plain)
            if codec == Codec.LZ4 and magic == 0:  # clients of that time ask for a checksum over more (KAFKA-3160)
                old = checksum(value[:_LZ4_CHECKSUM_AT])
                value = value[:_LZ4_CHECKSUM_AT] + bytes((old,)) + value[_LZ4_CHECKSUM_AT + 1 :]
            attributes = codec | (layout.ATTRIBUTE_LOG_APPEND_TIME if append_time and magic == 1 else 0)
            made = wrapper_of(magic, attributes, value, int(some[-1, MessageColumn.OFFSET]), int(time))
            if len(made) <= out.left or count == 1:
                break
            count = max(int(np.searchsorted(ends, ends[count - 1] // 2, side="right")), 1)
        if len(made) > out.left:
            out.add_too_large(made)
            return
        out.add(made)
        unit[Unit.START] = some[-1, MessageColumn.END]
        unit[Unit.COUNT] -= some[-1, MessageColumn.NUMBER] + 1
        if unit[Unit.START] >= unit[Unit.END]:
            return
        if out.left <= OVERHEAD:
            out.is_full = True
            return


def _units(rows: I64) -> I64:
    """int64[n, len(Unit)] of batches v2."""
    units = np.empty((len(rows), len(Unit)), np.int64)
    units[:, Unit.START] = rows[:, H.POSITION] + layout.RECORDS_AT
    units[:, Unit.END] = rows[:, H.POSITION] + rows[:, H.SIZE]
    units[:, Unit.BASE_OFFSET], units[:, Unit.COUNT] = rows[:, H.BASE_OFFSET], rows[:, H.COUNT]
    units[:, Unit.BASE_TIMESTAMP], units[:, Unit.TIMESTAMP] = rows[:, H.BASE_TIMESTAMP], rows[:, H.MAX_TIMESTAMP]
    units[:, Unit.APPEND_TIME] = (rows[:, H.ATTRIBUTES] & layout.ATTRIBUTE_LOG_APPEND_TIME) != 0
    return units


def _find(kind: Conversion, payload: U8, units: I64, offset: int, most: int) -> tuple[I64, bool]:
    """int64[n, len(MessageColumn)], at most so many; whether something malformed comes after them."""
    from kafkalog_broker.storage.append.message_set_kernel import find_messages, find_records
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    messages = np.empty((most, len(MessageColumn)), np.int64)
    if kind in (Conversion.RECORDS, Conversion.PACKED_RECORDS):
        rows, malformed = find_records(payload, units, offset, messages)
        return messages[:rows], bool(malformed)
    rows, fault = find_messages(  # messages v1, or the one wrapper's; their CRCs were checked
        payload, units[0, Unit.START], units[-1, Unit.END], 1, units[0, Unit.BASE_OFFSET], offset, MOST_BATCH, 1,
        CRC32_TABLE[:0], messages,
    )  # fmt: skip
    return messages[:rows], fault not in (SetFault.NONE, SetFault.TOO_MANY)


def _ends(messages: I64, magic: int) -> I64:
    """int64[n]: how many bytes the messages up to each take."""
    sizes = np.maximum(messages[:, (MessageColumn.KEY_SIZE, MessageColumn.VALUE_SIZE)], 0).sum(axis=1)
    ends: I64 = np.cumsum(sizes + layout.LEGACY_MIN_SIZE[magic])
    return ends


def _write(payload: U8, messages: I64, magic: int, *, relative: bool = False) -> memoryview:
    """relative: offsets count from the first message, as in a wrapper v1."""
    from kafkalog_broker.storage.append.message_set_kernel import write_messages
    from kafkalog_spark.kernels.primitives import CRC32_TABLE

    out = np.empty(int(_ends(messages, magic)[-1]), np.uint8)
    base_offset = int(messages[0, MessageColumn.OFFSET]) if relative else 0
    write_messages(payload, messages, magic, base_offset, CRC32_TABLE, out)
    return out.data


# One pass over the partitions of a Fetch of versions 0 to 3, as `fetch_read` with three differences. What is converted
# is in memory until the client has taken it: CONVERTED_BYTES in all. Batches that a client of that time does not see
# are passed over until there is something it does see, or until the end. Up to version 2 the limits are hard: a message
# that is larger than what was asked for comes cut off, and the client asks for more.

CONVERTED_BYTES = 4 << 20
"""Bytes of a response. Kafka converts while it sends; here clients of that time get less at once, and ask again."""
LAST_HARD_VERSION = 2
LAST_VERSION_OF_V0 = 1

Run = Callable[..., Awaitable[Any]]  # as Broker.run_computing


async def read_converted(
    partitions: Sequence[FetchPartition],
    find_log: Callable[[FetchPartition], Log],
    run: Run,
    *,
    version: int,
    max_bytes: int,
    begin: int,
    turn: TimeSlice,
    is_over: Callable[[], bool],
    read_remotely: Run | None = None,
) -> Fetched:
    """Read each partition from its fetch offset to the high watermark. begin: a number that changes from one request to
    the next: these clients always name their partitions in the same order, and the one that is read first must not be
    the same each time. is_over: nobody waits for the answer any more. read_remotely: RemoteLogManager.read."""
    reading = _Reading(run, version, min(max_bytes, CONVERTED_BYTES), is_over, read_remotely)
    fetched: dict[int, FetchedPartition] = {}
    errors = False
    count = len(partitions)
    for number in range(count):
        index = (begin + number) % count
        request = partitions[index]
        if turn.over:
            await turn.next()
        try:
            fetched[index] = await reading.partition(request, find_log(request))
        except BrokerError as error:
            errors = True
            code = error.code
            if code is ErrorCode.kafka_storage_error:  # which these clients do not know: they look for the leader
                code = ErrorCode.not_leader_or_follower
            fetched[index] = FetchedPartition(request, PartitionFetchResponse(request.partition, code))
    in_order = [fetched[index] for index in range(count)]
    # What keeps back more than there was room for is not waited for.
    size = reading.size if reading.left > 0 else max(reading.size, max_bytes)
    return Fetched(in_order, size, errors)


@dataclass(slots=True)
class _Reading:
    _run: Run
    _version: int
    left: int
    _is_over: Callable[[], bool]
    _read_remotely: Run | None
    size: int = 0

    async def partition(self, request: FetchPartition, log: Log) -> FetchedPartition:
        """Raises BrokerError where there is nothing to give in front of what is wrong."""
        log.check_fetch_offset(request.fetch_offset)
        until = log.high_watermark
        answer = PartitionFetchResponse(request.partition, 0, until, log.last_stable_offset, log.log_start_offset)
        result = FetchedPartition(request, answer, 0, log, log.appended_bytes)
        pieces: list[Any] = []
        offset, magic = request.fetch_offset, 0 if self._version <= LAST_VERSION_OF_V0 else 1
        is_full, is_hard = False, self._version <= LAST_HARD_VERSION
        while offset < until and not is_full and not self._is_over():
            room = min(request.max_bytes - result.size, self.left)
            whole = not is_hard and not self.size
            if room <= 0 and not whole:
                is_full = True
                break
            cut = is_hard and not pieces and (room == request.max_bytes or not self.size)
            remote = None
            try:
                if offset < log.local_log_start_offset and self._read_remotely is not None:
                    remote = await self._read_remotely(log, offset, READ_BYTES, at_least_one=True, committed=True)
                    if remote is None:  # it comes later
                        break
                    if not remote.records:
                        offset = remote.next_offset
                        continue
                found: Converted = await self._run(
                    convert, log, ConversionRequest(offset, until, magic, max(room, 0), whole, cut), remote
                )
            except BrokerError:
                if not pieces:
                    raise
                is_full = True
                break
            pieces += found.pieces
            result.size += found.size
            self.size += found.size
            self.left -= found.size
            offset, is_full = found.next_offset, found.is_full
        answer.records = pieces
        result.is_full = offset < until
        return result
