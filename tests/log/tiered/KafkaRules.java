// What Kafka's own classes decide, for cases that come line by line on stdin; one line of answer each.
//
//   states                                   which state may follow which: rows "from to true|false"; ends with "."
//   written                                  events as RemoteLogMetadataSerde writes them: rows "base64 text"; ends with "."
//   within LOG_END SEGMENT LINEAGE           RemoteLogManager.isRemoteSegmentWithinLeaderEpochs
//   cache SEGMENT;SEGMENT...  EPOCH:OFFSET,EPOCH:OFFSET,...
//       RemoteLogMetadataCache after those segments were copied one after the other: for each pair the number of the
//       segment that it finds, or -
//
// SEGMENT: START-END/EPOCH:OFFSET,EPOCH:OFFSET,...   LINEAGE: EPOCH:OFFSET,...
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

public class KafkaRules {
    static final TopicIdPartition PARTITION =
        new TopicIdPartition(Uuid.fromString("lZ6vvmajTWKDBUTV6SQAtQ"), new TopicPartition("t", 0));

    static final Method ADD = method(RemoteLogMetadataCache.class, "addCopyInProgressSegment", RemoteLogSegmentMetadata.class);
    static final Method UPDATE =
        method(RemoteLogMetadataCache.class, "updateRemoteLogSegmentMetadata", RemoteLogSegmentMetadataUpdate.class);
    static final Method FIND = method(RemoteLogMetadataCache.class, "remoteLogSegmentMetadata", int.class, long.class);
    static final Method WITHIN = method(RemoteLogManager.class, "isRemoteSegmentWithinLeaderEpochs",
        RemoteLogSegmentMetadata.class, long.class, NavigableMap.class);
    static final Method FILTERED = method(RemoteLogManager.class, "buildFilteredLeaderEpochMap", NavigableMap.class);

    static Method method(Class<?> owner, String name, Class<?>... parameters) {
        try {
            Method found = owner.getDeclaredMethod(name, parameters);
            found.setAccessible(true);  // some are visible in their package only
            return found;
        } catch (NoSuchMethodException error) {
            throw new IllegalStateException(error);
        }
    }

    static NavigableMap<Integer, Long> epochs(String text) {
        NavigableMap<Integer, Long> map = new TreeMap<>();
        for (String entry : text.split(",")) {
            String[] parts = entry.split(":");
            map.put(Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
        }
        return map;
    }

    static RemoteLogSegmentMetadata segment(String text) {
        String[] parts = text.split("/");
        String[] offsets = parts[0].split("-");
        return new RemoteLogSegmentMetadata(new RemoteLogSegmentId(PARTITION, Uuid.randomUuid()),
            Long.parseLong(offsets[0]), Long.parseLong(offsets[1]), 0L, 0, 0L, 100, epochs(parts[1]));
    }

    static String cache(String segments, String queries) throws Exception {
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        Map<Uuid, Integer> numbers = new HashMap<>();
        for (String text : segments.split(";")) {
            RemoteLogSegmentMetadata segment = segment(text);
            numbers.put(segment.remoteLogSegmentId().id(), numbers.size());
            ADD.invoke(cache, segment);
            UPDATE.invoke(cache, new RemoteLogSegmentMetadataUpdate(segment.remoteLogSegmentId(), 0L,
                Optional.empty(), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 0));
        }
        StringJoiner answer = new StringJoiner(",");
        for (String query : queries.split(",")) {
            String[] parts = query.split(":");
            Optional<?> found = (Optional<?>) FIND.invoke(cache, Integer.parseInt(parts[0]), Long.parseLong(parts[1]));
            answer.add(found.map(it -> numbers.get(((RemoteLogSegmentMetadata) it).remoteLogSegmentId().id()).toString())
                .orElse("-"));
        }
        return answer.toString();
    }

    static void written() {
        RemoteLogSegmentId id = new RemoteLogSegmentId(PARTITION, Uuid.fromString("adh9f8BMS4anaUnD8KWfWg"));
        Optional<CustomMetadata> custom = Optional.of(new CustomMetadata(new byte[] {1, 2, 3}));
        List<RemoteLogMetadata> events = new ArrayList<>();
        for (boolean empty : new boolean[] {false, true})
            events.add(new RemoteLogSegmentMetadata(id, 5L, 1L << 40, 1714521600000L, 7, 1714521700000L, Integer.MAX_VALUE,
                custom, RemoteLogSegmentState.COPY_SEGMENT_FINISHED, epochs("0:5,3:700,2147483647:800"), empty));
        events.add(new RemoteLogSegmentMetadataUpdate(id, 1L, custom, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, 3));
        for (RemotePartitionDeleteState state : RemotePartitionDeleteState.values())
            events.add(new RemotePartitionDeleteMetadata(PARTITION, state, 1714521800000L, 2));
        for (RemoteLogMetadata event : events)
            System.out.println(Base64.getEncoder().encodeToString(new RemoteLogMetadataSerde().serialize(event)) + " " + event);
        System.out.println(".");
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "states" -> {
                    for (RemoteLogSegmentState from : RemoteLogSegmentState.values())
                        for (RemoteLogSegmentState to : RemoteLogSegmentState.values())
                            System.out.println(from + " " + to + " " + RemoteLogSegmentState.isValidTransition(from, to));
                    System.out.println(".");
                }
                case "written" -> written();
                case "within" -> System.out.println(WITHIN.invoke(null, segment(words[2]), Long.parseLong(words[1]),
                    FILTERED.invoke(null, epochs(words[3]))));
                case "cache" -> System.out.println(cache(words[1], words[2]));
                default -> throw new IllegalArgumentException(line);
            }
        }
    }
}
