"""Values of share.auto.offset.reset: earliest, latest or a duration."""

from __future__ import annotations

import re

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
_NUMBER = "([-+]?[0-9]{1,18})"
_DURATION = re.compile(
    rf"([-+]?)P(?:{_NUMBER}D)?(?:T(?=[-+0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,]([0-9]{{0,9}}))?S)?)?",
    re.I,
)
_MS_OF_PARTS = (86_400_000, 3_600_000, 60_000, 1_000)  # days, hours, minutes, seconds


def reset_duration_ms(reset: str) -> int | None:
    """Return the duration of a value such as `by_duration:P1DT2H` in ms.

    The text after `by_duration:` has the format of java.time.Duration.parse.

    Returns:
        None if it is not a valid duration, or negative.
    """
    match = _DURATION.fullmatch(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else None
    if match is None or not any(match.groups()[1:]):
        return None
    sign, *parts, fraction = match.groups(default="")
    duration_ms = sum(int(part or 0) * ms for part, ms in zip(parts, _MS_OF_PARTS, strict=True))
    seconds = parts[-1]
    fraction_ms = int(fraction[:3].ljust(3, "0"))
    duration_ms += -fraction_ms if seconds.startswith("-") else fraction_ms
    is_negative = duration_ms != 0 and (duration_ms < 0) != (sign == "-")
    return None if is_negative else abs(duration_ms)
