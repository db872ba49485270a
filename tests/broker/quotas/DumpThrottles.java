import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.server.quota.QuotaUtils;

/** Prints what Kafka's own classes say of random loads: a JSON array of cases. See record_throttles.py. */
public class DumpThrottles {
    public static void main(String[] args) {
        Random random = new Random(4711);
        int[][] windows = {{11, 1}, {2, 1}, {1, 3}, {5, 2}};
        StringBuilder out = new StringBuilder("[\n");
        for (int number = 0; number < 24; number++) {
            int[] window = windows[number % windows.length];
            boolean bucket = number % 3 == 2;
            double limit = bucket ? 0.5 + random.nextInt(40) : 100 + random.nextInt(100_000);
            MetricConfig config = new MetricConfig().timeWindow(window[1], TimeUnit.SECONDS).samples(window[0])
                .quota(Quota.upperBound(limit));
            Metrics metrics = new Metrics();
            Sensor sensor = metrics.sensor("s", config, Long.MAX_VALUE);
            sensor.add(metrics.metricName("m", "g"), bucket ? new TokenBucket(TimeUnit.SECONDS) : new Rate());
            long now = 1_000_000;
            out.append(number == 0 ? "" : ",\n").append(String.format(
                "{\"kind\": \"%s\", \"count\": %d, \"ms\": %d, \"limit\": %s, \"steps\": [",
                bucket ? "bucket" : "rate", window[0], window[1] * 1000, limit));
            for (int step = 0; step < 60; step++) {
                int pace = random.nextInt(10);
                now += pace == 0 ? random.nextInt(15_000) : pace < 4 ? 0 : random.nextInt(900);
                double value = random.nextInt(5) == 0 ? 0 : Math.round(limit * random.nextDouble() * (bucket ? 4 : 3));
                sensor.record(value, now, false);
                long wait = 0;
                try {
                    sensor.checkQuotas(now);
                } catch (QuotaViolationException e) {
                    wait = bucket ? Math.round(-e.value() / e.bound() * 1000) : QuotaUtils.throttleTime(e, now);
                }
                out.append(step == 0 ? "" : ", ").append(String.format("[%d, %s, %d]", now, value, wait));
            }
            out.append("]}");
            metrics.close();
        }
        System.out.println(out.append("\n]"));
    }
}
