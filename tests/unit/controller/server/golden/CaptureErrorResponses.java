import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;

/**
 * Prints Kafka's own error response to each request of a file, as the lines of error_responses.txt:
 * API key, version, request body, body of the NOT_CONTROLLER response to it, both in hexadecimal.
 *
 * java -cp 'kafka/libs/*' CaptureErrorResponses.java error_responses.txt
 */
public class CaptureErrorResponses {
    public static void main(String[] args) throws Exception {
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] fields = line.split(" ");
            short version = Short.parseShort(fields[1]);
            ApiKeys api = ApiKeys.forId(Short.parseShort(fields[0]));
            byte[] body = HexFormat.of().parseHex(fields[2].equals("-") ? "" : fields[2]);
            AbstractRequest request =
                AbstractRequest.parseRequest(api, version, new ByteBufferAccessor(ByteBuffer.wrap(body))).request;
            ByteBuffer response = MessageUtil.toByteBufferAccessor(
                request.getErrorResponse(0, Errors.NOT_CONTROLLER.exception()).data(), version).buffer();
            byte[] bytes = new byte[response.remaining()];
            response.get(bytes);
            System.out.println(fields[0] + " " + fields[1] + " " + fields[2] + " " + HexFormat.of().formatHex(bytes));
        }
    }
}
