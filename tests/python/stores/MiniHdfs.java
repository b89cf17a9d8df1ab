import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.reflect.Constructor;
import java.util.ArrayDeque;
import java.util.Deque;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.http.server.HttpFSServerWebServer;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.protocol.HdfsConstants;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.security.authorize.ProxyUsers;

/**
 * A real HDFS: a NameNode and two DataNodes in one process, with files in the directory that is named. It prints the ports of WebHDFS, the
 * second for HTTPS, and then obeys the lines that it reads, with one line for each; it ends with its input.
 *
 * <p>kill: the next DataNode is stopped at once; revive: it is back; safemode on|off; quota PATH BYTES: of a directory, which is made, -1: none;
 * copies PATH: how many DataNodes have every block of a file; link TARGET PATH: a link; append PATH: a byte to a file; httpfs: starts HttpFS, and
 * says its port.
 */
public final class MiniHdfs {
    private final String directory;
    private final MiniDFSCluster cluster;
    private final Deque<MiniDFSCluster.DataNodeProperties> killed = new ArrayDeque<>();

    private MiniHdfs(String directory) throws Exception {
        this.directory = directory;
        Configuration conf = new Configuration();
        conf.set("hdfs.minidfs.basedir", directory);
        conf.setInt("dfs.replication", 2);
        conf.set("dfs.http.policy", "HTTP_AND_HTTPS");
        conf.set("dfs.namenode.https-address", "127.0.0.1:0");
        conf.set("dfs.datanode.https.address", "127.0.0.1:0");
        FileSystem.enableSymlinks();
        cluster = new MiniDFSCluster.Builder(conf).numDataNodes(2).build();
        cluster.waitActive();
    }

    private String copies(String path) throws Exception {
        DistributedFileSystem fs = cluster.getFileSystem();
        FileStatus status = fs.getFileStatus(new Path(path));
        int least = Integer.MAX_VALUE;
        for (BlockLocation block : fs.getFileBlockLocations(status, 0, status.getLen())) {
            least = Math.min(least, block.getHosts().length);
        }
        return least + " copies of " + path;
    }

    private String append(String path) throws Exception {
        try (OutputStream out = cluster.getFileSystem().append(new Path(path))) {
            out.write(0);
        }
        return "append " + path;
    }

    /** It takes its folders from properties of the process, and is meant to be the only thing in it. */
    private String startHttpFs() throws Exception {
        for (String name : new String[] {"home", "config", "log", "temp"}) {
            File folder = new File(directory, "httpfs-" + name);
            folder.mkdirs();
            System.setProperty("httpfs." + name + ".dir", folder.getPath());
        }
        Configuration site = new Configuration(false);
        site.set("fs.defaultFS", cluster.getURI().toString());
        try (OutputStream out = new FileOutputStream(new File(directory, "httpfs-config/core-site.xml"))) {
            site.writeXml(out);
        }
        Constructor<HttpFSServerWebServer> make =
                HttpFSServerWebServer.class.getDeclaredConstructor(Configuration.class, Configuration.class);
        make.setAccessible(true);
        Configuration conf = new Configuration();
        conf.set("hadoop.proxyuser." + System.getProperty("user.name") + ".hosts", "*"); // it asks for others
        conf.set("hadoop.proxyuser." + System.getProperty("user.name") + ".groups", "*");
        conf.set("httpfs.http.hostname", "127.0.0.1");
        conf.setInt("httpfs.http.port", 0);
        HttpFSServerWebServer server = make.newInstance(conf, new Configuration(false));
        server.start();
        ProxyUsers.refreshSuperUserGroupsConfiguration(conf); // the NameNode's, as they are in this process
        return "httpfs " + server.getUrl().getPort();
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "kill":
                killed.push(cluster.stopDataNode(0));
                return "killed";
            case "revive":
                cluster.restartDataNode(killed.pop(), true);
                cluster.waitActive();
                return "revived";
            case "safemode":
                cluster.getFileSystem().setSafeMode(words[1].equals("on") ? SafeModeAction.SAFEMODE_ENTER : SafeModeAction.SAFEMODE_LEAVE);
                return "safemode " + words[1];
            case "quota":
                cluster.getFileSystem().mkdirs(new Path(words[1]));
                cluster.getFileSystem().setQuota(new Path(words[1]), HdfsConstants.QUOTA_DONT_SET, Long.parseLong(words[2]));
                return "quota " + words[2];
            case "link":
                cluster.getFileSystem().createSymlink(new Path(words[1]), new Path(words[2]), true);
                return "link " + words[2];
            case "append":
                return append(words[1]);
            case "httpfs":
                return startHttpFs();
            case "copies":
                return copies(words[1]);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        MiniHdfs hdfs = new MiniHdfs(args[0]);
        NameNode node = hdfs.cluster.getNameNode();
        System.out.println("ready " + node.getHttpAddress().getPort() + " " + node.getHttpsAddress().getPort());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(hdfs.obey(line.split(" ")));
        }
        Runtime.getRuntime().halt(0); // an orderly shutdown takes seconds, and the files are of no use to anyone
    }
}
