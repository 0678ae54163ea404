import java.util.Map;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.protocol.Errors;

/** Prints Kafka's own texts of its error codes as JSON, for tools/generate_error_texts.py. */
public class ErrorTexts {
    public static void main(String[] args) throws Exception {
        Map<Short, String> texts = new TreeMap<>();
        for (Errors error : Errors.values()) {
            if (error != Errors.NONE) {
                texts.put(error.code(), error.message());
            }
        }
        System.out.println(new ObjectMapper().writeValueAsString(texts));
    }
}
