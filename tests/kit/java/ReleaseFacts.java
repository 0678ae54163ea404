import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;

import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.FeatureVersion;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Prints what a release of Kafka says in code and not in schemas, one fact a line: levels of features and what they can
 * do, errors, APIs that brokers forward. The tests compare it with our tables.
 */
public class ReleaseFacts {
    public static void main(String[] args) throws ReflectiveOperationException {
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            print("metadata.version", version.featureLevel(), version.version(), version.didMetadataChange());
        }
        printCapabilities();
        print("metadata.version.production", MetadataVersion.LATEST_PRODUCTION.featureLevel());
        for (Feature feature : Feature.PRODUCTION_FEATURES) {
            print("feature", feature.featureName(), feature.latestProduction());
            for (FeatureVersion version : feature.featureVersions()) {
                print("level", feature.featureName(), version.featureLevel(), version.bootstrapMetadataVersion().featureLevel(),
                    version.dependencies().getOrDefault(MetadataVersion.FEATURE_NAME, (short) 0));
            }
        }
        for (String text : args) {
            print("named", text, level(text));
        }
        for (Errors error : Errors.values()) {
            print("error", error.code(), error.name(), error.exception() instanceof RetriableException);
        }
        for (ApiKeys api : ApiKeys.values()) {
            if (api.forwardable) {
                print("forwardable", api.id);
            }
        }
    }

    /** What each level can do and writes: the methods without parameters, wherever their answer changes. */
    private static void printCapabilities() throws ReflectiveOperationException {
        for (Method method : MetadataVersion.class.getDeclaredMethods()) {
            boolean isAsked = method.getName().endsWith("Supported") || method.getName().endsWith("OnIsrShrink")
                || Set.of("registerBrokerRecordVersion", "partitionRecordVersion", "partitionChangeRecordVersion")
                    .contains(method.getName());
            if (!isAsked || method.getParameterCount() > 0 || !Modifier.isPublic(method.getModifiers())) {
                continue;
            }
            Object last = null;
            for (MetadataVersion version : MetadataVersion.VERSIONS) {
                Object answer = method.invoke(version);
                if (!answer.equals(last)) {
                    print("capability", method.getName(), version.featureLevel(), answer);
                }
                last = answer;
            }
        }
    }

    private static String level(String text) {
        try {
            return String.valueOf(MetadataVersion.fromVersionString(text, true).featureLevel());
        } catch (IllegalArgumentException unknown) {
            return "unknown";
        }
    }

    private static void print(Object... facts) {
        List<String> texts = new ArrayList<>();
        for (Object fact : facts) {
            texts.add(String.valueOf(fact));
        }
        System.out.println(String.join("\t", texts));
    }
}
