"""Random CSV values, most of them nearly right: what from_csv does with them is what ours has to do."""

from __future__ import annotations

import re
from random import Random

from tests.spark.helpers.random_json import LITERALS, NUMBERS, TIMESTAMPS, WORDS

DDL = (
    "flag boolean, tiny tinyint, small smallint, whole int, id bigint, ratio float, amount double, user string, "
    "day date, at timestamp, at_local timestamp_ntz, price decimal(10,2), wide decimal(38,10), note string"
)
"""Every type that CSV is decoded to."""
KINDS = tuple(part.split(" ")[1] for part in DDL.split(", "))
_WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_ODD = [
    "", " ", "  ", '""', '"', '"""', '""""', '"a', 'a"', '"a"b', '"a" b', '"a" ', ' "a"', '"a""b"', '"a\\"b"',
    '"a\\\\"', '"a\\', "\\", '\\"', '"\\', '"a\\b"', '"a,b"', '"a,b', '"a\nb"', "a\nb", "a\r", "#", "# a", "NA",
    "null", "NaN", "nan", "Inf", "-Inf", "Infinity", "-Infinity", "+Infinity", "INF", "1d", "1f", "1.5F", "1L",
    "0x1p3", "0x1.8p1d", " 1", "1 ", "+1", "-0", "007", "1,5", "1_000", '"1,234.5"', "\u0661\u0662", "TRUE",
    "False", " true", "t", "yes", "'a'", "\t", "a\tb", ";", "|", "\x00", "a\x00b", '"a"\\b', '"a"\\"b"', '"\\\\"',
    '"a\\\\"b"', '" a "', '"a"  ', '"a" "b"', '"a\\\\b"', '"a"\t', '"é"', "e\u0301",
]  # fmt: skip


def random_lines(count: int, seed: int, *, separator: str = ",", quote: str = '"', escape: str = "\\") -> list[bytes]:
    """A third as they should be, a third with odd fields, a third damaged, with these characters in the place of the
    usual ones."""
    random = Random(seed)
    signs = str.maketrans({",": separator, '"': quote, "\\": escape})
    return [_affordable_line(random, i % 3, signs) for i in range(count)]


_COSTLY = re.compile(rb"[eE][+-]?\d{5,9}(?!\d)")
"""Numbers that Spark, as decimals, writes out: 1e100000000 takes it a quarter of an hour. Of larger ones Java says that
they are too large."""


def _affordable_line(random: Random, kind: int, signs: dict[int, str]) -> bytes:
    while True:
        line = _line(random, kind, signs)
        if not _COSTLY.search(line):
            return line


def _line(random: Random, kind: int, signs: dict[int, str]) -> bytes:
    if random.random() < 0.02:
        return random.choice([b"", b" ", b"\n", b"\n\n", b",", b'"', b'""', b"#", b"#a,b", b"\xef\xbb\xbf1,2", b"\r\n"])
    fields = [_field(random, one) if kind == 0 or random.random() > 0.15 else _odd(random) for one in KINDS]
    if kind and random.random() < 0.1:
        fields = fields[: random.randrange(len(fields))] + [_odd(random) for _ in range(random.randrange(4))]
    text = ",".join(fields)
    if kind == 1 and random.random() < 0.1:
        text += random.choice(["\n", "\r\n", "\nmore", " ", ",", '"'])
    data = text.translate(signs).encode()
    return _damaged(random, data) if kind == 2 else data


def _damaged(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    match random.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at + 1 :]
        case 2:
            return data[:at] + random.choice([b'"', b",", b"\\", b" ", b"\n", b"#", b"\xff", b"\xc3", b"'"]) + data[at:]
    return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]


def _odd(random: Random) -> str:
    return random.choice(random.choice([_ODD, _ODD, NUMBERS, TIMESTAMPS, LITERALS, WORDS]))


def _field(random: Random, kind: str) -> str:
    if random.random() < 0.1:
        return ""
    if kind in _WHOLE:
        bits = _WHOLE[kind]
        text = str(random.randrange(-(1 << (bits - 1)), 1 << (bits - 1)) >> random.randrange(bits))
    elif kind == "boolean":
        text = random.choice(["true", "false"])
    elif kind == "string":
        text = random.choice(WORDS)
    elif kind in ("date", "timestamp", "timestamp_ntz"):
        day = f"{random.randrange(1900, 2100)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"
        time = (
            f"{random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02}.{random.randrange(1000):03}"
        )
        text = day if kind == "date" else f"{day}T{time}" + ("Z" if kind == "timestamp" else "")
    else:
        text = random.choice([repr(random.uniform(-1e6, 1e6)), f"{random.random():.2f}", str(random.randrange(10**6))])
    quoted = "," in text or random.random() < 0.1
    return f'"{text}"' if quoted else text
