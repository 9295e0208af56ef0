import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.module.SimpleModule;
import com.fasterxml.jackson.databind.ser.std.ToStringSerializer;
import java.util.List;
import java.util.Map;

public class Use {
    static void check(boolean holds, Object... what) {
        if (!holds) throw new AssertionError(List.of(what));
    }

    static final long ID = 499440859704464385L;

    static void back(ObjectMapper mapper, String json) throws Exception {
        Photo photo = mapper.readValue(json, Photo.class);
        check(photo.id == ID && photo.user == ID + 1 && photo.album == ID + 2 && photo.likes.equals(List.of(ID))
                && photo.tags.equals(List.of(ID)), json);
    }

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        System.out.println("Jackson " + mapper.version());
        Photo photo = new Photo();
        photo.id = ID;
        photo.user = ID + 1;
        photo.album = ID + 2;
        photo.likes = List.of(ID);
        photo.tags = List.of(ID);

        String numbers = "{\"id\":499440859704464385,\"user\":499440859704464386,\"album\":499440859704464387,"
                + "\"likes\":[499440859704464385],\"tags\":[499440859704464385]}";
        String texts = numbers.replaceAll("([0-9]+)", "\"$1\"");
        String some = mapper.writeValueAsString(photo);
        check(some.equals(texts.replace("\"499440859704464387\"", "499440859704464387")), some);
        back(mapper, some);
        back(mapper, texts);
        back(mapper, numbers);

        // All long integers of a program, except in arrays.
        mapper = new ObjectMapper();
        SimpleModule ids = new SimpleModule();
        ids.addSerializer(Long.class, ToStringSerializer.instance);
        ids.addSerializer(long.class, ToStringSerializer.instance);
        mapper.registerModule(ids);
        check(mapper.writeValueAsString(photo).equals(texts), mapper.writeValueAsString(photo));
        check(mapper.writeValueAsString(Map.of("id", ID)).equals("{\"id\":\"" + ID + "\"}"));
        check(mapper.writeValueAsString(new long[] {ID}).equals("[" + ID + "]"));
        System.out.println("used: ids as text, one by one and all, and back");
    }
}
