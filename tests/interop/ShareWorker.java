import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group. Arguments: bootstrap servers, group, topic, mode, and further properties as key=value.
 *
 * Modes: "accept" says in words that each record was processed, and waits for the answer; "implicit" lets the next poll
 * say it; "mixed" releases each third record at its first delivery and rejects each seventh; "renew" renews first, and
 * the next poll gives the same again; "hold" takes what the first poll gives and does nothing with it;
 * "count" counts records and says every second how many there were.
 *
 * Prints, one line each: "ready" once it polls; "G time partition first last count" for what it was given (offsets of one
 * delivery count next to each other), "A time partition first last" for what the broker has confirmed, "E text" for
 * what it refused. Times are nanoseconds of the machine's clock. Ends when its input does.
 */
public class ShareWorker {
    private static final StringBuilder OUT = new StringBuilder();

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[1]);
        String mode = args[3];
        properties.put("share.acknowledgement.mode", mode.equals("implicit") || mode.equals("count") ? "implicit" : "explicit");
        for (int at = 4; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            System.out.println("ready");
            List<long[]> waiting = new ArrayList<>();
            Set<String> renewed = new HashSet<>();
            long counted = 0;
            while (System.in.available() == 0) {
                ConsumerRecords<byte[], byte[]> records;
                try {
                    records = consumer.poll(Duration.ofMillis(200));
                } catch (KafkaException error) {
                    say("E " + error);
                    continue;
                }
                if (mode.equals("count")) {
                    counted += records.count();
                    say("C " + System.nanoTime() + " " + counted);
                    continue;
                }
                if (records.isEmpty()) {
                    if (mode.equals("implicit") && !waiting.isEmpty()) {
                        confirmed(consumer.commitSync(), waiting);
                    }
                    flush();
                    continue;
                }
                waiting = new ArrayList<>();
                long now = System.nanoTime();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    long count = record.deliveryCount().orElse((short) 0);
                    note(waiting, record, count, chosen(mode, record, count));
                }
                for (long[] run : waiting) {
                    OUT.append("G ").append(now).append(' ').append(run[0]).append(' ').append(run[1]).append(' ')
                        .append(run[2]).append(' ').append(run[3]).append('\n');
                }
                flush();
                while (mode.equals("hold") && System.in.available() == 0) {
                    Thread.sleep(20);
                }
                if (!mode.equals("implicit")) {
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        AcknowledgeType type = chosen(mode, record, record.deliveryCount().orElse((short) 0));
                        boolean renews = mode.equals("renew") && renewed.add(record.partition() + ":" + record.offset());
                        consumer.acknowledge(record, renews ? AcknowledgeType.RENEW : type);
                    }
                }
                confirmed(consumer.commitSync(), waiting);
            }
        }
        flush();
    }

    private static AcknowledgeType chosen(String mode, ConsumerRecord<byte[], byte[]> record, long count) {
        if (mode.equals("mixed")) {
            if (record.offset() % 7 == 0) return AcknowledgeType.REJECT;
            if (record.offset() % 3 == 0 && count == 1) return AcknowledgeType.RELEASE;
        }
        return AcknowledgeType.ACCEPT;
    }

    /** Runs of offsets with one partition, count and type. */
    private static void note(
            List<long[]> runs, ConsumerRecord<byte[], byte[]> record, long count, AcknowledgeType type) {
        long[] last = runs.isEmpty() ? null : runs.get(runs.size() - 1);
        if (last != null && last[0] == record.partition() && last[2] + 1 == record.offset() && last[3] == count && last[4] == type.id) {
            last[2] = record.offset();
        } else {
            runs.add(new long[] {record.partition(), record.offset(), record.offset(), count, type.id});
        }
    }

    private static void confirmed(Map<TopicIdPartition, Optional<KafkaException>> result, List<long[]> runs) {
        long now = System.nanoTime();
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> entry : result.entrySet()) {
            for (long[] run : runs) {
                if (run[0] != entry.getKey().partition() || entry.getValue().isPresent()) continue;
                String what = run[4] == AcknowledgeType.ACCEPT.id ? "A" : run[4] == AcknowledgeType.REJECT.id ? "R" : "L";
                OUT.append(what).append(' ').append(now).append(' ').append(run[0]).append(' ').append(run[1]).append(' ').append(run[2]).append('\n');
            }
            entry.getValue().ifPresent(error -> OUT.append("E ").append(error.toString().replace('\n', ' ')).append('\n'));
        }
        runs.clear();
        flush();
    }

    private static void say(String line) {
        OUT.append(line).append('\n');
        flush();
    }

    private static void flush() {
        System.out.print(OUT);
        System.out.flush();
        OUT.setLength(0);
    }
}
