import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.AppConfigurationEntry.LoginModuleControlFlag;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.security.oauthbearer.JwtRetriever;
import org.apache.kafka.common.utils.Utils;

/**
 * Has Kafka's retrievers ask for tokens. Each line of the input is a class and its properties as `key=value`, separated by
 * tabs; each is answered with one line, the token or what was thrown.
 */
public class TokenRequests {
    private static final String LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine())
            System.out.println(token(line.split("\t")));
    }

    private static String token(String[] words) throws Exception {
        Map<String, Object> properties = new HashMap<>();
        for (int place = 1; place < words.length; place++) {
            String[] pair = words[place].split("=", 2);
            if (pair[0].startsWith("org.apache.kafka."))
                System.setProperty(pair[0], pair[1]);
            else
                properties.put(pair[0], pair[1]);
        }
        Map<String, Object> configs = new ConfigDef().withClientSaslSupport().parse(properties);
        try (JwtRetriever retriever = Utils.newInstance(words[0], JwtRetriever.class)) {
            retriever.configure(configs, "OAUTHBEARER", List.of(
                new AppConfigurationEntry(LOGIN_MODULE, LoginModuleControlFlag.REQUIRED, Map.of())));
            return retriever.retrieve();
        } catch (Exception error) {
            return "thrown: " + String.valueOf(error).replaceAll("\\s+", " ");
        }
    }
}
