import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.TreeSet;
import org.hibernate.HibernateException;
import org.hibernate.Query;
import org.hibernate.Session;
import org.hibernate.cfg.Configuration;

public class Use {
    static void check(boolean holds, Object... what) {
        if (!holds) throw new AssertionError(List.of(what));
    }

    static Session open(String... settings) {
        Configuration configuration = new Configuration()
                .addAnnotatedClass(User.class).addAnnotatedClass(Photo.class).addAnnotatedClass(Counted.class)
                .setProperty("hibernate.connection.url", "jdbc:postgresql://" + System.getenv("PGHOST") + ":"
                        + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE"))
                .setProperty("hibernate.connection.username", System.getenv("PGUSER"))
                .setProperty("hibernate.connection.password", System.getenv("PGPASSWORD"))
                .setProperty("hibernate.dialect", "org.hibernate.dialect.PostgreSQLDialect")
                .setProperty("hibernate.jdbc.batch_size", "50");
        for (int n = 0; n < settings.length; n += 2) configuration.setProperty(settings[n], settings[n + 1]);
        Session session = configuration.buildSessionFactory().openSession();
        session.beginTransaction();
        return session;
    }

    static void fails(Session session, Object object, String with) {
        try {
            session.save(object);
            session.flush();
        } catch (HibernateException error) {
            check(error.getCause().getMessage().contains(with), error.getCause());
            session.getTransaction().rollback();
            return;
        }
        throw new AssertionError("no error with " + with);
    }

    static User user(String name) {
        User user = new User();
        user.name = name;
        return user;
    }

    static Query photos(Session session, Date since, Date until) {
        return session.createQuery("from Photo p where snowflake_between(p.id, :since, :until) = true order by p.id")
                .setTimestamp("since", since).setTimestamp("until", until);
    }

    public static void main(String[] arguments) {
        Session session = open();
        session.createSQLQuery("CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text);"
                + "CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(),"
                + " user_id bigint NOT NULL REFERENCES users, caption text);"
                + "CREATE TABLE counted (id bigint PRIMARY KEY DEFAULT snowflake_next_id())").executeUpdate();
        session.getTransaction().commit();

        session.beginTransaction();
        Date since = new Date(System.currentTimeMillis() - 1000);
        User ada = user("Ada");
        for (int n = 0; n < 300; n++) {
            Photo photo = new Photo();
            photo.user = ada;
            photo.caption = "photo " + n;
            ada.photos.add(photo);
        }
        session.save(ada);
        List<Long> ids = new ArrayList<>();
        for (Photo photo : ada.photos) ids.add(photo.id);
        check(ada.id > 1L << 53 && ids.get(0) > ada.id && ids.equals(new ArrayList<>(new TreeSet<>(ids))));
        session.getTransaction().commit();

        session = open();
        User read = (User) session.get(User.class, ada.id);
        check(read.photos.size() == 300 && read.photos.get(7).id == ids.get(7)
                && read.photos.get(7).caption.equals("photo 7"));
        check(session.createQuery("select id from Photo where id > :last order by id").setLong("last", ids.get(49))
                .setMaxResults(100).list().equals(ids.subList(50, 150)));
        check(photos(session, since, new Date(System.currentTimeMillis() + 3000)).list().size() == 300);
        check(photos(session, new Date(since.getTime() - 3600000), since).list().isEmpty());

        // Without IDENTITY, the id comes from a sequence.
        fails(session, new Counted(), "relation \"hibernate_sequence\" does not exist");
        // With this setting, so does that of IDENTITY.
        fails(open("hibernate.jdbc.use_get_generated_keys", "false"), user("Grace"),
                "relation \"users_id_seq\" does not exist");

        // A table that Hibernate creates has a serial key.
        session = open("hibernate.hbm2ddl.auto", "create");
        check(session.createSQLQuery("SELECT column_default FROM information_schema.columns"
                + " WHERE table_name = 'users' AND column_name = 'id'").uniqueResult()
                .equals("nextval('users_id_seq'::regclass)"));
        User first = user("Ada");
        session.save(first);
        check(first.id == 1, first.id);
        session.getTransaction().rollback();
        System.out.println("used: a row, 300 rows of it, a page, a range of time");
    }
}
