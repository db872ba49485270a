"""Tests. A package, so that `tests.golden_data` is ours and not some other distribution's."""
