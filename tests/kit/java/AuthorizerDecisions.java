import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.internals.CidrUtils;

/**
 * Asks Kafka's StandardAuthorizer. Each line of the input is a command with its arguments, separated by tabs; each question
 * is answered with one line.
 */
public class AuthorizerDecisions {
    private static StandardAuthorizer authorizer;

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "begin" -> begin(words[1], words[2]);
                case "acl" -> authorizer.addAcl(Uuid.randomUuid(), acl(words));
                case "ask" -> System.out.println(decision(words));
                case "block" -> System.out.println(block(words[1], words[2]));
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static void begin(String superUsers, String allowEveryone) {
        authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("node.id", "1", "super.users", superUsers, "allow.everyone.if.no.acl.found", allowEveryone));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
    }

    private static StandardAcl acl(String[] words) {
        return new StandardAcl(ResourceType.fromCode(Byte.parseByte(words[1])), words[2],
            PatternType.fromCode(Byte.parseByte(words[3])), words[4], words[5],
            AclOperation.fromCode(Byte.parseByte(words[6])), AclPermissionType.fromCode(Byte.parseByte(words[7])));
    }

    private static String decision(String[] words) throws Exception {
        String[] principal = words[1].split(":", 2);
        Action action = new Action(AclOperation.fromCode(Byte.parseByte(words[3])),
            new ResourcePattern(ResourceType.fromCode(Byte.parseByte(words[4])), words[5], PatternType.LITERAL), 1, false, false);
        Context context = new Context(new KafkaPrincipal(principal[0], principal[1]), InetAddress.getByName(words[2]));
        return authorizer.authorize(context, List.of(action)).get(0).name();
    }

    private static String block(String block, String address) throws Exception {
        String error = "";
        try {
            CidrUtils.validate(block);
        } catch (IllegalArgumentException e) {
            error = e.getMessage();
        }
        String host = InetAddress.getByName(address).getHostAddress();
        return CidrUtils.isInRange(host, block) + "\t" + host + "\t" + error;
    }

    private record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override
        public String listenerName() {
            return "CONTROLLER";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestType() {
            return ApiKeys.FETCH.id;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "test";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
