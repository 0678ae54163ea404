import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.IntegerSerializer;

/**
 * A producer and a consumer of a topic, for ever: one line on stdout for each record that was acknowledged or read.
 *
 * <p>Arguments: bootstrap servers, topic. It ends with its stdin.
 */
public final class RoutedClient {
    public static void main(String[] arguments) throws Exception {
        start("producer", () -> produce(arguments[0], arguments[1]));
        start("consumer", () -> consume(arguments[0], arguments[1]));
        while (System.in.read() >= 0) { }
        Runtime.getRuntime().halt(0);
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void start(String name, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Exception error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            }
        }, name);
        thread.start();
    }

    private static Properties common(String bootstrap) {
        Properties properties = new Properties();
        properties.putAll(Map.of(
                CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, bootstrap,
                CommonClientConfigs.METADATA_RECOVERY_STRATEGY_CONFIG, "rebootstrap",
                CommonClientConfigs.RECONNECT_BACKOFF_MAX_MS_CONFIG, "200",
                CommonClientConfigs.RETRY_BACKOFF_MAX_MS_CONFIG, "200"));
        return properties;
    }

    private static void produce(String bootstrap, String topic) throws Exception {
        Properties properties = common(bootstrap);
        properties.put(ProducerConfig.ACKS_CONFIG, "all");
        IntegerSerializer serializer = new IntegerSerializer();
        try (KafkaProducer<Integer, Integer> producer = new KafkaProducer<>(properties, serializer, serializer)) {
            for (int number = 0; ; number++) {
                producer.send(new ProducerRecord<>(topic, number, number)).get();
                System.out.println("acknowledged " + number);
            }
        }
    }

    private static void consume(String bootstrap, String topic) {
        Properties properties = common(bootstrap);
        properties.put(ConsumerConfig.GROUP_ID_CONFIG, topic);
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        while (true) {
            try {
                consume(properties, topic);
            } catch (IllegalStateException error) {
                // Kafka 4.4.0: a consumer that is told to begin again forgets the requests of all connections while it
                // still goes through the responses of that moment. Applications make a new one, and so does this.
                if (!String.valueOf(error.getMessage()).startsWith("There are no in-flight requests for node")) {
                    throw error;
                }
                System.err.println("a new consumer, since the former one failed: " + error.getMessage());
            }
        }
    }

    private static void consume(Properties properties, String topic) {
        IntegerDeserializer deserializer = new IntegerDeserializer();
        try (KafkaConsumer<Integer, Integer> consumer = new KafkaConsumer<>(properties, deserializer, deserializer)) {
            consumer.subscribe(List.of(topic));
            while (true) {
                for (ConsumerRecord<Integer, Integer> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println("read " + record.value());
                }
            }
        }
    }
}
