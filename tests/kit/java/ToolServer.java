import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * Runs the main methods of Kafka's tools, one after the other, in one JVM:
 *
 *     java -cp 'libs/*' ToolServer.java
 *
 * A request is a line of JSON on stdin: {"mainClass", "arguments": [], "text": what the tool reads from its stdin,
 * "properties": {} of the system, "timeoutMs"}. So is its answer on stdout: {"exitCode", "stdout", "stderr"}.
 * "stuckAt", a stack trace, is there when the tool did not end in time; the JVM should then be given up. An
 * exitCode of null says that the tool called System.exit: the JVM ends, with the exit status of the tool.
 */
public final class ToolServer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream ANSWERS = utf8(new FileOutputStream(FileDescriptor.out));
    private static final PrintStream OWN_ERR = utf8(new FileOutputStream(FileDescriptor.err));
    private static final long CLEAN_UP_MS = 5_000;
    /** The call that a thread works for; threads that a tool starts inherit it, and keep it after the tool's end. */
    private static final InheritableThreadLocal<Call> CALL = new InheritableThreadLocal<>();
    private static volatile Call running;

    public static void main(String[] none) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        // Scala's Console and log4j keep the streams that they find first, so the streams stay and switch inside.
        System.setIn(new CallsInput());
        System.setOut(new Unclosed(new CallsOutput(call -> call.out)));
        System.setErr(new Unclosed(new CallsOutput(call -> call.err)));
        takeOverExits();
        Runtime.getRuntime().addShutdownHook(new Thread(ToolServer::answerAsTheJvmEnds));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Call call = new Call(JSON.readTree(line));
            running = call;
            String stuckAt = call.await();
            running = null;
            answer(call, call.exitCode, stuckAt);
        }
        Runtime.getRuntime().halt(0); // whatever threads the tools have left
    }

    /** Has Kafka's Exit end the call instead of the JVM. Kafka 4.4 moved the class, so that it is found by name. */
    private static void takeOverExits() throws ReflectiveOperationException {
        Class<?> kafkas;
        try {
            kafkas = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException older) {
            kafkas = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        takeOver(kafkas, "setExitProcedure", "Procedure", arguments -> exit((int) arguments[0]));
        takeOver(kafkas, "setHaltProcedure", "Procedure", arguments -> exit((int) arguments[0]));
        takeOver(kafkas, "setShutdownHookAdder", "ShutdownHookAdder",
                arguments -> current().addHook((Runnable) arguments[1]));
    }

    private static void takeOver(Class<?> exit, String setter, String type, Consumer<Object[]> action)
            throws ReflectiveOperationException {
        Class<?> wanted = Class.forName(exit.getName() + "$" + type);
        Object implementation = Proxy.newProxyInstance(
                ToolServer.class.getClassLoader(), new Class<?>[] {wanted}, (proxy, method, arguments) -> {
                    action.accept(arguments);
                    return null;
                });
        exit.getMethod(setter, wanted).invoke(null, implementation);
    }

    private static void answerAsTheJvmEnds() {
        Call call = running;
        if (call != null) {
            answer(call, null, null);
        }
    }

    private static synchronized void answer(Call call, Integer exitCode, String stuckAt) {
        ObjectNode answer = JSON.createObjectNode();
        answer.put("exitCode", exitCode);
        answer.put("stdout", call.out.toString(StandardCharsets.UTF_8));
        answer.put("stderr", call.err.toString(StandardCharsets.UTF_8));
        if (stuckAt != null) {
            answer.put("stuckAt", stuckAt);
        }
        ANSWERS.println(answer);
        ANSWERS.flush();
    }

    private static void exit(int code) {
        current().end(code);
        throw new Exited();
    }

    private static Call current() {
        Call call = CALL.get();
        return call != null ? call : running;
    }

    private static PrintStream utf8(OutputStream stream) {
        return new PrintStream(stream, true, StandardCharsets.UTF_8);
    }

    /** One tool on its way from main to exit. */
    private static final class Call implements Runnable {
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final InputStream in;
        volatile Integer exitCode;
        private final String mainClass;
        private final String[] arguments;
        private final Map<?, ?> properties;
        private final long timeoutMs;
        private final List<Runnable> hooks = new ArrayList<>();
        private final CountDownLatch ended = new CountDownLatch(1);
        private final Thread thread = new Thread(this, "main");

        Call(JsonNode request) {
            mainClass = request.get("mainClass").asText();
            arguments = JSON.convertValue(request.get("arguments"), String[].class);
            properties = JSON.convertValue(request.get("properties"), Map.class);
            in = new ByteArrayInputStream(request.get("text").asText().getBytes(StandardCharsets.UTF_8));
            timeoutMs = request.get("timeoutMs").asLong();
        }

        /** Where the tool hangs, or null if it ended. */
        String await() throws InterruptedException {
            Properties before = (Properties) System.getProperties().clone();
            properties.forEach((name, value) -> System.setProperty((String) name, (String) value));
            try {
                thread.setDaemon(true);
                thread.start();
                if (!ended.await(timeoutMs, TimeUnit.MILLISECONDS)) {
                    return stack();
                }
                thread.join(CLEAN_UP_MS); // when another thread has called exit, main may go on for ever
                hooks().forEach(Runnable::run);
                return null;
            } finally {
                System.setProperties(before);
            }
        }

        @Override
        public void run() {
            CALL.set(this);
            try {
                Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
                end(0);
            } catch (InvocationTargetException raised) {
                if (exitCode == null) { // as java tells of it
                    System.err.print("Exception in thread \"main\" ");
                    raised.getCause().printStackTrace();
                    end(1);
                }
            } catch (ReflectiveOperationException error) {
                System.err.println("Error: Could not find or load main class " + mainClass);
                end(1);
            }
        }

        /** The first code counts, as it would have ended the process; nothing that is printed later comes out. */
        synchronized void end(int code) {
            if (exitCode == null) {
                exitCode = code;
                ended.countDown();
            }
        }

        synchronized void addHook(Runnable hook) {
            hooks.add(hook);
        }

        private synchronized List<Runnable> hooks() {
            return List.copyOf(hooks);
        }

        private String stack() {
            StringBuilder text = new StringBuilder();
            for (StackTraceElement element : thread.getStackTrace()) {
                text.append(element).append('\n');
            }
            return text.toString();
        }
    }

    /** Ends the thread that called exit. */
    private static final class Exited extends Error {
        Exited() {
            super("exited", null, false, false);
        }
    }

    /** Some tools close what they print to, as the process would end anyway. */
    private static final class Unclosed extends PrintStream {
        Unclosed(OutputStream stream) {
            super(stream, true, StandardCharsets.UTF_8);
        }

        @Override
        public void close() {
            flush();
        }
    }

    private static final class CallsOutput extends OutputStream {
        private final Function<Call, OutputStream> stream;

        CallsOutput(Function<Call, OutputStream> stream) {
            this.stream = stream;
        }

        @Override
        public void write(int octet) {
            write(new byte[] {(byte) octet}, 0, 1);
        }

        @Override
        public void write(byte[] octets, int offset, int length) {
            Call call = CALL.get();
            if (call == null) {
                OWN_ERR.write(octets, offset, length);
            } else if (call.exitCode == null) {
                try {
                    stream.apply(call).write(octets, offset, length);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
        }
    }

    private static final class CallsInput extends InputStream {
        @Override
        public int read() throws IOException {
            return current().in.read();
        }

        @Override
        public int read(byte[] octets, int offset, int length) throws IOException {
            return current().in.read(octets, offset, length);
        }

        @Override
        public int available() throws IOException {
            return current().in.available();
        }
    }
}
