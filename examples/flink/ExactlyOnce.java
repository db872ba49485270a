import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Numbers 0 to N - 1 into a topic, each once for readers of committed records, although the job fails in the middle and
 * begins again at its last checkpoint. Arguments: bootstrap servers, topic, N.
 */
public class ExactlyOnce {
    private static final AtomicBoolean FAILED = new AtomicBoolean();

    public static void main(String[] arguments) throws Exception {
        long count = Long.parseLong(arguments[2]);
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "3");
        settings.setString("restart-strategy.fixed-delay.delay", "100 ms");
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        flink.setParallelism(2);
        flink.enableCheckpointing(500);
        DataGeneratorSource<Long> numbers = new DataGeneratorSource<>(
            number -> number, count, RateLimiterStrategy.perSecond(count / 5.0), Types.LONG);
        KafkaSink<String> topic = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("exactly-once")
            .setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(arguments[1]).setValueSerializationSchema(new SimpleStringSchema()).build())
            .build();
        flink.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers")
            .map(number -> {
                if (number > count / 2 && FAILED.compareAndSet(false, true)) {
                    throw new IllegalStateException("in the middle");
                }
                return number.toString();
            })
            .sinkTo(topic);
        flink.execute();
        System.out.println("failed once: " + FAILED.get());
    }
}
