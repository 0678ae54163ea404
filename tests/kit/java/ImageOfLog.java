import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.OptionalInt;
import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.util.BatchFileReader;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.config.DefaultSupportedConfigChecker;

/**
 * Prints what Kafka's own classes make of metadata files. Each line of the input is a command with its arguments,
 * separated by tabs; its answer is a JSON array of records in one line, each {"type", "version", "data"}:
 *
 *     records CHECKPOINT             the records of a checkpoint
 *     image DIRECTORY END_OFFSET     the image at an offset of a log, replayed by the loader of Kafka's nodes
 */
public final class ImageOfLog {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String SEGMENT = ".log";

    public static void main(String[] none) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            output.println(asJson(switch (words[0]) {
                case "records" -> records(words[1]);
                case "image" -> image(new File(words[1]), Long.parseLong(words[2]));
                default -> throw new IllegalArgumentException(line);
            }));
        }
    }

    private static List<ApiMessageAndVersion> records(String file) throws Exception {
        List<ApiMessageAndVersion> found = new ArrayList<>();
        try (BatchFileReader reader = new BatchFileReader.Builder().setPath(file).build()) {
            while (reader.hasNext()) {
                BatchFileReader.BatchAndType next = reader.next();
                if (!next.isControl()) {
                    found.addAll(next.batch().records());
                }
            }
        }
        return found;
    }

    private static List<ApiMessageAndVersion> image(File directory, long endOffset) throws Exception {
        MetadataImage[] last = {MetadataImage.EMPTY};
        MetadataBatchLoader loader = new MetadataBatchLoader(
            new LogContext(), Time.SYSTEM,
            (message, cause) -> {
                throw new IllegalStateException(message, cause);
            },
            (delta, image, manifest) -> last[0] = image,
            new DefaultSupportedConfigChecker());
        loader.resetToImage(MetadataImage.EMPTY);
        File[] segments = directory.listFiles((parent, name) -> name.endsWith(SEGMENT));
        Arrays.sort(segments, Comparator.comparing(File::getName));
        LeaderAndEpoch leader = LeaderAndEpoch.UNKNOWN;
        for (File segment : segments) {
            try (BatchFileReader reader = new BatchFileReader.Builder().setPath(segment.getPath()).build()) {
                while (reader.hasNext()) {
                    BatchFileReader.BatchAndType next = reader.next();
                    Batch<ApiMessageAndVersion> batch = next.batch();
                    if (batch.lastOffset() >= endOffset) {
                        break;
                    }
                    if (!next.isControl()) {
                        leader = new LeaderAndEpoch(OptionalInt.empty(), batch.epoch());
                        loader.loadBatch(batch, leader);
                    }
                }
            }
        }
        loader.maybeFlushBatches(leader, true);
        RecordListWriter writer = new RecordListWriter();
        last[0].write(writer, new ImageWriterOptions.Builder(last[0]).build());
        return writer.records();
    }

    private static ArrayNode asJson(List<ApiMessageAndVersion> records) {
        ArrayNode lines = JSON.createArrayNode();
        for (ApiMessageAndVersion record : records) {
            ObjectNode line = lines.addObject();
            line.put("type", MetadataRecordType.fromId(record.message().apiKey()).name());
            line.put("version", record.version());
            line.set("data", MetadataJsonConverters.writeJson(record.message(), record.version()));
        }
        return lines;
    }
}
