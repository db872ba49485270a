"""Random JSON values, most of them nearly right: what from_json does with them is what ours has to do."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.spark.helpers.random_texts import any_json, any_moment, any_text

DDL = (
    "flag boolean, tiny tinyint, small smallint, whole int, id bigint, ratio float, amount double, user string, "
    "blob binary, day date, at timestamp, at_local timestamp_ntz, price decimal(10,2), wide decimal(38,10), "
    "nested struct<x: bigint, y: string, z: struct<deep: double, day: date>>, tags array<string>, numbers array<int>, "
    "pairs map<string, double>, items array<struct<sku: string, count: int, sizes: array<smallint>>>, "
    "by_name map<string, struct<a: int, b: array<string>>>, rows array<array<int>>, texts map<string, string>"
)
"""Every type that JSON is decoded to, nested in each other."""

WORDS = ["", "a", "user-1", "é", "日本", "😀", "x" * 40, " padded ", "1", "null", "true", "it's", "/", "a,b", "{}"]
_ESCAPED = [
    '"a\\nb"',
    '"\\u00e9"',
    '"\\ud83d\\ude00"',
    '"\\ud83d"',
    '"\\udc00x"',
    '"\\/"',
    '"\\\\"',
    '"\\""',
    '"\\t\\b\\f\\r"',
    '"\\u0000"',
    '"\\q"',
    '"\\u12g4"',
    '"\\u12',
    '"a\tb"',
    '"\x01"',
    "'single'",
    "'it\\'s'",
    '"it\\\'s"',
    '"\\x, "a":1}"',
    '"\\q,"',
    '"\\q}"',
    '"\x7f"',
]
NUMBERS = [
    "0",
    "-0",
    "1",
    "-1",
    "7",
    "42",
    "127",
    "128",
    "-128",
    "-129",
    "200",
    "255",
    "256",
    "32767",
    "32768",
    "-32769",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "123456789012345678",
    "1234567890123456789",
    "12345678901234567890123",
    "1.0",
    "1.5",
    "-0.0",
    "0.1",
    "1e3",
    "1E-3",
    "1.5e+10",
    "1e400",
    "-1e400",
    "1e-400",
    "4.9e-324",
    "2.2250738585072014E-308",
    "1.7976931348623157e308",
    "3.4028235e38",
    "3.5e38",
    "1e22",
    "9007199254740993",
    "0.30000000000000004",
    "123456.789",
    "99999999.99",
    "99999999.995",
    "99999999.994",
    "0.005",
    "0.004999",
    "1e-20",
    "12345678.9",
    "16777217",
    "16777217.5",
    "1.17549435e-38",
    "01",
    "-01",
    "007.5",
    "1.",
    ".5",
    "+1",
    "-",
    "1e",
    "1e+",
    "--1",
    "0x10",
    "1_000",
    "NaN",
    "Infinity",
    "-Infinity",
    "+Infinity",
    "-INF",
    "+INF",
    "INF",
    "nan",
    "1" * 999,
    "1" * 1000,
    "1" * 1001,
    "1." + "5" * 1200,
    "1700000000",
    "9223372036854",
    "9223372036855",
    "99999999999999",
    "1e1000000000",
    "1e-1000000000",
]
LITERALS = ["true", "false", "null", "tru", "truee", "True", "nul", "nullx", "undefined", "[]", "{}", "[1]", '{"a":1}']
_DATES = [
    "2024-01-02",
    "2024-02-29",
    "2023-02-29",
    "2024-13-01",
    "2024-1-2",
    "2024",
    "2024-01",
    "1969-12-31",
    "0001-01-01",
    "0000-01-01",
    "-0044-03-15",
    "9999-12-31",
    "10000-01-01",
    "+12345-01-01",
    "1582-10-10",
    "2024-01-02T",
    "2024-01-02 x",
    "2024-01-02T03:04:05",
    " 2024-01-02 ",
    "20240102",
    "12345",
    "-5",
    "24-01-02",
    "2024/01/02",
    "2024-01-02GMT",
    "",
    "x",
    "2024-00-10",
    "2024-01-32",
    "1234567-01-01",
    "9999999-01-01",
    "GMT2024-01-02",
]
TIMESTAMPS = [
    *_DATES,
    "2024-01-02T03:04:05Z",
    "2024-01-02 03:04:05",
    "2024-01-02T03:04:05.123",
    "2024-01-02T03:04:05.123456Z",
    "2024-01-02T03:04:05.123456789Z",
    "2024-01-02T03:04:05.",
    "2024-01-02T03:04:05.1+01:00",
    "2024-01-02T03:04:05-08:30",
    "2024-01-02T03:04:05+1:00",
    "2024-01-02T03:04:05+01",
    "2024-01-02T03:04:05+0100",
    "2024-01-02T03:04:05+18:00",
    "2024-01-02T03:04:05+18:01",
    "2024-01-02T03:04:05+19:00",
    "2024-01-02T03:04:05 UTC",
    "2024-01-02T03:04:05 Europe/Paris",
    "2024-07-02T03:04:05 America/New_York",
    "2024-03-31T02:30:00 Europe/Berlin",
    "2024-10-27T02:30:00 Europe/Berlin",
    "2024-01-02T03:04:05 CET",
    "2024-01-02T03:04:05PST",
    "2024-01-02T03:04:05 EST",
    "2024-01-02T03:04:05GMT+02:00",
    "2024-01-02T03:04:05UTC+1",
    "2024-01-02T03:04:05 Nowhere/City",
    "2024-01-02T24:00:00",
    "2024-01-02T23:59:60",
    "2024-01-02T3:4:5",
    "2024-01-02T03:04",
    "2024-01-02T03",
    "2024-01-02T03:04Z",
    "2024-01-02T03Z",
    "1900-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "10000-01-01T00:00:00Z",
    "123456-01-01T00:00:00Z",
    "294247-01-10T04:00:54.775807Z",
    "294248-01-10T04:00:54Z",
    "2024-01-02T03:04:05z",
    "2024-01-02t03:04:05",
    "2024-01-02T03:04:05+00:00:30",
    "2024-01-02T03:04:05.123Z ",
    "2024-01-02  03:04:05",
    "1850-06-01 00:00:00 Europe/Paris",
    "2024-01-02T03:04:05,123",
    "2024-01-02T-3:04:05",
    "2024-01-02T03:04:05+-1:00",
    "2024-01-02T03:04:05.12x",
]
_BLOBS = [
    "",
    "QQ==",
    "QUI=",
    "QUJD",
    "QQ",
    "QUI",
    "QQ==QQ==",
    "QU JD",
    "QUJD QUJD",
    "Q!==",
    "QQ=a",
    "====",
    "_-8=",
    "+/8=",
]


def random_values(count: int, seed: int) -> list[bytes | None]:
    """A third as they should be, a third with odd values, a third damaged."""
    random = Random(seed)
    return [_value(random, i % 3) for i in range(count)]


def _value(random: Random, kind: int) -> bytes | None:
    if random.random() < 0.01:
        return random.choice(
            [None, b"", b"  \n", b"null", b"[]", b'[{"id":1}]', b"1", b'"x"', b"{}", b"\xef\xbb\xbf{}"]
        )
    odd = 0.0 if kind == 0 else 0.15
    text = _object(random, odd, _FIELDS)
    data = text.encode("utf-8", "surrogatepass")
    if kind == 2:
        data = _damaged(random, data)
    elif kind == 1 and random.random() < 0.1:
        data += random.choice([b" ", b"\n", b"x", b"}", b'{"id":5}', b" // c"])
    return data


def _damaged(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    match random.randrange(8):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + bytes([random.randrange(256)]) + data[at:]
        case 2:
            return data[:at] + data[at + 1 :]
        case 3:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 4:
            return (
                data[:at] + random.choice([b'"', b",", b"{", b"}", b"[", b"]", b":", b"\\", b"null", b" "]) + data[at:]
            )
        case 5:
            return (
                data[:at]
                + random.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf0\x9f", b"\xe2\x82", b"\xc0\x80"])
                + data[at:]
            )
        case 6:
            return data.replace(b'"', b"'", random.randrange(1, 6))
    return data[:at] + b"/* c */" + data[at:]


def _object(random: Random, odd: float, fields: dict[str, Callable[[Random, float], str]]) -> str:
    names = [name for name in fields if random.random() < 0.7]
    random.shuffle(names)
    if odd and random.random() < odd:
        names.append(random.choice(list(fields)))
    if random.random() < 0.3:
        more = ["other", "more", "é", "", random.choice(list(fields)), random.choice(list(fields)).upper()]
        names.insert(random.randrange(len(names) + 1), random.choice(more))
    parts = []
    for name in names:
        make = fields.get(name) or fields.get(name.lower(), _anything)
        value = _odd(random, odd) if random.random() < odd else make(random, odd)
        if random.random() < 0.05:
            value = "null"
        shown = name
        if odd and random.random() < 0.02 and name:
            shown = f"\\u{ord(name[0]):04x}{name[1:]}"
        parts.append(f'"{shown}"{_space(random)}:{_space(random)}{value}')
    return "{" + _space(random) + f"{_space(random)},{_space(random)}".join(parts) + "}"


def _space(random: Random) -> str:
    return random.choice([" ", "\n", "\t", "  "]) if random.random() < 0.05 else ""


def _odd(random: Random, odd: float) -> str:
    kinds = [NUMBERS, LITERALS, _ESCAPED, [f'"{text}"' for text in NUMBERS], [f'"{text}"' for text in TIMESTAMPS]]
    return random.choice(random.choice(kinds))


def _anything(random: Random, odd: float) -> str:
    return random.choice(['"text"', "1", "1.25", "true", "null", "[]", "{}", '[1,{"a":[null]}]', '{"id":{"id":3}}'])


def _string(random: Random, odd: float) -> str:
    kind = random.randrange(10)
    if kind < 3:
        return any_json(random) if kind else random.choice(_ESCAPED[:3])
    return f'"{any_text(random) if kind < 5 else random.choice(WORDS)}"'


def _whole(bits: int) -> Callable[[Random, float], str]:
    def make(random: Random, odd: float) -> str:
        return str(random.randrange(-(1 << (bits - 1)), 1 << (bits - 1)) >> random.randrange(bits))

    return make


def _double(random: Random, odd: float) -> str:
    number = random.choice(
        [random.random(), random.uniform(-1e6, 1e6), random.gauss(0, 1) * 10 ** random.randrange(-20, 20)]
    )
    return random.choice([repr(number), f"{number:.2f}", f"{number:.3e}", str(int(number))])


def _decimal(random: Random, odd: float) -> str:
    text = f"{random.uniform(-1e7, 1e7):.{random.randrange(4)}f}"
    return f'"{text}"' if random.random() < 0.2 else text


def _text(texts: list[str], good: int) -> Callable[[Random, float], str]:
    def make(random: Random, odd: float) -> str:
        return f'"{random.choice(texts if odd else texts[:good])}"'

    return make


def _moment(texts: list[str]) -> Callable[[Random, float], str]:
    def make(random: Random, odd: float) -> str:
        return f'"{any_moment(random) if random.random() < 0.5 else random.choice(texts if odd else texts[:2])}"'

    return make


def _list(make: Callable[[Random, float], str]) -> Callable[[Random, float], str]:
    def made(random: Random, odd: float) -> str:
        values = [
            _odd(random, odd) if random.random() < odd / 3 else make(random, odd) for _ in range(random.randrange(4))
        ]
        return f"[{_space(random)}{','.join(values)}{_space(random)}]"

    return made


def _mapping(make: Callable[[Random, float], str]) -> Callable[[Random, float], str]:
    def made(random: Random, odd: float) -> str:
        names = [
            random.choice(["a", "b", "é", "long name of a key", "", any_text(random)])
            for _ in range(random.randrange(4))
        ]
        return (
            "{"
            + ",".join(f'"{n}":{_odd(random, odd) if random.random() < odd / 3 else make(random, odd)}' for n in names)
            + "}"
        )

    return made


def _struct(fields: dict[str, Callable[[Random, float], str]]) -> Callable[[Random, float], str]:
    return lambda random, odd: _object(random, odd, fields)


_FIELDS: dict[str, Callable[[Random, float], str]] = {
    "flag": lambda random, odd: random.choice(["true", "false"]),
    "tiny": _whole(8),
    "small": _whole(16),
    "whole": _whole(32),
    "id": _whole(64),
    "ratio": _double,
    "amount": _double,
    "user": _string,
    "blob": _text(_BLOBS, 4),
    "day": _moment(_DATES),
    "at": _moment(TIMESTAMPS),
    "at_local": _moment(TIMESTAMPS),
    "price": _decimal,
    "wide": _decimal,
    "nested": _struct({"x": _whole(64), "y": _string, "z": _struct({"deep": _double, "day": _moment(_DATES)})}),
    "tags": _list(_string),
    "numbers": _list(_whole(32)),
    "pairs": _mapping(_double),
    "items": _list(_struct({"sku": _string, "count": _whole(32), "sizes": _list(_whole(16))})),
    "by_name": _mapping(_struct({"a": _whole(32), "b": _list(_string)})),
    "rows": _list(_list(_whole(32))),
    "texts": _mapping(_string),
}
