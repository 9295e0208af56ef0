import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import javax.persistence.EntityManager;
import javax.persistence.Persistence;
import javax.persistence.PersistenceException;

public class Use {
    static void check(boolean holds, Object... what) {
        if (!holds) throw new AssertionError(List.of(what));
    }

    static EntityManager open() {
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
                + System.getenv("PGDATABASE");
        EntityManager manager = Persistence.createEntityManagerFactory("gallery", Map.of(
                "javax.persistence.jdbc.url", url, "javax.persistence.jdbc.user", System.getenv("PGUSER"),
                "javax.persistence.jdbc.password", System.getenv("PGPASSWORD"),
                "eclipselink.logging.level", "OFF")).createEntityManager();
        manager.getTransaction().begin();
        return manager;
    }

    public static void main(String[] arguments) {
        EntityManager manager = open();
        for (String sql : List.of(
                "CREATE TABLE asked (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text)",
                "CREATE TABLE counted (id bigint PRIMARY KEY DEFAULT snowflake_next_id())",
                "CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text)",
                "CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(),"
                        + " user_id bigint NOT NULL REFERENCES users, caption text)"))
            manager.createNativeQuery(sql).executeUpdate();
        manager.getTransaction().commit();

        // IDENTITY asks for the last value of a sequence.
        manager.getTransaction().begin();
        Asked asked = new Asked();
        asked.name = "Ada";
        try {
            manager.persist(asked);
            manager.flush();
            throw new AssertionError("IDENTITY was accepted");
        } catch (PersistenceException error) {
            check(error.getMessage().contains("lastval is not yet defined"), error.getMessage());
        }
        manager.getTransaction().rollback();

        // It may also take the value of another sequence.
        manager = open();
        manager.createNativeQuery("CREATE SEQUENCE others START 42").executeUpdate();
        manager.createNativeQuery("SELECT nextval('others')").getSingleResult();
        asked = new Asked();
        asked.name = "Grace";
        manager.persist(asked);
        manager.flush();
        long true_id = (Long) manager.createNativeQuery("SELECT id FROM asked").getSingleResult();
        check(asked.id == 42 && true_id > 1L << 53, asked.id, true_id);
        manager.getTransaction().rollback();

        manager.getTransaction().begin();
        User ada = new User();
        ada.name = "Ada";
        manager.persist(ada);
        List<Photo> photos = new ArrayList<>();
        for (int n = 0; n < 3000; n++) {
            Photo photo = new Photo();
            photo.user = ada;
            photo.caption = "photo " + n;
            manager.persist(photo);
            photos.add(photo);
        }
        manager.getTransaction().commit();
        List<Long> ids = new ArrayList<>();
        for (Photo photo : photos) ids.add(photo.id);
        check(ids.equals(new ArrayList<>(new TreeSet<>(ids))) && ada.id > 1L << 53 && ids.get(0) > ada.id);

        manager = open();
        check(manager.createQuery("SELECT p.id FROM Photo p WHERE p.user = :user ORDER BY p.id", Long.class)
                .setParameter("user", ada).getResultList().equals(ids));
        check(manager.createQuery("SELECT p.id FROM Photo p WHERE p.id > :last ORDER BY p.id", Long.class)
                .setParameter("last", ids.get(499)).setMaxResults(100).getResultList().equals(ids.subList(500, 600)));
        check(manager.find(Photo.class, ids.get(7)).caption.equals("photo 7"));

        // If the sequence is declared to give fifty ids at a time, EclipseLink makes fifty out of the minted one.
        manager.persist(new Counted());
        Counted next = new Counted();
        manager.persist(next);
        manager.flush();
        long minted = (Long) manager.createNativeQuery("SELECT snowflake_last_id()").getSingleResult();
        check(next.id == minted - 48, next.id, minted);
        System.out.println("used: a row, 3000 rows, a page; IDENTITY asks for lastval()");
    }
}
