import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.Id;

@Entity
public class Counted {
    @Id
    @GeneratedValue(generator = "fifty")
    long id;
}
