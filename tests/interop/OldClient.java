import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Producer and a group of two consumers of kafka-clients 0.9 or 0.10: bootstrap, topic (two partitions), codec, count.
 * Prints what was produced, read and committed, a line each. */
public class OldClient {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1], codec = args[2];
        int count = Integer.parseInt(args[3]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("acks", "all");
        properties.put("linger.ms", "5");
        properties.put("compression.type", codec);
        String name = "org.apache.kafka.common.serialization.String";
        properties.put("key.serializer", name + "Serializer");
        properties.put("value.serializer", name + "Serializer");
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < count; n++)
                sent.add(producer.send(new ProducerRecord<>(topic, n % 2, n % 3 == 0 ? null : "key " + n, "value " + n)));
            for (int n = 0; n < count; n++) {
                RecordMetadata at = sent.get(n).get();
                if (at.partition() != n % 2 || at.offset() != n / 2) throw new AssertionError(n + " is at " + at.offset());
            }
            System.out.println("produced " + count);
        }
        Properties group = new Properties();
        group.put("bootstrap.servers", bootstrap);
        group.put("group.id", "group of " + topic);
        group.put("auto.offset.reset", "earliest");
        group.put("enable.auto.commit", "false");
        group.put("key.deserializer", name + "Deserializer");
        group.put("value.deserializer", name + "Deserializer");
        boolean[] seen = new boolean[count];
        try (KafkaConsumer<String, String> one = new KafkaConsumer<>(group);
                KafkaConsumer<String, String> other = new KafkaConsumer<>(group)) {
            one.subscribe(Collections.singletonList(topic));
            other.subscribe(Collections.singletonList(topic));
            long end = System.currentTimeMillis() + 60_000;
            List<KafkaConsumer<String, String>> both = Arrays.asList(one, other);
            List<Thread> threads = new ArrayList<>();
            int[] rest = {count};
            for (KafkaConsumer<String, String> consumer : both) {
                Thread thread = new Thread(() -> {
                    while (System.currentTimeMillis() < end) {
                        for (ConsumerRecord<String, String> record : consumer.poll(100)) {
                            int n = (int) record.offset() * 2 + record.partition();
                            String key = n % 3 == 0 ? null : "key " + n;
                            if (!record.value().equals("value " + n) || !java.util.Objects.equals(record.key(), key))
                                throw new AssertionError(record);
                            synchronized (rest) {
                                if (!seen[n]) rest[0]--;
                                seen[n] = true;
                            }
                        }
                        consumer.commitSync();
                        synchronized (rest) {
                            if (rest[0] == 0) return;
                        }
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) thread.join();
            System.out.println("read " + (count - rest[0]));
        }
        try (KafkaConsumer<String, String> again = new KafkaConsumer<>(group)) {
            TopicPartition first = new TopicPartition(topic, 0), last = new TopicPartition(topic, 1);
            again.assign(Arrays.asList(first, last));
            System.out.println("committed " + again.committed(first).offset() + " " + again.committed(last).offset());
            System.out.println("position " + again.position(first) + " " + again.position(last));
        }
    }
}
