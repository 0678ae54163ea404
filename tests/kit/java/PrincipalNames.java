import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Asks Java for the text of names in DER (hexadecimal), and Kafka for the principals that its mapping rules make of names.
 * Each line of the input is a question with its arguments, separated by tabs; each is answered with one line. Texts are base64.
 */
public class PrincipalNames {
    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            System.out.println(words[0].equals("name") ? name(words[1]) : principal(text(words[1]), text(words[2])));
        }
    }

    private static String name(String der) {
        return base64(new X500Principal(HexFormat.of().parseHex(der)).getName());
    }

    private static String principal(String rules, String name) {
        try {
            return base64(SslPrincipalMapper.fromRules(rules).getName(name));
        } catch (Exception error) {
            return "!";
        }
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
