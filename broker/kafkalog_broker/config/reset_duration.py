"""Values of share.auto.offset.reset: earliest, latest or a duration."""

from __future__ import annotations

import re

EARLIEST, LATEST, BY_DURATION = "earliest", "latest", "by_duration:"
_PART = "([-+]?[0-9]{1,18})"
_DURATION = re.compile(
    rf"([-+]?)P(?:{_PART}D)?(?:T(?=[-+0-9])(?:{_PART}H)?(?:{_PART}M)?(?:{_PART}(?:[.,]([0-9]{{0,9}}))?S)?)?", re.I
)
_MS_OF_PARTS = (86_400_000, 3_600_000, 60_000, 1_000)  # days, hours, minutes, seconds


def reset_duration_ms(reset: str) -> int | None:
    """Return the ms by which `by_duration:` and a text for java.time.Duration.parse go back.

    None if the text is not such a duration, or a negative one.
    """
    found = _DURATION.fullmatch(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else None
    if found is None or not any(found.groups()[1:]):
        return None
    sign, *parts, fraction = found.groups(default="")
    duration_ms = sum(int(part or 0) * ms for part, ms in zip(parts, _MS_OF_PARTS, strict=True))
    seconds = parts[-1]
    fraction_ms = int(fraction[:3].ljust(3, "0"))
    duration_ms += -fraction_ms if seconds.startswith("-") else fraction_ms
    return None if (duration_ms < 0) != (sign == "-") and duration_ms else abs(duration_ms)
