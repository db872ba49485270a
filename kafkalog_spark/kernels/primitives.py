"""Decorators of kernels, and functions that kernels call: integers, varints, copies, CRCs and UTF-8 in uint8 arrays.

The functions do no bounds checks unless their docstring says otherwise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core import cgutils
from numba.core.typeinfer import register_dispatcher
from numba.extending import intrinsic

from kafkalog_spark.kernels.compile_cache import KernelCache
from kafkalog_spark.kernels.helper_compiler import HelperCompiler

_KERNEL_OPTIONS = {"nogil": True, "boundscheck": False, "_nrt": False}
"""Options of every kernel. Without Numba's runtime (`_nrt`) a kernel cannot allocate, and arrays are not
reference-counted, which would cost more than decoding a small record."""
_HELPER_OPTIONS = {
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": HelperCompiler,
}
"""Options of functions that only kernels call. They have no wrapper, so Python cannot call them."""
helper: Any = njit(**_HELPER_OPTIONS)
"""Decorator of a function that kernels call. LLVM decides whether to inline it."""
inlined: Any = njit(forceinline=True, **_HELPER_OPTIONS)
"""Decorator of a function that LLVM inlines into each kernel that calls it. It is typed once, whereas Numba's own
inline="always" types each copy again."""


def kernel(function: Any) -> Any:
    """Compile a function at its first call, for the types of the arguments, or load it from the cache."""
    compiled = njit(**_KERNEL_OPTIONS)(function)
    if not config.DISABLE_JIT:
        compiled._cache = KernelCache(function)
    return compiled


def kernel_for(signature: Any) -> Callable[[Any], Any]:
    """Return a decorator as `kernel`, but compile or load the function at import, for the types of `signature` only."""

    def compile_for_signature(function: Any) -> Any:
        compiled = kernel(function)
        if config.DISABLE_JIT:  # the kernel stays a Python function
            return function
        with register_dispatcher(compiled):
            compiled.compile(signature)
        compiled.disable_compile()
        return compiled

    return compile_for_signature


def byte_pointer(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
    """Return the LLVM pointer to byte `at` of a uint8 array; for use in intrinsics."""
    data = cgutils.create_struct_proxy(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [at])


@intrinsic
def copy_bytes(typingctx, target, target_at, source, source_at, count):  # type: ignore[no-untyped-def]
    """Copy `count` bytes from source[source_at:] to target[target_at:] by memcpy; the ranges must not overlap.

    For values of 100 bytes, a loop over array elements is several times slower.
    """
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
        to = byte_pointer(context, builder, sig.args[0], args[0], args[1])
        cgutils.raw_memcpy(builder, to, byte_pointer(context, builder, sig.args[2], args[2], args[3]), args[4], 1)
        return context.get_dummy_value()

    return signature, generate


def _load(numba_type: Any, llvm_type: Any) -> Any:
    """Return an intrinsic load(buffer, at) that reads a value from a uint8 array.

    The byte order is the machine's, except that uint64 is always little-endian. Unlike indexing, it does not check
    whether `at` is negative.
    """

    @intrinsic
    def load(typingctx, buffer, at):  # type: ignore[no-untyped-def]
        signature = numba_type(buffer, types.int64)

        def generate(context, builder, sig, args):  # type: ignore[no-untyped-def]
            pointer = byte_pointer(context, builder, sig.args[0], *args)
            value = builder.load(builder.bitcast(pointer, llvm_type.as_pointer()), align=1)
            return builder.bswap(value) if sys.byteorder == "big" and numba_type is types.uint64 else value

        return signature, generate

    return load


load_u8, load_u64 = _load(types.uint8, ir.IntType(8)), _load(types.uint64, ir.IntType(64))
load_i32, load_i64 = _load(types.int32, ir.IntType(32)), _load(types.int64, ir.IntType(64))
load_f32, load_f64 = _load(types.float32, ir.FloatType()), _load(types.float64, ir.DoubleType())

HIGH_BITS = np.uint64(0x8080808080808080)  # eight bytes are ASCII if none of these bits is set


@helper
def is_utf8(data, at, end):  # type: ignore[no-untyped-def]
    """Return True if data[at:end] is valid UTF-8, without surrogates and overlong forms."""
    while at < end:
        if at + 8 <= end and load_u64(data, at) & HIGH_BITS == 0:
            at += 8
            continue
        byte = load_u8(data, at)
        if byte < 0x80:
            at += 1
            continue
        if 0xC2 <= byte <= 0xDF:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= byte <= 0xEF:
            more, low, high = 2, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte <= 0xF4:
            more, low, high = 3, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
        else:
            return False
        if at + more >= end or load_u8(data, at + 1) < low or load_u8(data, at + 1) > high:
            return False
        for i in range(2, more + 1):
            if load_u8(data, at + i) & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@helper
def read_i64(buffer, at):  # type: ignore[no-untyped-def]
    """Return the big-endian int64 at buffer[at:at + 8]."""
    value = np.uint64(0)
    for i in range(8):
        value = (value << np.uint64(8)) | np.uint64(buffer[at + i])
    return np.int64(value)


@helper
def read_u32(buffer, at):  # type: ignore[no-untyped-def]
    """Return the big-endian uint32 at buffer[at:at + 4], as int64."""
    return (
        (np.int64(buffer[at]) << 24)
        | (np.int64(buffer[at + 1]) << 16)
        | (np.int64(buffer[at + 2]) << 8)
        | np.int64(buffer[at + 3])
    )


@helper
def read_i32(buffer, at):  # type: ignore[no-untyped-def]
    """Return the big-endian int32 at buffer[at:at + 4], as int64."""
    return np.int64(np.int32(np.uint32(read_u32(buffer, at))))


@helper
def read_i16(buffer, at):  # type: ignore[no-untyped-def]
    """Return the big-endian int16 at buffer[at:at + 2], as int64."""
    return np.int64(np.int16((np.int64(buffer[at]) << 8) | np.int64(buffer[at + 1])))


@helper
def write_i64(buffer, at, value):  # type: ignore[no-untyped-def]
    """Store int64 `value` big-endian at buffer[at:at + 8]."""
    for i in range(8):
        buffer[at + i] = np.uint8((value >> (56 - 8 * i)) & 0xFF)


@helper
def write_i32(buffer, at, value):  # type: ignore[no-untyped-def]
    """Store the low 32 bits of `value` big-endian at buffer[at:at + 4]."""
    for i in range(4):
        buffer[at + i] = np.uint8((value >> (24 - 8 * i)) & 0xFF)


def crc_table(polynomial: int) -> np.ndarray:
    """Return the table of the slicing-by-8 algorithm for the reflected `polynomial`, uint32[8, 256]."""
    table = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (polynomial if crc & 1 else 0)
        table[0, byte] = crc
    for row in range(1, 8):
        previous = table[row - 1]
        table[row] = (previous >> 8) ^ table[0][previous & 0xFF]
    return table


CRC32C_TABLE = crc_table(0x82F63B78)  # Castagnoli: record batches v2
CRC32_TABLE = crc_table(0xEDB88320)  # IEEE 802.3: messages v0, v1

INVALID_POSITION = np.int64(2**62)
"""Returned as the position after a varint that is too long or incomplete. It is greater than every valid position, so
that the next bounds check fails."""


@njit(inline="always")
def _signed(raw):  # type: ignore[no-untyped-def]
    """Decode a zigzag uint64 to int64."""
    return np.int64((raw >> np.uint64(1)) ^ (~(raw & np.uint64(1)) + np.uint64(1)))


def _varint(bits: int, most_bytes: int) -> Any:
    """Return a function read(buffer, at, end) that decodes the zigzag varint in buffer[at:end].

    It returns (value, position after the varint), or (0, INVALID_POSITION) if the varint does not end before `end`, or
    has more than `most_bytes` bytes. Bits above the lowest `bits` are dropped.
    """
    # `most_bytes` is a constant of the function, not an argument, because small records decode faster that way.
    mask, last_shift = np.uint64(2**bits - 1), np.uint64(7 * (most_bytes - 1))

    @helper
    def read(buffer, at, end):  # type: ignore[no-untyped-def]
        if at >= end:
            return np.int64(0), INVALID_POSITION
        byte = np.uint64(buffer[at])
        at += 1
        value = byte & np.uint64(0x7F)
        shift = np.uint64(7)
        while byte & np.uint64(0x80):
            if at >= end or shift > last_shift:
                return np.int64(0), INVALID_POSITION
            byte = np.uint64(buffer[at])
            at += 1
            value |= (byte & np.uint64(0x7F)) << shift
            shift += np.uint64(7)
        return _signed(value & mask), at

    return read


varint = _varint(64, 10)
"""Java's readVarlong. Only the timestamp delta of a record is one; all other varints of a record are varint32."""
varint32 = _varint(32, 5)  # Java's readVarint


