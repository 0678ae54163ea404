import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints Kafka's error codes as JSON, for tools/generate_error_codes.py: name, code, whether retriable, text. */
public class ErrorCodes {
    public static void main(String[] args) throws Exception {
        List<List<Object>> rows = new ArrayList<>();
        for (Errors error : Errors.values()) {
            boolean isRetriable = error.exception() instanceof RetriableException;
            String text = error == Errors.NONE ? null : error.message();
            rows.add(Arrays.asList(error.name(), error.code(), isRetriable, text));
        }
        System.out.println(new ObjectMapper().writeValueAsString(rows));
    }
}
