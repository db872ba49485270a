import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints what Kafka defines for broker and topic properties, one JSON object a line. See record_configs.py. */
public class DumpDefinitions {
    public static void main(String[] args) throws Exception {
        dump("broker", AbstractKafkaConfig.CONFIG_DEF);
        Field topic = LogConfig.class.getDeclaredField("CONFIG");
        topic.setAccessible(true);
        dump("topic", (ConfigDef) topic.get(null));
        for (Map.Entry<String, List<ConfigSynonym>> entry
                : new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).entrySet()) {
            List<String> names = new ArrayList<>();
            for (ConfigSynonym synonym : entry.getValue()) names.add(quoted(synonym.name()));
            System.out.printf("{\"kind\": \"synonym\", \"name\": %s, \"broker\": %s}%n", quoted(entry.getKey()), names);
        }
    }

    private static void dump(String kind, ConfigDef definitions) {
        Map<String, String> updates = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : new TreeMap<>(definitions.configKeys()).values()) {
            Object value = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE
                ? "<<none>>" : key.defaultValue == null ? null : ConfigDef.convertToString(key.defaultValue, key.type);
            System.out.printf(
                "{\"kind\": \"%s\", \"name\": %s, \"type\": \"%s\", \"default\": %s, \"validator\": %s, "
                    + "\"importance\": \"%s\", \"internal\": %s, \"update\": \"%s\"}%n",
                kind, quoted(key.name), key.type, quoted(value), quoted(key.validator), key.importance,
                key.internalConfig, kind.equals("topic") ? "cluster-wide" : updates.getOrDefault(key.name, "read-only"));
        }
    }

    private static String quoted(Object value) {
        return value == null ? "null" : '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
