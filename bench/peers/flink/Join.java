import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * The statements of a file in Flink SQL, one after the other, in a Flink that is this JVM.
 *
 * <p>Arguments: a properties file with Flink's settings, and the file with the statements.
 */
public final class Join {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(file);
        }
        Configuration settings = new Configuration();
        properties.forEach((name, value) -> settings.setString((String) name, (String) value));
        StreamTableEnvironment tables =
                StreamTableEnvironment.create(
                        StreamExecutionEnvironment.createLocalEnvironment(settings));

        for (String statement : Files.readString(Path.of(arguments[1])).split(";")) {
            if (!statement.isBlank()) {
                tables.executeSql(statement).await();
            }
        }
    }
}
