"""Random texts inside of JSON: characters beyond the BMP, halves of their pairs, nested JSON, moments of any year."""

from __future__ import annotations

from random import Random

_PIECES = [
    "a", "user", "é", "日", "😀", "𝄞", "\u2028", "\x7f", "\\n", "\\/", "\\\\", '\\"', "\\u0000", "\\u001f", "\\u00e9",
    "\\ud83d\\ude00", "\\uD83D\\uDE00", "\\ud83d", "\\u006İ", "\\ude00", "\\udbff\\udfff",
    "\ud83d", "\ude00", "\udbff\udfff",
]  # fmt: skip
"""As they stand between quotes; raw halves become the three bytes that UTF-8 does not have."""
_NUMBERS = ["0", "-0", "1", "-17", "12345678901234567890", "0.5", "-0.0", "1e3", "1.5E-10", "1e400", "NaN", "-INF"]
"""Java before 19 writes some other fractions with more digits than they need."""
_YEARS = [
    "0000", "0001", "-0001", "-0000", "+0000", "0044", "-44", "44", "1582", "1900", "2024", "+2024", "-2024", "9999",
    "10000", "+10000", "-10000", "+012345", "012345", "+123456", "-290308", "-290309", "+294247", "+294248", "-5877641",
    "+5881580", "+5881581", "999999999", "+999999999", "-999999999", "+1000000000", "+12345678901234567890",
]  # fmt: skip
_ZONES = [
    "",
    "",
    "Z",
    "+01:00",
    "-08:30",
    "+00:00",
    "-00:00",
    "+18:00",
    "+18:01",
    "+0100",
    "z",
    " Europe/Berlin",
    "PST",
]


def any_text(random: Random) -> str:
    """What may stand between two quotes; one in ten is cut anywhere, also inside of an escape."""
    text = "".join(random.choice(_PIECES) for _ in range(random.randrange(6)))
    return text[: random.randrange(len(text) + 1)] if random.random() < 0.1 else text


def any_json(random: Random, depth: int = 3) -> str:
    """An object or array, with names that are there twice."""
    count = random.randrange(4)
    if random.random() < 0.5:
        return f"[{','.join(_any_value(random, depth) for _ in range(count))}]"
    names = [any_text(random) for _ in range(2)]
    return "{" + ",".join(f'"{random.choice(names)}": {_any_value(random, depth)}' for _ in range(count)) + "}"


def _any_value(random: Random, depth: int) -> str:
    if depth and random.random() < 0.3:
        return any_json(random, depth - 1)
    return random.choice([f'"{any_text(random)}"', random.choice(_NUMBERS), "true", "null"])


def any_moment(random: Random) -> str:
    """A date, or a date and a time, in one of the forms that patterns of the tests have."""
    year = random.choice(_YEARS) if random.random() < 0.6 else f"{random.randrange(1800, 2100):04}"
    month, day = random.choice(["01", "02", "06", "12", "13", "1"]), random.choice(["01", "29", "31", "00", "7"])
    if random.random() < 0.7:
        month, day = f"{random.randrange(1, 13):02}", f"{random.randrange(1, 29):02}"
    between = random.choice(["-", "-", "/", ""])
    date = f"{year}{between}{month}{between}{day}" if random.random() < 0.9 else f"{day}/{month}/{year}"
    if random.random() < 0.4:
        return date
    clock = random.choice([":", ":", ""])
    hour, minute, second = random.choice(["00", "03", "23", "24"]), random.choice(["00", "30", "59"]), "07"
    fraction = random.choice(["", "", ".5", ".123", ".123456", ".1234567", "123", "12", "5"])
    return (
        f"{date}{random.choice('TT t')}{hour}{clock}{minute}{clock}{second}{fraction}{random.choice(_ZONES)}".replace(
            "T" if not clock and random.random() < 0.5 else "\0", ""
        )
    )
