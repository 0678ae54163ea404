import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Answers one JSON case per line with what Kafka decides: a change of a partition, or the placement of new ones.
 * tools/capture_partition_decisions.py makes the cases and keeps the answers as golden files.
 */
public class PartitionDecisions {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode given = MAPPER.readTree(line);
            Object answer = given.has("brokers") ? place(given) : change(given);
            System.out.println(MAPPER.writeValueAsString(answer));
        }
    }

    /** As ReplicationControlManager.changePartitionReassignment. */
    private static void reassign(PartitionRegistration partition, List<Integer> replicas,
                                 PartitionChangeBuilder builder) throws Exception {
        List<Integer> current = new ArrayList<>();
        for (int replica : partition.replicas) current.add(replica);
        Object reassignment = hidden("PartitionReassignmentReplicas", PartitionAssignment.class, PartitionAssignment.class)
            .newInstance(new PartitionAssignment(current, partition::directory),
                new PartitionAssignment(replicas, broker -> DirectoryId.UNASSIGNED));
        if (!ask(reassignment, "replicas").equals(current)) builder.setTargetReplicas(ask(reassignment, "replicas"));
        if (!ask(reassignment, "removing").isEmpty()) builder.setTargetRemoving(ask(reassignment, "removing"));
        if (!ask(reassignment, "adding").isEmpty()) builder.setTargetAdding(ask(reassignment, "adding"));
    }

    /** As ReplicationControlManager.cancelPartitionReassignment; false if it refuses. */
    private static boolean cancel(PartitionRegistration partition, boolean uncleanAllowed,
                                  PartitionChangeBuilder builder) throws Exception {
        Object revert = hidden("PartitionReassignmentRevert", PartitionRegistration.class).newInstance(partition);
        Method unclean = revert.getClass().getDeclaredMethod("unclean");
        unclean.setAccessible(true);
        if ((boolean) unclean.invoke(revert) && !uncleanAllowed) return false;
        builder.setTargetIsr(ask(revert, "isr")).setTargetReplicas(ask(revert, "replicas"));
        builder.setTargetRemoving(List.of()).setTargetAdding(List.of());
        return true;
    }

    private static Constructor<?> hidden(String name, Class<?>... parameters) throws Exception {
        Constructor<?> constructor =
            Class.forName("org.apache.kafka.controller." + name).getDeclaredConstructor(parameters);
        constructor.setAccessible(true);
        return constructor;
    }

    @SuppressWarnings("unchecked")
    private static List<Integer> ask(Object object, String name) throws Exception {
        Method method = object.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return (List<Integer>) method.invoke(object);
    }

    private static Object change(JsonNode given) throws Exception {
        JsonNode p = given.get("partition");
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(ints(p.get("replicas")))
            .setDirectories(ids(p.get("directories")))
            .setIsr(ints(p.get("isr")))
            .setRemovingReplicas(ints(p.get("removing_replicas")))
            .setAddingReplicas(ints(p.get("adding_replicas")))
            .setElr(ints(p.get("elr")))
            .setLastKnownElr(ints(p.get("last_known_elr")))
            .setLeader(p.get("leader").asInt())
            .setLeaderRecoveryState(LeaderRecoveryState.of((byte) p.get("leader_recovery_state").asInt()))
            .setLeaderEpoch(5)
            .setPartitionEpoch(10)
            .build();
        Set<Integer> mayLead = new TreeSet<>(list(given.get("may_lead")));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(
            partition, Uuid.ZERO_UUID, 0, mayLead::contains,
            MetadataVersion.fromFeatureLevel((short) given.get("metadata_version").asInt()),
            given.get("min_insync_replicas").asInt(), given.get("elr_enabled").asBoolean());
        builder.setDefaultDirProvider(broker -> DirectoryId.UNASSIGNED);
        JsonNode wanted = given.get("wanted");
        if (wanted.has("cancel") && !cancel(partition, wanted.get("unclean").asBoolean(), builder)) return "refused";
        if (wanted.has("reassign")) reassign(partition, list(wanted.get("reassign")), builder);
        builder.setElection(PartitionChangeBuilder.Election.valueOf(wanted.get("election").asText()));
        if (wanted.has("isr")) builder.setTargetIsr(list(wanted.get("isr")));
        if (wanted.has("leader_recovery_state")) builder.setTargetLeaderRecoveryState(
            LeaderRecoveryState.of((byte) wanted.get("leader_recovery_state").asInt()));
        if (wanted.has("lost_replica"))
            builder.setUncleanShutdownReplicas(List.of(wanted.get("lost_replica").asInt()));
        wanted.get("directories").fields().forEachRemaining(entry ->
            builder.setDirectory(Integer.parseInt(entry.getKey()), new Uuid(0, entry.getValue().asLong())));

        Optional<ApiMessageAndVersion> built = builder.build();
        if (built.isEmpty()) return null;
        PartitionChangeRecord record = (PartitionChangeRecord) built.get().message();
        TreeMap<String, Object> answer = new TreeMap<>();
        if (record.leader() != -2) answer.put("leader", record.leader());
        if (record.isr() != null) answer.put("isr", record.isr());
        if (record.replicas() != null) answer.put("replicas", record.replicas());
        if (record.removingReplicas() != null) answer.put("removing_replicas", record.removingReplicas());
        if (record.addingReplicas() != null) answer.put("adding_replicas", record.addingReplicas());
        if (record.leaderRecoveryState() != -1) answer.put("leader_recovery_state", record.leaderRecoveryState());
        if (record.eligibleLeaderReplicas() != null)
            answer.put("eligible_leader_replicas", new TreeSet<>(record.eligibleLeaderReplicas()));
        if (record.lastKnownElr() != null) answer.put("last_known_elr", record.lastKnownElr());
        if (record.directories() != null) {
            List<Long> directories = new ArrayList<>();
            record.directories().forEach(id -> directories.add(id.getLeastSignificantBits()));
            answer.put("directories", directories);
        }
        return answer;
    }

    /** With a random that always gives 0, so that another implementation can follow. */
    private static Object place(JsonNode given) {
        Random zero = new Random() {
            @Override
            public int nextInt(int bound) {
                return 0;
            }
        };
        List<UsableBroker> brokers = new ArrayList<>();
        for (JsonNode b : given.get("brokers")) brokers.add(new UsableBroker(
            b.get(0).asInt(), Optional.ofNullable(b.get(1).textValue()), b.get(2).asBoolean()));
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public Uuid defaultDir(int brokerId) {
                return DirectoryId.UNASSIGNED;
            }
        };
        PlacementSpec spec = new PlacementSpec(
            0, given.get("num_partitions").asInt(), (short) given.get("replication_factor").asInt());
        List<List<Integer>> placed = new ArrayList<>();
        for (PartitionAssignment assignment : new StripedReplicaPlacer(zero).place(spec, cluster).assignments())
            placed.add(assignment.replicas());
        return placed;
    }

    private static List<Integer> list(JsonNode node) {
        List<Integer> values = new ArrayList<>();
        node.forEach(value -> values.add(value.asInt()));
        return values;
    }

    private static int[] ints(JsonNode node) {
        return list(node).stream().mapToInt(Integer::intValue).toArray();
    }

    private static Uuid[] ids(JsonNode node) {
        return list(node).stream().map(value -> new Uuid(0, value)).toArray(Uuid[]::new);
    }
}
