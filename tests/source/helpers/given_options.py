"""Short helpers that parse read options and return the error of refused ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafkalog_spark.errors import OptionError
from kafkalog_spark.source.option_parsing import parse_read_options
from kafkalog_spark.source.options import ReadOptions


def read(**options: str) -> ReadOptions:
    return parse_read_options({"path": "/logs", **options})


def read_stream(**options: str) -> ReadOptions:
    return parse_read_options({"path": "/logs", **options}, streaming=True)


def refused(options: Mapping[str, str], streaming: bool = False) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parse_read_options({"path": "/logs", **options}, streaming=streaming)
    return caught.value
