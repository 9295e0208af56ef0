export async function up(knex) {
    await knex.schema.createTable("users", (table) => {
        table.bigInteger("id").primary().defaultTo(knex.raw("snowflake_next_id()"));
        table.text("name").notNullable();
    });
    await knex.schema.createTable("photos", (table) => {
        table.bigInteger("id").primary().defaultTo(knex.raw("snowflake_next_id()"));
        table.bigInteger("user_id").notNullable().references("users.id");
        table.text("caption").notNullable().unique();
    });
}

export async function down(knex) {
    await knex.schema.dropTable("photos").dropTable("users");
}
