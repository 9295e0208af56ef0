import org.eclipse.persistence.config.SessionCustomizer;
import org.eclipse.persistence.queries.ValueReadQuery;
import org.eclipse.persistence.sequencing.QuerySequence;
import org.eclipse.persistence.sessions.Session;

public class Ids implements SessionCustomizer {
    @Override
    public void customize(Session session) {
        QuerySequence ids = new QuerySequence("idgen", 1);
        ids.setSelectQuery(new ValueReadQuery("SELECT snowflake_next_id()"));
        session.getLogin().addSequence(ids);

        QuerySequence fifty = new QuerySequence("fifty", 50);
        fifty.setSelectQuery(new ValueReadQuery("SELECT snowflake_next_id()"));
        session.getLogin().addSequence(fifty);
    }
}
