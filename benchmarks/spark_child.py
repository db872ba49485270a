"""Process with a Spark session, which reads requests from stdin and writes responses to stdout, one line of JSON each.

benchmarks.spark_session starts it with the Python of any environment that has pyspark, so it imports no module of this
project. The first argument is a JSON object of Spark settings. Request:

    {"format": "kafka", "options": {...}, "path": null, "schema": null, "expressions": null, "filter": null,
     "select": null,
     "limit": rows at most | null,
     "action": "noop" | "count" | "collect" | "parquet" | "save" | "stream" | "triggers" | "latency" | "follow",
     "register": "module:Class" | null, "conf": {...}, "to": directory for parquet and stream,
     "sink": {"format", "options", "to"} for save,
     "checkpoint": directory for stream, latency and follow, "records": number of records for latency,
     "during": seconds of follow, "within": seconds after which Spark's jobs are cancelled | null}

The format "range" means spark.range, mapped by the expression in option `value` (other options: rows, tasks).

The action `stream` is a streaming query with Trigger.AvailableNow to Parquet files, or to noop without `to`. `triggers`
is such a query to noop that returns its batches. `latency` is a query with a trigger of 0 s, which ends after a number
of records, and returns the time from the timestamp of each record to foreachBatch. `follow` runs a query to noop for
some seconds.

Response: {"seconds": time of load and action, "rows": of count, collect and stream, "latencies": ms of each record,
"batches": [[start, rows, ms]] of follow and triggers} or {"error": text}.
"""

import importlib
import json
import os
import sys
import threading
import time


def main() -> None:
    responses = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of the JVM and of workers goes to stderr, not between the responses
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("kafkalog benchmarks")
    for key, value in json.loads(sys.argv[1]).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"version": spark.version}), file=responses)
    for line in sys.stdin:
        request = json.loads(line)
        ended = threading.Event()
        if request.get("within"):
            threading.Thread(target=cancel, args=(spark, request["within"], ended), daemon=True).start()
        try:
            response = run(spark, request)
        except Exception as error:  # noqa: BLE001  the text goes to the parent, which raises
            response = {"error": f"{type(error).__name__}: {error}"[:4000]}
        ended.set()
        print(json.dumps(response), file=responses)
    spark.stop()


def cancel(spark, seconds, ended):  # type: ignore[no-untyped-def]
    """Cancel the jobs of a query after `seconds`, and then every second, because a query may have several jobs."""
    while not ended.wait(seconds):
        spark.sparkContext.cancelAllJobs()
        seconds = 1


def load(spark, request):  # type: ignore[no-untyped-def]
    options = request.get("options") or {}
    if request["format"] == "range":
        rows = spark.range(0, int(options["rows"]), 1, int(options["tasks"]))
        return rows.selectExpr(options["value"])
    streaming = request.get("action") in ("stream", "triggers", "latency", "follow")
    reader = (spark.readStream if streaming else spark.read).format(request["format"])
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
    if request.get("expressions"):
        frame = frame.selectExpr(*request["expressions"])
    if request.get("filter"):
        frame = frame.filter(request["filter"])
    if request.get("select"):
        frame = frame.select(*request["select"])
    if request.get("limit"):
        frame = frame.limit(request["limit"])
    rows = None
    action = request.get("action", "noop")
    if action == "latency":
        return latency(frame, request)
    if action == "follow":
        return follow(frame, request)
    if action == "triggers":
        return triggers(frame, request)
    if action == "noop":
        frame.write.format("noop").mode("overwrite").save()
    elif action == "count":
        rows = frame.count()
    elif action == "collect":
        rows = len(frame.collect())
    elif action == "stream":
        rows = stream(frame, request)
    elif action == "save":
        sink = request["sink"]
        frame.write.format(sink["format"]).options(**sink["options"]).mode("append").save(sink["to"])
    elif action == "parquet":
        frame.write.mode("overwrite").parquet(request["to"])
    else:
        raise ValueError(f"unknown action {action}")
    return {"seconds": time.perf_counter() - begin, "rows": rows}


def stream(frame, request):  # type: ignore[no-untyped-def]
    """Run a streaming query to its end. Return the number of rows."""
    writer = frame.writeStream.option("checkpointLocation", request["checkpoint"]).trigger(availableNow=True)
    to = request.get("to")
    query = writer.format("parquet").start(to) if to else writer.format("noop").start()
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)


def triggers(frame, request):  # type: ignore[no-untyped-def]
    """Run a streaming query to its end. Return its batches."""
    begin = time.perf_counter()
    writer = frame.writeStream.format("noop").option("checkpointLocation", request["checkpoint"])
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [[one.timestamp, one.numInputRows, one.batchDuration] for one in query.recentProgress if one.numInputRows]
    return {"seconds": time.perf_counter() - begin, "batches": batches}


def latency(frame, request):  # type: ignore[no-untyped-def]
    """Run a streaming query until foreachBatch has received the requested number of records."""
    latencies: list[float] = []

    def arrived(batch, number):  # type: ignore[no-untyped-def]
        sent_ms = [row[0] for row in batch.selectExpr("unix_millis(timestamp)").collect()]
        now_ms = time.time() * 1000
        latencies.extend(now_ms - ms for ms in sent_ms)

    begin = time.perf_counter()
    query = frame.writeStream.foreachBatch(arrived).option("checkpointLocation", request["checkpoint"]).start()
    while len(latencies) < request["records"] and query.isActive:
        time.sleep(0.05)
    query.stop()
    if query.exception() is not None:
        raise query.exception()
    return {"seconds": time.perf_counter() - begin, "latencies": latencies}


def follow(frame, request):  # type: ignore[no-untyped-def]
    """Run a streaming query for some seconds. Return its batches."""
    begin = time.perf_counter()
    query = frame.writeStream.format("noop").option("checkpointLocation", request["checkpoint"]).start()
    time.sleep(request["during"])
    query.stop()
    progress = [one for one in query.recentProgress if one.numInputRows]
    batches = [[one.timestamp, one.numInputRows, one.batchDuration] for one in progress]
    return {"seconds": time.perf_counter() - begin, "batches": batches}


if __name__ == "__main__":
    main()
