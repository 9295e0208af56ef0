import { sql } from "kysely";

export async function up(db) {
    await db.schema.createTable("users")
        .addColumn("id", "bigint", (column) => column.primaryKey().defaultTo(sql`snowflake_next_id(5)`))
        .addColumn("name", "text", (column) => column.notNull())
        .execute();
    await db.schema.createTable("photos")
        .addColumn("id", "bigint", (column) => column.primaryKey().defaultTo(sql`snowflake_next_id(5)`))
        .addColumn("user_id", "bigint", (column) => column.notNull().references("users.id"))
        .addColumn("caption", "text", (column) => column.notNull())
        .execute();
}

export async function down(db) {
    await db.schema.dropTable("photos").execute();
    await db.schema.dropTable("users").execute();
}
