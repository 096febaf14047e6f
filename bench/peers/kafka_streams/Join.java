import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * Impressions, a stream or a table, and the clicks on them, joined by Kafka Streams.
 *
 * <p>Its settings come in a properties file, for Kafka Streams under its own names, for the join
 * under those that begin with "join.".
 */
public final class Join {
    private static final ObjectMapper JSON =
            new ObjectMapper()
                    .setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
                    .configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);

    // Only what the join puts out: nothing else is held, as in Spark and in Flink.
    record Impression(long adId, long shownAt, String campaign) {}

    record Click(long adId, long clickedAt, String user) {}

    record Row(long adId, String campaign, String user, String shownAt, String clickedAt) {
        static Row of(Impression shown, Click clicked) {
            return new Row(
                    shown.adId,
                    shown.campaign,
                    clicked == null ? null : clicked.user,
                    iso(shown.shownAt),
                    clicked == null ? null : iso(clicked.clickedAt));
        }
    }

    public static void main(String[] arguments) throws IOException {
        Properties settings = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            settings.load(file);
        }
        KafkaStreams streams = new KafkaStreams(topology(settings), settings);
        Runtime.getRuntime()
                .addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
    }

    private static Topology topology(Properties settings) {
        StreamsBuilder builder = new StreamsBuilder();
        Serde<String> key = Serdes.String();
        Serde<Impression> impression = json(Impression.class);
        Serde<Click> click = json(Click.class);

        String left = settings.getProperty("join.left");
        Consumed<String, Impression> byShownAt =
                Consumed.with(key, impression)
                        .withTimestampExtractor(
                                (record, last) -> ((Impression) record.value()).shownAt);
        KStream<String, Click> clicked =
                builder.stream(
                        settings.getProperty("join.right"),
                        Consumed.with(key, click)
                                .withTimestampExtractor(
                                        (record, last) -> ((Click) record.value()).clickedAt));

        KStream<String, Row> rows;
        if (Boolean.parseBoolean(settings.getProperty("join.table"))) {
            KTable<String, Impression> table = builder.table(left, byShownAt);
            Joined<String, Click, Impression> types = Joined.with(key, click, impression);
            rows = clicked.join(table, (event, shown) -> Row.of(shown, event), types);
        } else {
            KStream<String, Impression> shown = builder.stream(left, byShownAt);
            StreamJoined<String, Impression, Click> state =
                    StreamJoined.with(key, impression, click);
            JoinWindows window = window(settings);
            boolean outer = settings.getProperty("join.type").equals("left_outer");
            rows =
                    outer
                            ? shown.leftJoin(clicked, Row::of, window, state)
                            : shown.join(clicked, Row::of, window, state);
        }
        rows.to(settings.getProperty("join.output"), Produced.with(key, json(Row.class)));
        return builder.build();
    }

    private static JoinWindows window(Properties settings) {
        return JoinWindows.ofTimeDifferenceAndGrace(
                        milliseconds(settings, "join.match_window_ms"),
                        milliseconds(settings, "join.watermark_delay_ms"))
                .before(Duration.ZERO);
    }

    private static Duration milliseconds(Properties settings, String name) {
        return Duration.ofMillis(Long.parseLong(settings.getProperty(name)));
    }

    private static String iso(long milliseconds) {
        return Instant.ofEpochMilli(milliseconds).toString();
    }

    private static <T> Serde<T> json(Class<T> type) {
        ObjectWriter writer = JSON.writerFor(type);
        ObjectReader reader = JSON.readerFor(type);
        return Serdes.serdeFrom(
                (topic, value) -> value == null ? null : unchecked(() -> writer.writeValueAsBytes(value)),
                (topic, bytes) -> bytes == null ? null : unchecked(() -> reader.readValue(bytes)));
    }

    private interface Conversion<T> {
        T run() throws IOException;
    }

    private static <T> T unchecked(Conversion<T> conversion) {
        try {
            return conversion.run();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
