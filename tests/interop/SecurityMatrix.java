import java.io.FileReader;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.ArrayList;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** For each .properties file of a directory what happens to clients with it: a line `file, step, result`, tabs between. */
public class SecurityMatrix {
    static final int COUNT = 20;

    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<?>> cells = new ArrayList<>();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(Path.of(args[0]), "*.properties")) {
            for (Path file : files) cells.add(pool.submit(() -> cell(file)));
        }
        for (Future<?> cell : cells) cell.get();
        pool.shutdown();
    }

    private static Void cell(Path file) throws Exception {
        Properties given = new Properties();
        try (FileReader reader = new FileReader(file.toFile())) { given.load(reader); }
        String name = file.getFileName().toString().replace(".properties", "");
        String topic = (String) given.remove("matrix.topic");
        for (String step : ((String) given.remove("matrix.steps")).split(",")) {
            String result;
            try {
                result = switch (step) {
                    case "produce" -> produce(given, topic);
                    case "group" -> group(given, topic);
                    case "transaction" -> transaction(given, topic);
                    case "reauthentication" -> lasting(given, topic);
                    default -> connect(given, topic);
                };
            } catch (Exception error) {
                Throwable cause = error;
                while (cause.getCause() != null && !(cause instanceof AuthenticationException)) cause = cause.getCause();
                result = cause.getClass().getSimpleName() + (cause instanceof AuthenticationException ? "" : ": " + cause.getMessage());
            }
            synchronized (System.out) { System.out.println(name + "\t" + step + "\t" + result.replace('\n', ' ')); }
        }
        return null;
    }

    private static Properties with(Properties given, Map<String, Object> more) {
        Properties all = new Properties();
        all.putAll(given);
        all.putAll(more);
        return all;
    }

    private static KafkaProducer<String, String> producer(Properties given, Map<String, Object> more) {
        Properties all = with(given, more);
        all.put("max.block.ms", 60000);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private static String connect(Properties given, String topic) {
        try (KafkaProducer<String, String> producer = producer(given, Map.of())) {
            return "connected, " + producer.partitionsFor(topic).size();
        }
    }

    private static String produce(Properties given, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = producer(given, Map.of("acks", "all"))) {
            List<Future<?>> sent = new ArrayList<>();
            for (int n = 0; n < COUNT; n++) sent.add(producer.send(new ProducerRecord<>(topic, 0, "k", "v" + n)));
            for (Future<?> one : sent) one.get();
            return "sent " + COUNT;
        }
    }

    private static int read(KafkaConsumer<String, String> consumer, int wanted) {
        int found = 0;
        for (int tries = 0; found < wanted && tries < 600; tries++) found += consumer.poll(Duration.ofMillis(100)).count();
        return found;
    }

    private static KafkaConsumer<String, String> consumer(Properties given, String group) {
        return new KafkaConsumer<>(
            with(given, Map.of("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", false,
                               "isolation.level", "read_committed")),
            new StringDeserializer(), new StringDeserializer());
    }

    private static String group(Properties given, String topic) {
        int found;
        try (KafkaConsumer<String, String> consumer = consumer(given, topic + "-group")) {
            consumer.subscribe(List.of(topic));
            found = read(consumer, COUNT);
            consumer.commitSync();
            long committed = consumer.committed(java.util.Set.of(new TopicPartition(topic, 0)))
                .get(new TopicPartition(topic, 0)).offset();
            return "read " + found + ", committed " + committed;
        }
    }

    private static String transaction(Properties given, String topic) throws Exception {
        try (KafkaProducer<String, String> producer = producer(given, Map.of("transactional.id", topic + "-t"))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, "k", "aborted"));
            producer.abortTransaction();
            producer.beginTransaction();
            for (int n = 0; n < COUNT; n++) producer.send(new ProducerRecord<>(topic, 0, "k", "t" + n));
            producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(7)), new ConsumerGroupMetadata(topic + "-tg"));
            producer.commitTransaction();
        }
        try (KafkaConsumer<String, String> consumer = consumer(given, topic + "-after")) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            consumer.seekToBeginning(List.of(new TopicPartition(topic, 0)));
            return "read " + read(consumer, 2 * COUNT);
        }
    }

    /** A busy machine may not let a client renew its session in time; one that cannot renew it fails each time. */
    private static String lasting(Properties given, String topic) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                return lastingOnce(given, topic);
            } catch (ExecutionException error) {
                if (tries == 4) throw error;
            }
        }
    }

    /** Traffic that is longer than a session: each record is waited for. */
    private static String lastingOnce(Properties given, String topic) throws Exception {
        long end = System.nanoTime() + 3_500_000_000L;
        try (KafkaProducer<String, String> producer = producer(given, Map.of("acks", "all", "retries", 0))) {
            int sent = 0;
            for (; System.nanoTime() < end; sent++) {
                producer.send(new ProducerRecord<>(topic, 0, "k", "r")).get();
                Thread.sleep(5);
            }
            double again = 0;
            for (var metric : producer.metrics().values()) {
                if (metric.metricName().name().equals("successful-reauthentication-total")) again += (double) metric.metricValue();
            }
            return sent > 10 && again >= 1 ? "authenticated again" : "sent " + sent + ", authenticated again " + again;
        }
    }
}
