"""Random rows for encoders: every supported type, nested, with its edge cases."""

from __future__ import annotations

import decimal
import struct
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

PLAIN = (
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC"),
)  # fmt: skip
_CHARACTERS = ["x"] * 12 + [
    '"',
    "\\",
    "\n",
    "\b",
    "\x01",
    "\x1f",
    "\x7f",
    "é",
    "日",
    "𝄞",
    "/",
    " ",
    "\u2028",
    ",",
    "#",
    ";",
    "'",
]
_DAY_US = 86_400_000_000


class Limits(NamedTuple):
    """Of random values: dates and timestamps between two days since 1970, and the most entries of a map."""

    first_day: int = -719_162
    last_day: int = 2_932_896
    entries: int = 3


YEARS_1_TO_9999 = Limits()


def random_rows(rng: Random, count: int, limits: Limits = YEARS_1_TO_9999) -> pa.StructArray:
    """Rows of random types, a few of which are null."""
    fields = [(f"c{i}" if rng.random() < 0.9 else f'é"{i}', random_type(rng, 3)) for i in range(rng.randint(1, 5))]
    type_ = pa.struct(fields)
    return pa.array([None if rng.random() < 0.05 else _struct(rng, type_, limits) for _ in range(count)], type_)


def random_type(rng: Random, depth: int) -> pa.DataType:
    """A type with structs, lists and maps in each other, so many at most."""
    kind = rng.choice(["plain", "plain", "decimal", *(("struct", "list", "map") if depth else ())])
    if kind == "struct":
        return pa.struct([(f"f{i}", random_type(rng, depth - 1)) for i in range(rng.randint(1, 3))])
    if kind == "list":
        return pa.list_(random_type(rng, depth - 1))
    if kind == "map":
        return pa.map_(pa.string(), random_type(rng, depth - 1))
    if kind == "decimal":
        precision = rng.randint(1, 38)
        return pa.decimal128(precision, rng.randint(0, precision))
    return rng.choice(PLAIN)


def _struct(rng: Random, type_: pa.DataType, limits: Limits) -> dict[str, Any]:
    return {field.name: _value(rng, field.type, limits) for field in type_}


def _value(rng: Random, type_: pa.DataType, limits: Limits) -> Any:
    if rng.random() < 0.15:
        return None
    if pa.types.is_struct(type_):
        return _struct(rng, type_, limits)
    if pa.types.is_map(type_):
        keys = {random_text(rng) for _ in range(rng.randint(0, limits.entries))}
        return [(key, _value(rng, type_.item_type, limits)) for key in sorted(keys)]
    if pa.types.is_list(type_):
        return [_value(rng, type_.value_type, limits) for _ in range(rng.randint(0, 4))]
    return _leaf(rng, type_, limits)


def _leaf(rng: Random, type_: pa.DataType, limits: Limits) -> Any:
    if pa.types.is_boolean(type_):
        return rng.random() < 0.5
    if pa.types.is_integer(type_):
        most = 1 << (type_.bit_width - 1)
        return rng.choice([0, 1, -1, 9, 10, most - 1, -most, rng.randrange(-most, most)])
    if pa.types.is_floating(type_):
        return random_float(rng, single=type_ == pa.float32())
    if pa.types.is_string(type_):
        return random_text(rng)
    if pa.types.is_binary(type_):
        return rng.randbytes(rng.randint(0, 9))
    if pa.types.is_date32(type_):
        return rng.choice([0, -1, rng.randrange(limits.first_day, limits.last_day)])
    if pa.types.is_timestamp(type_):
        return rng.choice(
            [0, -1, 999, 1700000000123456, rng.randrange(limits.first_day * _DAY_US, limits.last_day * _DAY_US)]
        )
    digits = tuple(int(one) for one in str(rng.randrange(10 ** rng.randint(0, type_.precision))))
    return decimal.Decimal((rng.randrange(2), digits, -type_.scale))


def random_float(rng: Random, single: bool) -> float:
    """Round ones, small and large ones, those between two, and any bits."""
    number = rng.choice(
        [
            0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1e7, 0.001, rng.random(),
            rng.randint(-(10**6), 10**9), round(rng.random() * 1000, 2), 10.0 ** rng.randint(-30, 30),
            5e-324 * rng.randint(1, 300),
            rng.random() * 10.0 ** rng.randint(-20, 20),
            round(rng.random(), rng.randint(1, 12)) * 10.0 ** rng.randint(-8, 8),
            struct.unpack("<d", rng.randbytes(8))[0],
        ]
    )  # fmt: skip
    if not single:
        return float(number)
    with np.errstate(all="ignore"):
        return float(np.float32(rng.choice([number, struct.unpack("<f", rng.randbytes(4))[0]])))


def random_text(rng: Random) -> str:
    """Up to twelve characters, some of which need escapes."""
    return "".join(rng.choice(_CHARACTERS) for _ in range(rng.randint(0, 12)))
