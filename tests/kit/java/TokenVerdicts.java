import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.AppConfigurationEntry.LoginModuleControlFlag;

import org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator;
import org.apache.kafka.common.security.oauthbearer.JwtValidatorException;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;

/**
 * Asks Kafka's BrokerJwtValidator. Each line of the input is a command with its arguments, separated by tabs; each question
 * is answered with one line.
 */
public class TokenVerdicts {
    private static final String PREFIX = "sasl.oauthbearer.";
    private static BrokerJwtValidator validator;

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "begin" -> begin(words);
                case "ask" -> System.out.println(verdict(words[1]));
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static void begin(String[] words) {
        Map<String, Object> configs = new HashMap<>();
        configs.put(PREFIX + "jwks.endpoint.url", words[1]);
        configs.put(PREFIX + "expected.audience", words[2].isEmpty() ? List.of() : List.of(words[2].split(",")));
        if (!words[3].isEmpty())
            configs.put(PREFIX + "expected.issuer", words[3]);
        configs.put(PREFIX + "allow.unverified.audience", words[2].isEmpty());
        configs.put(PREFIX + "allow.unverified.issuer", words[3].isEmpty());
        configs.put(PREFIX + "clock.skew.seconds", Integer.parseInt(words[4]));
        configs.put(PREFIX + "scope.claim.name", words[5]);
        configs.put(PREFIX + "sub.claim.name", words[6]);
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", words[1]);
        validator = new BrokerJwtValidator();
        validator.configure(configs, "OAUTHBEARER", List.of(new AppConfigurationEntry(
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule", LoginModuleControlFlag.REQUIRED, Map.of())));
    }

    private static String verdict(String token) {
        try {
            OAuthBearerToken valid = validator.validate(token);
            return String.join("\t", "valid", valid.principalName(), Long.toString(valid.lifetimeMs()),
                String.join(",", new TreeSet<>(valid.scope())));
        } catch (JwtValidatorException e) {
            return "refused\t" + e.getMessage().replaceAll("\\s+", " ");
        } catch (RuntimeException e) {
            return "failed\t" + e.toString().replaceAll("\\s+", " ");
        }
    }
}
