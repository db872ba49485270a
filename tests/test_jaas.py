from __future__ import annotations

import pytest

from kafkalog_spark.jaas import JaasEntry, parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{MODULE} required;", {}),
        (f'{MODULE} required a="b" c=d;', {"a": "b", "c": "d"}),
        (f'  {MODULE}\n  REQUIRED\n  a="b;c \\"quoted\\" = \\\\"  ;  ', {"a": 'b;c "quoted" = \\'}),
    ],
)
def test_jaas_entry_is_parsed_into_class_and_options(text: str, options: dict[str, str]) -> None:
    assert parse_jaas(text) == JaasEntry(MODULE, options)