@njit(inline="always")
def short_varint(word):  # type: ignore[no-untyped-def]
    """Decode the zigzag varint in the low bytes of a uint64.

    Returns:
        (value, its number of bytes), or (0, 0) for a varint of more than three bytes.
    """
    if word & np.uint64(0x80) == 0:
        raw, size = word & np.uint64(0x7F), 1
    elif word & np.uint64(0x8000) == 0:
        raw, size = (word & np.uint64(0x7F)) | ((word >> np.uint64(1)) & np.uint64(0x3F80)), 2
    elif word & np.uint64(0x800000) == 0:
        raw = (
            (word & np.uint64(0x7F)) | ((word >> np.uint64(1)) & np.uint64(0x3F80))
            | ((word >> np.uint64(2)) & np.uint64(0x1FC000))
        )  # fmt: skip
        size = 3
    else:
        return np.int64(0), 0
    return _signed(raw), size


@kernel
def crc_of(buffer, start, end, table):  # type: ignore[no-untyped-def]
    """Return the CRC of buffer[start:end] as int64. table: made by crc_table.

    It is slower than a CRC in C (crc32c, zlib), but saves the call from Python: use it for small batches only.
    """
    crc = np.uint32(0xFFFFFFFF)
    at = start
    while at + 8 <= end:
        low = crc ^ (
            np.uint32(buffer[at])
            | (np.uint32(buffer[at + 1]) << np.uint32(8))
            | (np.uint32(buffer[at + 2]) << np.uint32(16))
            | (np.uint32(buffer[at + 3]) << np.uint32(24))
        )
        crc = (
            table[7, low & np.uint32(0xFF)]
            ^ table[6, (low >> np.uint32(8)) & np.uint32(0xFF)]
            ^ table[5, (low >> np.uint32(16)) & np.uint32(0xFF)]
            ^ table[4, low >> np.uint32(24)]
            ^ table[3, buffer[at + 4]]
            ^ table[2, buffer[at + 5]]
            ^ table[1, buffer[at + 6]]
            ^ table[0, buffer[at + 7]]
        )
        at += 8
    while at < end:
        crc = (crc >> np.uint32(8)) ^ table[0, (crc ^ np.uint32(buffer[at])) & np.uint32(0xFF)]
        at += 1
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))
