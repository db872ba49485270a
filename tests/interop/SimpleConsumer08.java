import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import kafka.api.FetchRequest;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndOffset;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

/** The Scala producer and the SimpleConsumer of kafka_2.11 0.8.2.2: host, port, topic (one partition), codec, count. */
public class SimpleConsumer08 {
    public static void main(String[] args) throws Exception {
        String host = args[0], topic = args[2], codec = args[3];
        int port = Integer.parseInt(args[1]), count = Integer.parseInt(args[4]);
        Properties properties = new Properties();
        properties.put("metadata.broker.list", host + ":" + port);
        properties.put("serializer.class", "kafka.serializer.StringEncoder");
        properties.put("request.required.acks", "-1");
        properties.put("compression.codec", codec);
        Producer<String, String> producer = new Producer<>(new ProducerConfig(properties));
        for (int n = 0; n < count; n += 10) {
            java.util.List<KeyedMessage<String, String>> some = new java.util.ArrayList<>();
            for (int m = n; m < n + 10; m++) some.add(new KeyedMessage<>(topic, "key " + m, "value " + m));
            producer.send(some);
        }
        producer.close();
        System.out.println("produced " + count);

        SimpleConsumer consumer = new SimpleConsumer(host, port, 20_000, 64 * 1024, "simple");
        TopicAndPartition partition = new TopicAndPartition(topic, 0);
        System.out.println("offsets " + offset(consumer, partition, -2) + " " + offset(consumer, partition, -1));
        long offset = 0;
        int read = 0;
        while (read < count) {
            FetchRequest request = new FetchRequestBuilder().clientId("simple").addFetch(topic, 0, offset, 2_000)
                .maxWait(1_000).minBytes(1).build();
            FetchResponse response = consumer.fetch(request);
            if (response.hasError()) throw new AssertionError("error " + response.errorCode(topic, 0));
            int before = read;
            for (MessageAndOffset one : response.messageSet(topic, 0)) {
                if (one.offset() < offset) continue;
                String key = text(one.message().key()), value = text(one.message().payload());
                if (one.offset() != read || !key.equals("key " + read) || !value.equals("value " + read))
                    throw new AssertionError(one.offset() + " " + key + " " + value);
                read++;
                offset = one.nextOffset();
            }
            if (read == before) throw new AssertionError("stands still at " + offset);
        }
        System.out.println("read " + read);
        for (short version = 0; version < 2; version++) {
            Map<TopicAndPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
            offsets.put(partition, new OffsetAndMetadata(40 + version, "note", -1L));
            consumer.commitOffsets(new OffsetCommitRequest("simple " + version, offsets, 1, "simple", version));
            OffsetMetadataAndError found = consumer.fetchOffsets(new OffsetFetchRequest(
                "simple " + version, Collections.singletonList(partition), version, 2, "simple")).offsets().get(partition);
            System.out.println("committed " + version + ": " + found.offset() + " error " + found.error());
        }
        consumer.close();
    }

    private static long offset(SimpleConsumer consumer, TopicAndPartition partition, long time) {
        Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
        asked.put(partition, new PartitionOffsetRequestInfo(time, 1));
        return consumer.getOffsetsBefore(new OffsetRequest(asked, (short) 0, "simple"))
            .offsets(partition.topic(), partition.partition())[0];
    }

    private static String text(ByteBuffer buffer) throws Exception {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return new String(bytes, "UTF-8");
    }
}
