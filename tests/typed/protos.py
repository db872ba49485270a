"""Two .proto files that the Protobuf tests share, compiled, and messages of Google's library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from kafkalog_spark.typed.protobuf.descriptors import message_of, pool_of

ORDER = """syntax = "proto3"; package shop;
import "google/protobuf/timestamp.proto";
enum Kind { NONE = 0; A = 1; B = 2; NEGATIVE = -5; }
message Item { string sku = 1; int32 n = 2; repeated double prices = 3; Kind kind = 4; }
message Order {
  int64 id = 1; string user = 2; double amount = 3; Kind kind = 4; repeated Item items = 5;
  map<string, int64> counts = 6; optional int32 maybe = 7; google.protobuf.Timestamp at = 8; bytes raw = 9;
  oneof one { string text = 10; int32 number = 11; Item item = 12; }
  uint32 u32 = 13; uint64 u64 = 14; sint32 s32 = 15; sint64 s64 = 16; fixed32 f32 = 17; fixed64 f64 = 18;
  sfixed32 sf32 = 19; sfixed64 sf64 = 20; bool flag = 21; float ratio = 22; map<int32, Item> by_number = 23;
  repeated Kind kinds = 24; Item single = 25; repeated string texts = 26; repeated sint64 packed = 2000;
}
message Node { int32 id = 1; Node next = 2; repeated Node children = 3; map<string, Node> named = 4; }
message Empty {}
message HasEmpty { Empty empty = 1; int32 n = 2; }
"""
OLD = """syntax = "proto2"; package old;
enum Level { LOW = 1; HIGH = 2; }
message Inner { optional Level level = 1; required int32 need = 2; }
message Old {
  required int32 id = 1; optional string text = 2 [default = "dé"]; optional double d = 3 [default = 1.5];
  optional Level level = 4 [default = HIGH]; repeated Level levels = 5; optional Inner inner = 6;
  optional bool flag = 7 [default = true]; optional int64 none = 8;
}
"""


def compiled(home: Path) -> Path:
    """The descriptor set of both, made in a directory."""
    (home / "order.proto").write_text(ORDER)
    (home / "old.proto").write_text(OLD)
    run = ["-I.", "--include_imports", "--descriptor_set_out=all.desc", "order.proto", "old.proto"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *run], cwd=home, check=True)
    return home / "all.desc"


def descriptor_of(path: Path, name: str) -> Any:
    pool, names = pool_of(path.read_bytes(), str(path))
    return message_of(pool, names, name, str(path))


def new(descriptor: Any) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)()
