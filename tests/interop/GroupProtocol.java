import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/** Kafka's own consumer with group.protocol=consumer: members come, go, return, change protocol; one line a step. */
public class GroupProtocol {
    static final int PARTITIONS = 6;
    static String bootstrap;
    static Map<String, String> processed = new HashMap<>();
    static Map<TopicPartition, Long> committed = new HashMap<>();
    static Producer<String, String> producer;
    static int sent = 0;

    static Consumer<String, String> consumer(String group, String protocol, String instance) {
        Map<String, Object> conf = new HashMap<>();
        conf.put("bootstrap.servers", bootstrap);
        conf.put("group.id", group);
        conf.put("group.protocol", protocol);
        conf.put("auto.offset.reset", "earliest");
        conf.put("enable.auto.commit", "false");
        if (instance != null) conf.put("group.instance.id", instance);
        if (protocol.equals("classic")) {
            conf.put("session.timeout.ms", "6000");
            conf.put("heartbeat.interval.ms", "300");
            conf.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        return new KafkaConsumer<>(conf, new StringDeserializer(), new StringDeserializer());
    }

    static void poll(Collection<Consumer<String, String>> members) {
        for (Consumer<String, String> member : members) {
            ConsumerRecords<String, String> records = member.poll(Duration.ofMillis(50));
            records.forEach(record -> processed.put(record.value(), record.value()));
            if (!records.isEmpty()) {
                try {
                    member.commitSync();
                } catch (CommitFailedException | org.apache.kafka.common.errors.RebalanceInProgressException error) {
                    // its partitions are another's by now, who reads these records again
                }
            }
        }
    }

    static void until(String what, Collection<Consumer<String, String>> members, java.util.function.BooleanSupplier done) {
        long end = System.nanoTime() + 60_000_000_000L;
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > end) {
                List<Object> shown = new ArrayList<>();
                members.forEach(member -> shown.add(member.assignment()));
                throw new IllegalStateException(what + ": " + shown + ", " + processed.size() + " of " + sent);
            }
            poll(members);
        }
        System.out.println(what);
    }

    static boolean shared(Collection<Consumer<String, String>> members) {
        List<TopicPartition> all = new ArrayList<>();
        for (Consumer<String, String> member : members) {
            if (member.assignment().isEmpty()) return false;
            all.addAll(member.assignment());
        }
        return all.size() == PARTITIONS && new HashSet<>(all).size() == PARTITIONS;
    }

    static void send(String topic) {
        for (int partition = 0; partition < PARTITIONS; partition++)
            producer.send(new ProducerRecord<>(topic, partition, null, "" + sent++));
        producer.flush();
    }

    static void checkCommitted(Admin admin, String group) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> found =
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        found.forEach((partition, offset) -> {
            if (offset == null) return;
            if (offset.offset() < committed.getOrDefault(partition, 0L))
                throw new IllegalStateException(partition + " went back to " + offset.offset());
            committed.put(partition, offset.offset());
        });
    }

    /** Its members go on until it is settled: the last heartbeat may be on its way. */
    static String described(Admin admin, String group, Collection<Consumer<String, String>> members) throws Exception {
        long end = System.nanoTime() + 30_000_000_000L;
        while (true) {
            ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            String shown = found.type() + " " + found.groupState() + " " + found.members().size();
            String state = found.groupState().toString();
            if (state.equals("Stable") || state.equals("Empty") || System.nanoTime() > end) return shown;
            poll(members);
        }
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        producer = new KafkaProducer<>(Map.of("bootstrap.servers", (Object) bootstrap), new StringSerializer(), new StringSerializer());
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", (Object) bootstrap))) {
            String topic = "java-orders", group = "java";
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
            List<Consumer<String, String>> members = new ArrayList<>();
            for (int number = 0; number < 3; number++) {
                Consumer<String, String> member = consumer(group, "consumer", null);
                member.subscribe(List.of(topic));
                members.add(member);
                send(topic);
                until(members.size() + " share", members, () -> shared(members));
            }
            System.out.println(described(admin, group, members));
            members.remove(0).close();
            send(topic);
            until("two are left", members, () -> shared(members));
            checkCommitted(admin, group);
            for (int number = 0; number < 2; number++) {
                members.remove(0).close();
                Consumer<String, String> classic = consumer(group, "classic", null);
                classic.subscribe(List.of(topic));
                members.add(classic);
                send(topic);
                until("classic member " + number, members, () -> shared(members));
                checkCommitted(admin, group);
            }
            System.out.println(described(admin, group, members));
            members.remove(0).close();
            Consumer<String, String> back = consumer(group, "consumer", null);
            back.subscribe(List.of(topic));
            members.add(back);
            send(topic);
            until("one goes back", members, () -> shared(members));
            System.out.println(described(admin, group, members));
            until("all processed", members, () -> processed.size() == sent);
            checkCommitted(admin, group);
            for (Consumer<String, String> member : members) member.close();
            System.out.println(described(admin, group, List.of()));

            List<Consumer<String, String>> statics = new ArrayList<>();
            for (int number = 0; number < 2; number++) {
                Consumer<String, String> member = consumer("java-statics", "consumer", "i" + number);
                member.subscribe(List.of(topic));
                statics.add(member);
            }
            until("statics share", statics, () -> shared(statics));
            Set<TopicPartition> before = new HashSet<>(statics.get(0).assignment());
            statics.remove(0).close();
            Consumer<String, String> again = consumer("java-statics", "consumer", "i0");
            again.subscribe(List.of(topic));
            statics.add(again);
            until("it has what it had", statics, () -> again.assignment().equals(before));
            for (Consumer<String, String> member : statics) member.close();

            Consumer<String, String> matching = consumer("java-matching", "consumer", null);
            matching.subscribe(new SubscriptionPattern("java-or.*"));
            List<Consumer<String, String>> one = List.of(matching);
            until("the expression matches", one, () -> matching.assignment().size() == PARTITIONS);
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(PARTITIONS + 2))).all().get();
            until("new partitions", one, () -> matching.assignment().size() == PARTITIONS + 2);
            try {
                matching.subscribe(new SubscriptionPattern("java-[or.*"));
                matching.poll(Duration.ofMillis(100));
                for (int turn = 0; turn < 100; turn++) matching.poll(Duration.ofMillis(50));
                System.out.println("not refused");
            } catch (org.apache.kafka.common.errors.InvalidRegularExpression error) {
                System.out.println(error.getMessage());
            }
            matching.close();
            producer.close();
        }
    }
}
