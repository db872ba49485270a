import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.Properties;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads partition 0: bootstrap, topic, isolation level, file, then ranges `offset:count` or `@timestamp:count`, each of
 * `count` records at most. The file gets three longs a record: offset, timestamp, CRC of key, value and headers. */
public class TieredReader {
    public static void main(String[] args) throws Exception {
        TopicPartition partition = new TopicPartition(args[1], 0);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("isolation.level", args[2]);
        properties.put("auto.offset.reset", "none");
        properties.put("max.poll.records", "5000");
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes);
                DataOutputStream out = new DataOutputStream(
                        new BufferedOutputStream(new FileOutputStream(args[3]), 1 << 16))) {
            consumer.assign(Collections.singletonList(partition));
            long end = consumer.endOffsets(Collections.singletonList(partition)).get(partition);
            for (int n = 4; n < args.length; n++) {
                String[] range = args[n].split(":");
                long start = range[0].startsWith("@")
                        ? consumer.offsetsForTimes(Collections.singletonMap(partition, Long.parseLong(range[0].substring(1))))
                                .get(partition).offset()
                        : Long.parseLong(range[0]);
                consumer.seek(partition, start);
                long left = Long.parseLong(range[1]);
                while (left > 0 && consumer.position(partition) < end)
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1)))
                        if (left-- > 0) write(out, record);
            }
        }
    }

    private static void write(DataOutputStream out, ConsumerRecord<byte[], byte[]> record) throws Exception {
        CRC32 crc = new CRC32();
        if (record.key() != null) crc.update(record.key());
        crc.update(record.value());
        for (Header header : record.headers()) {
            crc.update(header.key().getBytes(StandardCharsets.UTF_8));
            if (header.value() != null) crc.update(header.value());
        }
        out.writeLong(record.offset());
        out.writeLong(record.timestamp());
        out.writeLong(crc.getValue());
    }
}
