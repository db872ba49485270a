"""Double.toString and Float.toString of columns of numbers, compiled: the shortest digits in Java's forms.

Those of numbers with few digits are found here, the others by a library, which writes them in a form of its own.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from kafkalog_spark.log.kernels.primitives import copy_bytes, kernel_for
from kafkalog_spark.typed.civil_text_kernel import digits_of, put_digits, put_quote
from kafkalog_spark.typed.pieces.pieces_kernel import BYTES, BYTES_OUT, INT64, INT64_OUT

MAX_NUMBER = 26  # -1.2345678901234567E-308 has 24, -0.0012345678901234567 22, "-Infinity" 11
NO_DIGITS = np.int32(-(1 << 30))
"""In place of an exponent: the number's digits are not known yet."""
_SHORT_DIGITS = 10.0**15
"""Decimals of 15 digits at most are those of one double each, so that the one that is found is the shortest."""
_SHORT_DIGITS_OF_FLOAT = 10.0**6
_MOST_PLACES = 8
"""A number with more decimal places is left to the library: each place costs a division."""
_ZERO, _MINUS, _PLUS, _POINT, _E, _SMALL_E = (np.uint8(ord(c)) for c in "0-+.Ee")
_WORDS = np.frombuffer(b"NaNInfinity", np.uint8)
_NAN_SIZE, _INFINITY_SIZE = 3, 8
_DIGITS = types.Array(types.uint64, 1, "C")
_EXPONENTS = types.Array(types.int32, 1, "C")
_DOUBLES = types.Array(types.float64, 1, "C", readonly=True)


@kernel_for(types.int64(_DOUBLES, types.boolean, _DIGITS, _EXPONENTS))
def short_decimals(values, single, digits, exponents):  # type: ignore[no-untyped-def]
    """The decimals that few digits write: abs(value) is digits * 10**exponent, and nothing shorter is that number.
    single: they are floats. Gives how many are left, whose exponent is NO_DIGITS; NaN and infinities have any."""
    left = 0
    most = _SHORT_DIGITS_OF_FLOAT if single else _SHORT_DIGITS
    for i in range(values.size):
        value = abs(values[i])
        exponents[i] = 0
        digits[i] = 0
        if value == 0 or value != value or value == np.inf:
            continue
        power = 1.0
        found = False
        for place in range(_MOST_PLACES + 1):
            number = np.rint(value * power)
            if number >= most:
                break
            back = number / power
            if (np.float32(back) == np.float32(value)) if single else (back == value):
                digits[i] = np.uint64(number)
                exponents[i] = -place
                found = True
                break
            power *= 10.0
        if not found:
            exponents[i] = NO_DIGITS
            left += 1
    return left


@njit
def _signed(data, at, end):  # type: ignore[no-untyped-def]
    number, negative = np.int64(0), False
    for k in range(at, end):
        if data[k] == _MINUS:
            negative = True
        elif data[k] != _PLUS:
            number = number * 10 + np.int64(data[k] - _ZERO)
    return -number if negative else number


@kernel_for(types.void(BYTES, INT64, INT64, _DIGITS, _EXPONENTS))
def decimals_of_texts(data, offsets, rows, digits, exponents):  # type: ignore[no-untyped-def]
    """The same from texts such as -1.25e-7 of the numbers of `rows`, int64[m]; they are finite."""
    for i in range(rows.size):
        number, exponent, seen_point = np.uint64(0), 0, False
        at = offsets[i]
        while at < offsets[i + 1]:
            byte = data[at]
            at += 1
            if byte == _POINT:
                seen_point = True
            elif byte in (_E, _SMALL_E):
                exponent += _signed(data, at, offsets[i + 1])
                break
            elif byte != _MINUS:
                number = number * np.uint64(10) + np.uint64(byte - _ZERO)
                exponent -= 1 if seen_point else 0
        digits[rows[i]] = number
        exponents[rows[i]] = exponent


@njit
def _put_pointed(out, to, number, count, point):  # type: ignore[no-untyped-def]
    """`count` digits with a point after the first `point` of them, of which there is one at least, and one after it."""
    if count <= point:
        to = put_digits(out, to, number, count)
        for _ in range(point - count):
            out[to] = _ZERO
            to += 1
        out[to] = _POINT
        out[to + 1] = _ZERO
        return to + 2
    power = 1
    for _ in range(count - point):
        power *= 10
    to = put_digits(out, to, number // power, point)
    out[to] = _POINT
    return put_digits(out, to + 1, number % power, count - point)


@njit
def _put_word(out, to, value, quoted):  # type: ignore[no-untyped-def]
    """NaN, Infinity, -Infinity."""
    to = put_quote(out, to, quoted)
    first, size = 0, _NAN_SIZE
    if value == value:
        first, size = _NAN_SIZE, _INFINITY_SIZE
        if value < 0:
            out[to] = _MINUS
            to += 1
    copy_bytes(out, to, _WORDS, first, size)
    return put_quote(out, to + size, quoted)


@njit
def _put_decimal(out, to, value, number, exponent, quoted):  # type: ignore[no-untyped-def]
    if value != value or value == np.inf or value == -np.inf:
        return _put_word(out, to, value, quoted)
    if value < 0 or (value == 0 and np.signbit(value)):
        out[to] = _MINUS
        to += 1
    if number == 0:
        exponent = 0
    while number != 0 and number % np.uint64(10) == 0:
        number //= np.uint64(10)
        exponent += 1
    count = digits_of(np.int64(number))
    point = count + exponent  # how many digits lie before the point
    if number != 0 and not -3 < point <= 7:
        to = _put_pointed(out, to, np.int64(number), count, 1)
        out[to] = _E
        to += 1
        if point < 1:
            out[to] = _MINUS
            to += 1
        scientific = abs(point - 1)
        return put_digits(out, to, scientific, digits_of(scientific))
    if point <= 0:
        out[to] = _ZERO
        out[to + 1] = _POINT
        to += 2
        for _ in range(-point):
            out[to] = _ZERO
            to += 1
        return put_digits(out, to, np.int64(number), count)
    return _put_pointed(out, to, np.int64(number), count, point)


@kernel_for(types.int64(_DOUBLES, _DIGITS, _EXPONENTS, types.boolean, BYTES_OUT, INT64_OUT))
def write_decimals(values, digits, exponents, quoted, out, offsets):  # type: ignore[no-untyped-def]
    """Double.toString of numbers whose digits are known; quoted: words such as NaN are, as JSON has them."""
    to = 0
    for i in range(values.size):
        offsets[i] = to
        to = _put_decimal(out, to, values[i], digits[i], np.int64(exponents[i]), quoted)
    offsets[values.size] = to
    return to
