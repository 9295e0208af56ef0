import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.Id;
import javax.persistence.ManyToOne;
import javax.persistence.Table;

@Entity
@Table(name = "photos")
public class Photo {
    @Id
    @GeneratedValue(generator = "idgen")
    long id;

    @ManyToOne
    User user;

    String caption;
}
