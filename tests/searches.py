"""How far hypothesis searches: a share of the examples in `make test`, all of them in `make test-slow`.

HYPOTHESIS_PROFILE=full runs every example that a test asks for; `explore` searches further, at random.
"""

from __future__ import annotations

import os

from hypothesis import settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
FULL_EXAMPLES = 100
"""Of a test that does not say how many it wants."""
SHARE = 6
"""`make test` runs one of so many: the first ones that hypothesis tries are those that find most."""
FEWEST = 5


def examples(full: int) -> int:
    """`max_examples` for a test that wants `full` of them: as many, or `make test`'s share."""
    return full if PROFILE != "default" else min(full, max(FEWEST, full // SHARE))


def load_profile() -> None:
    """The same examples in every run, so that a red test is red for everybody; `explore` alone draws new ones."""
    for name in ("default", "full"):
        settings.register_profile(
            name, max_examples=examples(FULL_EXAMPLES), derandomize=True, database=None, deadline=None, print_blob=True
        )
    settings.register_profile("explore", max_examples=2000, deadline=None, print_blob=True)
    settings.load_profile(PROFILE)
