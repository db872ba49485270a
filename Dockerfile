# The broker, and with the extra `spark` what reads its directory.
#   docker build -t kafkalog .                           the broker
#   docker build -t kafkalog-spark --target spark .      Spark with format("kafkalog")
FROM python:3.12-slim AS broker
WORKDIR /app
COPY pyproject.toml README.md LICENSE pyspark_kafkalog.py ./
COPY kafkalog_spark kafkalog_spark
COPY broker broker
RUN pip install --no-cache-dir '.[metrics]' \
 && python -c 'from kafkalog_broker.storage.append.record_walk import load_kernel; load_kernel(); import kafkalog_broker.storage.compaction.cleaner' \
 && useradd --system kafkalog && install -d -o kafkalog /var/lib/kafkalog
USER kafkalog
VOLUME /var/lib/kafkalog
EXPOSE 9092 9404
ENTRYPOINT ["kafkalog-broker", "--log-dir", "/var/lib/kafkalog", "--override", "listeners=PLAINTEXT://:9092", "--metrics", "0.0.0.0:9404"]
HEALTHCHECK --interval=5s --timeout=3s --start-period=5m --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/readyz', timeout=2)"]

FROM broker AS spark
USER root
RUN apt-get update && apt-get install -y --no-install-recommends openjdk-17-jre-headless || \
    apt-get install -y --no-install-recommends default-jre-headless; rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir '.[spark]' && python -m kafkalog_spark.warm
COPY examples examples
USER kafkalog
HEALTHCHECK NONE
ENTRYPOINT ["python"]
