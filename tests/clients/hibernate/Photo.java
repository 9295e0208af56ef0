import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.GenerationType;
import javax.persistence.Id;
import javax.persistence.JoinColumn;
import javax.persistence.ManyToOne;
import javax.persistence.Table;

@Entity
@Table(name = "photos")
public class Photo {
    @Id @GeneratedValue(strategy = GenerationType.IDENTITY) long id;

    @ManyToOne
    @JoinColumn(name = "user_id", nullable = false)
    User user;

    String caption;
}
