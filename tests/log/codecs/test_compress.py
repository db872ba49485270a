from __future__ import annotations

import gzip
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafkalog_spark.format.codecs import CODECS, compression_level
from kafkalog_spark.format.layout import Codec
from kafkalog_spark.log.codecs.compress import compress
from tests.golden_data import golden_logs
from tests.log.helpers import plain_decoder

RANDOM = random.Random(1)
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": b"alpha beta gamma delta " * 9000,  # several blocks of xerial and lz4
    "noise": RANDOM.randbytes(150_000),
    "one xerial block": b"ab" * (16 * 1024),
}
COMPRESSING = [codec for codec in Codec if codec != Codec.NONE]


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)
@pytest.mark.parametrize("sample", SAMPLES)
def test_compressed_bytes_round_trip(codec: Codec, sample: str) -> None:
    data = SAMPLES[sample]
    for given in (data, memoryview(data)):
        assert plain_decoder.decompress(codec, compress(codec, given)) == data


@pytest.mark.parametrize(
    "codec", [codec for codec, facts in CODECS.items() if facts.levels is not None], ids=lambda codec: codec.name
)
def test_every_level_of_kafkas_range_works_and_the_next_one_is_refused(codec: Codec) -> None:
    levels = CODECS[codec].levels
    assert levels is not None
    low, high = levels.lowest, levels.highest
    data = SAMPLES["text"]
    for level in {max(low, -7), low, 1, 5, high, levels.default}:
        assert plain_decoder.decompress(codec, compress(codec, data, level)) == data
    for level in (low - 1, high + 1, 0 if codec == Codec.GZIP else low - 1):
        with pytest.raises(ValueError, match=f"{codec.name.lower()} levels go from {low} to {high}"):
            compress(codec, data, level)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY], ids=lambda codec: codec.name)
def test_codecs_without_levels_refuse_a_level(codec: Codec) -> None:
    assert compression_level(codec, None) is None
    with pytest.raises(ValueError, match="no compression levels"):
        compress(codec, b"", 1)


def test_default_lz4_level_is_the_fast_one_and_others_compress_better() -> None:
    """Level 9 is Kafka's default and takes the fast compressor: smaller numbers give smaller batches."""
    text = b" ".join(RANDOM.choice([b"alpha", b"beta", b"gamma", b"delta"]) for _ in range(20_000))
    assert compress(Codec.LZ4, text, 9) == compress(Codec.LZ4, text)
    assert len(compress(Codec.LZ4, text, 1)) < len(compress(Codec.LZ4, text, 9))


@pytest.mark.parametrize(
    ("topic", "codec", "length"),
    # the xerial header with both versions; magic, flags, block size and header checksum of the lz4 frame
    [("java-snappy", Codec.SNAPPY, 16), ("java-lz4", Codec.LZ4, 7)],
)
def test_framing_equals_that_of_kafkas_java_client(topic: str, codec: Codec, length: int) -> None:
    (log,) = golden_logs(topic=topic, crashed=False)
    written = log.segments()[0].read_bytes()[61:]
    assert compress(codec, SAMPLES["text"])[:length] == written[:length]


def test_gzip_is_one_member_with_a_gzip_header() -> None:
    assert gzip.decompress(compress(Codec.GZIP, b"abc")) == b"abc"


@pytest.mark.parametrize("codec", COMPRESSING, ids=lambda codec: codec.name)
def test_concurrent_threads_compress_independently(codec: Codec) -> None:
    samples = [RANDOM.randbytes(500) * (i + 1) for i in range(40)]
    with ThreadPoolExecutor(4) as pool:
        packed = list(pool.map(lambda data: compress(codec, data), samples))
    assert [plain_decoder.decompress(codec, data) for data in packed] == samples
