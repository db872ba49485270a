"""A warm Spark session in a process of its own, driven by JSON lines: one request a line on stdin, one answer a line.

Started by benchmarks.spark_session with the interpreter of any environment that has pyspark, so it imports nothing of
this project. The first argument is a JSON object of Spark settings. Request:

    {"format": "kafka", "options": {...}, "path": null, "schema": null, "filter": null, "select": null,
     "action": "noop" | "count" | "collect" | "parquet" | "save", "register": "module:Class" | null, "conf": {...},
     "to": directory for parquet, "sink": {"format", "options", "to"} for action "save"}

format "range" is no source: rows of spark.range as option `value` makes them (options rows, tasks).

Answer: {"seconds": wall time of load and action, "rows": of count, collect} or {"error": text}.
"""

import importlib
import json
import os
import sys
import time


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever the JVM or a worker prints must not get between the answers
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kafkalog benchmarks")
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"version": spark.version}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = run(spark, request)
        except Exception as error:  # noqa: BLE001  the text goes to the parent, which raises
            answer = {"error": f"{type(error).__name__}: {error}"[:4000]}
        print(json.dumps(answer), file=answers)
    spark.stop()


def load(spark, request):  # type: ignore[no-untyped-def]
    options = request.get("options") or {}
    if request["format"] == "range":
        rows = spark.range(0, int(options["rows"]), 1, int(options["tasks"]))
        return rows.selectExpr(options["value"])
    reader = spark.read.format(request["format"])
    for key, value in options.items():
        reader = reader.option(key, value)
    if request.get("schema"):
        reader = reader.schema(request["schema"])
    return reader.load(request["path"]) if request.get("path") else reader.load()


def run(spark, request):  # type: ignore[no-untyped-def]
    if request.get("register"):
        module, _, name = request["register"].partition(":")
        spark.dataSource.register(getattr(importlib.import_module(module), name))
    for key, value in (request.get("conf") or {}).items():
        spark.conf.set(key, value)
    begin = time.perf_counter()
    frame = load(spark, request)
    if request.get("filter"):
        frame = frame.filter(request["filter"])
    if request.get("select"):
        frame = frame.select(*request["select"])
    rows = None
    action = request.get("action", "noop")
    if action == "noop":
        frame.write.format("noop").mode("overwrite").save()
    elif action == "count":
        rows = frame.count()
    elif action == "collect":
        rows = len(frame.collect())
    elif action == "save":
        sink = request["sink"]
        frame.write.format(sink["format"]).options(**sink["options"]).mode("append").save(sink["to"])
    elif action == "parquet":
        frame.write.mode("overwrite").parquet(request["to"])
    else:
        raise ValueError(f"unknown action {action}")
    return {"seconds": time.perf_counter() - begin, "rows": rows}


if __name__ == "__main__":
    main()
