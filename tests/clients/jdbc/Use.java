import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;

public class Use {
    static void check(boolean holds, Object... what) {
        if (!holds) throw new AssertionError(List.of(what));
    }

    static List<Long> longs(ResultSet rows) throws SQLException {
        List<Long> found = new ArrayList<>();
        while (rows.next()) found.add(rows.getLong(1));
        return found;
    }

    public static void main(String[] arguments) throws SQLException {
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
                + System.getenv("PGDATABASE");
        try (Connection connection =
                DriverManager.getConnection(url, System.getenv("PGUSER"), System.getenv("PGPASSWORD"))) {
            System.out.println("driver " + connection.getMetaData().getDriverVersion());
            try (Statement statement = connection.createStatement()) {
                statement.execute("CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text);"
                        + "CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(),"
                        + " user_id bigint NOT NULL REFERENCES users, caption text)");
            }
            connection.setAutoCommit(false);
            rows(connection);
            shards(connection);
        }
        String seven = url + "?options=-c%20idgen.shard=7";
        try (Connection connection =
                DriverManager.getConnection(seven, System.getenv("PGUSER"), System.getenv("PGPASSWORD"));
                Statement statement = connection.createStatement()) {
            check(longs(statement.executeQuery("SELECT shard_of(snowflake_next_id())")).get(0) == 7);
        }
        System.out.println("used: a row, a batch of 3000, a page, a range of time; the shard is an int");
    }

    static void rows(Connection connection) throws SQLException {
        OffsetDateTime since = OffsetDateTime.now().minusSeconds(1);
        long user;
        try (PreparedStatement insert =
                connection.prepareStatement("INSERT INTO users (name) VALUES (?)", new String[] {"id"})) {
            insert.setString(1, "Ada");
            insert.executeUpdate();
            ResultSet keys = insert.getGeneratedKeys();
            keys.next();
            user = keys.getLong("id");
        }
        check(user > 1L << 53, user);

        List<Long> ids;
        String sql = "INSERT INTO photos (user_id, caption) VALUES (?, ?)";
        try (PreparedStatement insert = connection.prepareStatement(sql, new String[] {"id"})) {
            for (int n = 0; n < 3000; n++) {
                insert.setLong(1, user);
                insert.setString(2, "photo " + n);
                insert.addBatch();
            }
            insert.executeBatch();
            ids = longs(insert.getGeneratedKeys());
        }
        connection.commit();
        check(ids.size() == 3000 && ids.equals(new ArrayList<>(new TreeSet<>(ids))) && ids.get(0) > user);

        try (Statement statement = connection.createStatement()) {
            String asGiven = "SELECT id FROM photos ORDER BY substr(caption, 7)::integer";
            check(longs(statement.executeQuery(asGiven)).equals(ids));
        }
        try (PreparedStatement page =
                connection.prepareStatement("SELECT id FROM photos WHERE id > ? ORDER BY id LIMIT 100")) {
            page.setLong(1, ids.get(499));
            check(longs(page.executeQuery()).equals(ids.subList(500, 600)));
        }
        try (PreparedStatement range =
                connection.prepareStatement("SELECT id FROM photos WHERE snowflake_between(id, ?, ?)")) {
            range.setObject(1, since);
            range.setObject(2, OffsetDateTime.now().plusSeconds(3));
            check(longs(range.executeQuery()).size() == 3000);
        }
    }

    static void shards(Connection connection) throws SQLException {
        try (PreparedStatement next = connection.prepareStatement("SELECT snowflake_next_id(?)")) {
            next.setInt(1, 7);
            check((longs(next.executeQuery()).get(0) >> 10 & 8191) == 7);
            next.setLong(1, 7);
            next.executeQuery();
            throw new AssertionError("a long was accepted");
        } catch (SQLException error) {
            check(error.getSQLState().equals("42883"), error);
        }
        connection.rollback();
    }
}
