import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import kafka.Kafka;
import kafka.tools.StorageTool;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A real Kafka broker, which is its own controller, with files in the directory that is named. It lets in the user "hub" with the password
 * "secret" on its second port, and everybody on its first one, and prints both. Then it obeys the lines that it reads, with one line for each; it
 * ends with its input.
 *
 * <p>topic NAME PARTITIONS; put NAME PARTITION FILE: a message for each line of the file, compressed; put-aborted and put-committed: the same in
 * a transaction; grow NAME PARTITIONS: the topic has that many from now on; delete NAME PARTITION OFFSET: what is before the offset; anew NAME: the topic is deleted and made again with one partition;
 * committed NAME PARTITION OFFSET: waits until a group has committed the offset.
 */
public final class KafkaBroker {
    private final Admin admin;
    private final String address;
    private int transactions;

    private KafkaBroker(String address) {
        this.address = address;
        admin = Admin.create(Map.<String, Object>of("bootstrap.servers", address));
    }

    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    /** Writes the broker's configuration and formats its storage. Returns the path of the configuration. */
    private static String format(String directory, int open, int secure) throws Exception {
        int controller = freePort();
        String plain = "org.apache.kafka.common.security.plain.PlainLoginModule required user_hub=\"secret\";";
        String path = new File(directory, "server.properties").getPath();
        Files.writeString(Path.of(path), String.join("\n", "process.roles=broker,controller", "node.id=1",
                "controller.quorum.voters=1@127.0.0.1:" + controller, "controller.listener.names=CONTROLLER",
                "listeners=OPEN://127.0.0.1:" + open + ",SECURE://127.0.0.1:" + secure + ",CONTROLLER://127.0.0.1:" + controller,
                "advertised.listeners=OPEN://127.0.0.1:" + open + ",SECURE://127.0.0.1:" + secure,
                "listener.security.protocol.map=CONTROLLER:PLAINTEXT,OPEN:PLAINTEXT,SECURE:SASL_PLAINTEXT",
                "inter.broker.listener.name=OPEN", "sasl.enabled.mechanisms=PLAIN",
                "listener.name.secure.plain.sasl.jaas.config=" + plain, "log.dirs=" + directory + "/data",
                "offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
                "transaction.state.log.num.partitions=1", "auto.create.topics.enable=false", "file.delete.delay.ms=0", ""));
        StorageTool.execute(new String[] {"format", "-t", "bWlsbHJhY2UtdGVzdHMtMQ", "-c", path}, new PrintStream(PrintStream.nullOutputStream()));
        return path;
    }

    private void put(String topic, int partition, String file, String how) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("bootstrap.servers", address);
        properties.setProperty("compression.type", "gzip");
        properties.setProperty("linger.ms", "20");
        boolean inTransaction = !how.equals("put");
        if (inTransaction) {
            properties.setProperty("transactional.id", "test-" + transactions++);
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (inTransaction) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            for (String line : Files.readAllLines(Path.of(file))) {
                sent.add(producer.send(new ProducerRecord<>(topic, partition, null, line.getBytes())));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
            if (how.equals("put-aborted")) {
                producer.abortTransaction();
            } else if (inTransaction) {
                producer.commitTransaction();
            }
        }
    }

    private void makeTopic(String name, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    private void makeAnew(String name) throws Exception {
        admin.deleteTopics(List.of(name)).all().get();
        while (admin.listTopics().names().get().contains(name)) {
            Thread.sleep(10);
        }
        makeTopic(name, 1);
    }

    private boolean isCommitted(TopicPartition partition, long offset) throws Exception {
        for (ConsumerGroupListing group : admin.listConsumerGroups().all().get()) {
            OffsetAndMetadata one = admin.listConsumerGroupOffsets(group.groupId()).partitionsToOffsetAndMetadata().get().get(partition);
            if (one != null && one.offset() == offset) {
                return true;
            }
        }
        return false;
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "topic":
                makeTopic(words[1], Integer.parseInt(words[2]));
                break;
            case "put":
            case "put-aborted":
            case "put-committed":
                put(words[1], Integer.parseInt(words[2]), words[3], words[0]);
                break;
            case "grow":
                admin.createPartitions(Map.of(words[1], NewPartitions.increaseTo(Integer.parseInt(words[2])))).all().get();
                break;
            case "delete":
                admin.deleteRecords(Map.of(new TopicPartition(words[1], Integer.parseInt(words[2])),
                        RecordsToDelete.beforeOffset(Long.parseLong(words[3])))).all().get();
                break;
            case "committed":
                while (!isCommitted(new TopicPartition(words[1], Integer.parseInt(words[2])), Long.parseLong(words[3]))) {
                    Thread.sleep(10);
                }
                break;
            case "anew":
                makeAnew(words[1]);
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        return "done " + words[0];
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        int open = freePort();
        int secure = freePort();
        String path = format(args[0], open, secure);
        Thread server = new Thread(() -> Kafka.main(new String[] {path}));
        server.setDaemon(true);
        server.start();
        KafkaBroker broker = new KafkaBroker("127.0.0.1:" + open);
        broker.admin.listTopics().names().get();
        out.println("ready " + open + " " + secure);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(broker.obey(line.split(" ")));
        }
        Runtime.getRuntime().halt(0);
    }
}
