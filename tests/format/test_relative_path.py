"""Relative paths that data names."""

from __future__ import annotations

import pytest

from kafkalog_spark.errors import UnsafePath
from kafkalog_spark.format.relative_path import joined_below


@pytest.mark.parametrize("relative", ["a", "a/b.log", "a.b/..c/d..", "...", "prefix-a/0/1", "a b/\N{SNOWMAN}"])
@pytest.mark.parametrize("root", ["/tier", "/tier/", "s3://bucket/tier"])
def test_joined_below_of_names_is_below_the_root(root: str, relative: str) -> None:
    assert joined_below(root, relative) == f"{root.rstrip('/')}/{relative}"


@pytest.mark.parametrize(
    "relative",
    [
        "",
        ".",
        "..",
        "../a",
        "a/..",
        "a/../b",
        "a/./b",
        "/a",
        "//a",
        "a//b",
        "a/",
        "a\\b",
        "..\\a",
        "C:a",
        "c:/a",
        "a\0b",
    ],
)
def test_joined_below_of_a_path_that_may_lead_out_is_refused(relative: str) -> None:
    with pytest.raises(UnsafePath, match="is no path below /tier"):
        joined_below("/tier", relative)


def test_joined_below_shows_the_refused_path_escaped_and_cut() -> None:
    with pytest.raises(UnsafePath) as caught:
        joined_below("/tier", "../\x1b[31m\n" + "x" * 1000)
    assert "\\x1b[31m\\n" in str(caught.value)
    assert len(str(caught.value)) < 300
