import com.fasterxml.jackson.annotation.JsonFormat;
import com.fasterxml.jackson.databind.annotation.JsonSerialize;
import com.fasterxml.jackson.databind.ser.std.ToStringSerializer;
import java.util.List;

public class Photo {
    @JsonFormat(shape = JsonFormat.Shape.STRING) public long id;

    @JsonSerialize(using = ToStringSerializer.class) public Long user;

    public long album;

    @JsonFormat(shape = JsonFormat.Shape.STRING) public List<Long> likes;

    @JsonSerialize(contentUsing = ToStringSerializer.class) public List<Long> tags;
}
