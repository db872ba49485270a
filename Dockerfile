# The broker, and Spark with format("kafkalog"), which reads its directory.
#   docker build -t kafkalog .                           the broker (the last stage)
#   docker build -t kafkalog-spark --target spark .      Spark
# tests/examples/test_dockerfile.py runs these steps without Docker.
FROM python:3.12-slim AS dependencies
WORKDIR /src
# What pyproject.toml names and nothing of the sources: a changed source installs none of it again.
COPY pyproject.toml build_kernels.py ./
RUN mkdir -p kafkalog_spark broker/kafkalog_broker \
 && echo '__version__ = "0"' > kafkalog_spark/__init__.py \
 && touch README.md LICENSE pyspark_kafkalog.py broker/kafkalog_broker/__init__.py \
 && pip install --no-cache-dir '.[metrics]' \
 && pip uninstall --yes kafkalog

FROM dependencies AS spark-dependencies
RUN apt-get update \
 && { apt-get install -y --no-install-recommends openjdk-17-jre-headless || apt-get install -y --no-install-recommends default-jre-headless; } \
 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir '.[spark,object-store]' \
 && pip uninstall --yes kafkalog

FROM spark-dependencies AS spark
COPY README.md LICENSE pyspark_kafkalog.py ./
COPY kafkalog_spark kafkalog_spark
COPY broker broker
RUN pip install --no-cache-dir --no-deps .
WORKDIR /app
RUN python -m kafkalog_spark.warm --only read,write,json,avro \
 && useradd --system kafkalog
COPY examples examples
ENV PYSPARK_PYTHON=python
USER kafkalog
ENTRYPOINT ["python"]

FROM dependencies AS broker
COPY README.md LICENSE pyspark_kafkalog.py ./
COPY kafkalog_spark kafkalog_spark
COPY broker broker
RUN pip install --no-cache-dir --no-deps .
# Not in /src, whose package Python would prefer: root compiles the installed one, for the user below, who cannot write there.
WORKDIR /app
RUN python -m kafkalog_spark.warm --only read,write,broker \
 && useradd --system kafkalog \
 && install -d -o kafkalog /var/lib/kafkalog
USER kafkalog
VOLUME /var/lib/kafkalog
EXPOSE 9092
ENTRYPOINT ["kafkalog-broker", "--log-dir", "/var/lib/kafkalog", "--override", "listeners=PLAINTEXT://:9092", "--metrics", "127.0.0.1:9404"]
HEALTHCHECK --interval=5s --timeout=3s --start-period=5m --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/readyz', timeout=2)"]
