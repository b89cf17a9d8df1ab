import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.Properties;
import org.gaul.s3proxy.AuthenticationType;
import org.gaul.s3proxy.S3Proxy;
import org.gaul.s3proxy.nio2blob.FilesystemNio2BlobApiMetadata;
import org.jclouds.ContextBuilder;
import org.jclouds.blobstore.BlobStore;
import org.jclouds.blobstore.BlobStoreContext;

/**
 * An S3 server that checks signatures and honours If-None-Match: S3Proxy, with the bucket "models" and its files in the directory that is
 * named. It prints its ports for HTTP and HTTPS and ends with its input.
 *
 * <p>usage: S3Server DIRECTORY KEY SECRET KEYSTORE PASSWORD, the last two of a PKCS12 file with its certificate.
 */
public final class S3Server {
    private S3Server() {
    }

    public static void main(String[] args) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("jclouds.filesystem.basedir", args[0]);
        BlobStore blobs = ContextBuilder.newBuilder(new FilesystemNio2BlobApiMetadata()).credentials("", "").overrides(properties)
                .buildView(BlobStoreContext.class).getBlobStore();
        blobs.createContainerInLocation(null, "models");
        S3Proxy server = S3Proxy.builder().blobStore(blobs).awsAuthentication(AuthenticationType.AWS_V4, args[1], args[2])
                .endpoint(URI.create("http://127.0.0.1:0")).secureEndpoint(URI.create("https://127.0.0.1:0")).keyStore(args[3], args[4])
                .build();
        server.start();
        System.out.println("ready " + server.getPort() + " " + server.getSecurePort());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }
}
