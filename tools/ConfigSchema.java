import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.Predicate;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints Kafka's config definitions as JSON. tools/generate_config_schema.py runs it with Kafka's jars on the class path
 * and puts the result into the package.
 */
public class ConfigSchema {
    public static void main(String[] args) throws Exception {
        Map<String, ConfigDef.ConfigKey> broker = new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys());
        broker.putAll(DynamicConfig.Broker.configKeys());
        Set<String> shown = AbstractKafkaConfig.CONFIG_DEF.names();
        Map<String, String> updateModes = DynamicBrokerConfig.dynamicConfigUpdateModes();

        Map<String, Object> schema = new LinkedHashMap<>();
        schema.put("topic", definitions(LogConfig.configKeys(), name -> topicSynonyms(name), name -> null, name -> true));
        schema.put("broker", definitions(broker, name -> brokerSynonyms(name),
            name -> updateModes.getOrDefault(name,
                DynamicConfig.Broker.names().contains(name) ? "cluster-wide" : "read-only"), shown::contains));
        schema.put("group",
            definitions(GroupConfig.CONFIG_DEF.configKeys(), name -> groupSynonyms(name), name -> null, name -> true));
        schema.put("client_metrics",
            definitions(ClientMetricsConfigs.configDef().configKeys(), name -> List.of(), name -> null, name -> true));
        schema.put("security_configs", sorted(DynamicBrokerConfig.DYNAMIC_SECURITY_CONFIGS));
        System.out.println(json(schema));
    }

    private interface PerName<T> {
        T get(String name) throws Exception;
    }

    private static Map<String, Object> definitions(
        Map<String, ConfigDef.ConfigKey> keys, PerName<List<Object>> synonyms, PerName<String> updateMode,
        Predicate<String> shown
    ) throws Exception {
        Map<String, Object> definitions = new LinkedHashMap<>();
        for (ConfigDef.ConfigKey key : new TreeMap<>(keys).values()) {
            Map<String, Object> definition = new LinkedHashMap<>();
            definition.put("type", key.type.name().toLowerCase());
            definition.put("importance", key.importance.name().toLowerCase());
            if (key.hasDefault()) {
                definition.put("default", ConfigDef.convertToString(key.defaultValue, key.type));
            } else {
                definition.put("required", true);
            }
            if (key.internalConfig || !shown.test(key.name)) {
                definition.put("internal", true);
            }
            if (key.type.isSensitive()) {
                definition.put("sensitive", true);
            }
            if (key.validator != null) {
                definition.put("check", check(key.validator));
            }
            if (!synonyms.get(key.name).isEmpty()) {
                definition.put("synonyms", synonyms.get(key.name));
            }
            if (updateMode.get(key.name) != null) {
                definition.put("update_mode", updateMode.get(key.name));
            }
            definition.put("documentation", key.documentation);
            definitions.put(key.name, definition);
        }
        return definitions;
    }

    /** Broker configs that a topic config falls back to, in order, each with the factor that makes it milliseconds. */
    private static List<Object> topicSynonyms(String name) {
        List<Object> result = new ArrayList<>();
        for (ConfigSynonym synonym : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of())) {
            Map<String, Object> entry = new LinkedHashMap<>();
            entry.put("name", synonym.name());
            String converted = synonym.converter().apply("1");
            if (!converted.equals("1")) {
                entry.put("factor", Long.parseLong(converted));
            }
            result.add(entry);
        }
        return result;
    }

    private static List<Object> brokerSynonyms(String name) {
        List<Object> result = new ArrayList<>();
        for (String synonym : DynamicBrokerConfig.brokerConfigSynonyms(name, false)) {
            result.add(Map.of("name", synonym));
        }
        return result.size() == 1 ? List.of() : result;
    }

    private static List<Object> groupSynonyms(String name) {
        Optional<String> synonym = GroupConfig.brokerSynonym(name);
        return synonym.isPresent() ? List.of(Map.of("name", synonym.get())) : List.of();
    }

    private static Map<String, Object> check(ConfigDef.Validator validator) throws Exception {
        Map<String, Object> check = new LinkedHashMap<>();
        String kind = validator.getClass().getSimpleName();
        check.put("kind", kind.isEmpty() || kind.contains("$$Lambda") ? "Lambda" : kind);
        if (validator instanceof ConfigDef.Range) {
            check.put("min", field(validator, "min"));
            check.put("max", field(validator, "max"));
        } else if (validator instanceof ConfigDef.ValidString) {
            check.put("values", field(validator, "validStrings"));
        } else if (validator instanceof ConfigDef.ValidList) {
            check.put("values", field(field(validator, "validString"), "validStrings"));
            check.put("empty", field(validator, "isEmptyAllowed"));
            check.put("null", field(validator, "isNullAllowed"));
        } else if (validator instanceof ConfigDef.CaseInsensitiveValidString) {
            check.put("values", sorted((Collection<?>) field(validator, "validStrings")));
        } else if (validator instanceof ConfigDef.ListSize) {
            check.put("max", field(validator, "maxSize"));
        } else if (validator instanceof ConfigDef.CompositeValidator) {
            List<Object> checks = new ArrayList<>();
            for (Object part : (List<?>) field(validator, "validators")) {
                checks.add(check((ConfigDef.Validator) part));
            }
            check.put("checks", checks);
        }
        String text = validator.toString();
        if (!text.contains("@")) {
            check.put("text", text);
        }
        return check;
    }

    private static Object field(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    private static List<String> sorted(Collection<?> values) {
        return values.stream().map(String::valueOf).sorted().toList();
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map<?, ?> map) {
            List<String> parts = new ArrayList<>();
            map.forEach((key, entry) -> parts.add(quote(String.valueOf(key)) + ":" + json(entry)));
            return "{" + String.join(",", parts) + "}";
        }
        if (value instanceof Collection<?> collection) {
            return "[" + String.join(",", collection.stream().map(ConfigSchema::json).toList()) + "]";
        }
        return quote(String.valueOf(value));
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
