import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * An application of Kafka Streams. Arguments: bootstrap servers, application id, state directory, further properties as
 * key=value.
 *
 * Topics, of texts: "words" counted by value into "counts", "numbers" summed by key and windows of ten seconds into
 * "sums" (key@start), "orders" joined by key with the table "users" into "joined". Each change is written: nothing is
 * cached. Prints its state at each change. Ends when its input does, and then it leaves its group.
 */
public class StreamsWork {
    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        for (int at = 3; at < args.length; at++) {
            String[] pair = args[at].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("words")
            .groupBy((key, word) -> word, Grouped.as("by-word"))
            .count()
            .toStream().mapValues(String::valueOf).to("counts");
        builder.<String, String>stream("numbers")
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofDays(1)))
            .reduce((one, other) -> String.valueOf(Long.parseLong(one) + Long.parseLong(other)))
            .toStream((window, sum) -> window.key() + "@" + window.window().start()).to("sums");
        KStream<String, String> orders = builder.stream("orders");
        orders.join(builder.<String, String>table("users"), (order, user) -> order + ":" + user).to("joined");
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
        while (System.in.read() >= 0) { }
        streams.close(Duration.ofSeconds(30));
    }
}
