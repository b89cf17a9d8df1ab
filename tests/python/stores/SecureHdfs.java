import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.security.PrivilegedExceptionAction;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.server.namenode.NameNodeAdapter;
import org.apache.hadoop.minikdc.MiniKdc;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.delegation.AbstractDelegationTokenSecretManager;

/**
 * A real HDFS that lets in only whom Kerberos knows: a KDC, a NameNode and a DataNode in one process, over HTTPS, with files in the directory that
 * is named. It prints the port of WebHDFS and the KDC's krb5.conf, and ends with its input. trainer.keytab in the directory has the key of the user
 * "trainer", who owns /ads.
 *
 * <p>It obeys: token MS: a delegation token of "trainer", good for so many milliseconds.
 */
public final class SecureHdfs {
    private SecureHdfs() {
    }

    private static Configuration configure(String directory, String realm, String keytab) {
        Configuration conf = new Configuration();
        String service = "hdfs/localhost@" + realm;
        conf.set("hdfs.minidfs.basedir", directory + "/hdfs");
        conf.set("hadoop.security.authentication", "kerberos");
        for (String node : new String[] {"namenode", "datanode"}) {
            conf.set("dfs." + node + ".kerberos.principal", service);
            conf.set("dfs." + node + ".keytab.file", keytab);
        }
        conf.set("hadoop.http.authentication.type", "kerberos");
        for (String prefix : new String[] {"dfs.web", "hadoop.http"}) {
            conf.set(prefix + ".authentication.kerberos.principal", "HTTP/localhost@" + realm);
            conf.set(prefix + ".authentication.kerberos.keytab", keytab);
        }
        conf.set("hadoop.http.filter.initializers", "org.apache.hadoop.hdfs.web.AuthFilterInitializer");
        conf.setBoolean("dfs.block.access.token.enable", true);
        conf.set("dfs.data.transfer.protection", "authentication");
        conf.set("dfs.http.policy", "HTTPS_ONLY");
        conf.set("dfs.namenode.https-address", "localhost:0");
        conf.set("dfs.datanode.https.address", "localhost:0");
        conf.setInt("dfs.replication", 1);
        return conf;
    }

    private static String token(MiniDFSCluster cluster, UserGroupInformation trainer, long ms) throws Exception {
        Field interval = AbstractDelegationTokenSecretManager.class.getDeclaredField("tokenRenewInterval");
        interval.setAccessible(true);
        Object manager = NameNodeAdapter.getDtSecretManager(cluster.getNamesystem());
        long before = interval.getLong(manager);
        interval.setLong(manager, ms);
        try {
            return trainer.doAs((PrivilegedExceptionAction<String>) () ->
                    FileSystem.newInstance(cluster.getURI(), cluster.getConfiguration(0)).getDelegationToken("trainer").encodeToUrlString());
        } finally {
            interval.setLong(manager, before);
        }
    }

    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        MiniKdc kdc = new MiniKdc(MiniKdc.createConf(), directory);
        kdc.start();
        File services = new File(directory, "hdfs.keytab");
        kdc.createPrincipal(services, "hdfs/localhost", "HTTP/localhost");
        File keytab = new File(directory, "trainer.keytab");
        kdc.createPrincipal(keytab, "trainer");
        Configuration conf = configure(args[0], kdc.getRealm(), services.getPath());
        UserGroupInformation.setConfiguration(conf);
        UserGroupInformation.loginUserFromKeytab("hdfs/localhost@" + kdc.getRealm(), services.getPath());
        UserGroupInformation trainer = UserGroupInformation.loginUserFromKeytabAndReturnUGI("trainer@" + kdc.getRealm(), keytab.getPath());
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf).numDataNodes(1).checkDataNodeAddrConfig(true).build();
        cluster.waitActive();
        FileSystem files = cluster.getFileSystem();
        files.mkdirs(new Path("/ads"));
        files.setOwner(new Path("/ads"), "trainer", "trainer");
        System.out.println("ready " + cluster.getNameNode().getHttpsAddress().getPort() + " " + kdc.getKrb5conf());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println("token " + token(cluster, trainer, Long.parseLong(line.split(" ")[1])));
        }
        Runtime.getRuntime().halt(0);
    }
}
