import { defineEntity, p } from "@mikro-orm/postgresql";

export const User = defineEntity({
    name: "User",
    tableName: "users",
    properties: {
        id: p.bigint("string").primary().autoincrement(false).defaultRaw("snowflake_next_id(5)"),
        name: p.text(),
        photos: () => p.oneToMany(Photo).mappedBy("user"),
    },
});

export const Photo = defineEntity({
    name: "Photo",
    tableName: "photos",
    properties: {
        id: p.bigint("string").primary().autoincrement(false).defaultRaw("snowflake_next_id(5)"),
        user: () => p.manyToOne(User),
        caption: p.text().unique(),
    },
});
