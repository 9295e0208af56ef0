// Checks what docs/orm/javascript.md says about Kysely.
import assert from "node:assert/strict";
import { promises as fs } from "node:fs";
import path from "node:path";
import { after, test } from "node:test";
import { FileMigrationProvider, Kysely, Migrator, PostgresDialect, sql } from "kysely";
import { jsonArrayFrom, jsonObjectFrom } from "kysely/helpers/postgres";
import pg from "pg";
import { assertAllIds, column, page, rows, shard, span } from "./server.mjs";

const db = new Kysely({
    dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: process.env.DATABASE_URL }) }),
});
after(() => db.destroy());

const captions = Array.from({ length: 3000 }, (_, n) => `photo ${n}`);
let user;

test("migrations are run once", async () => {
    const migrationFolder = path.resolve("migrations");
    const migrator = new Migrator({ db, provider: new FileMigrationProvider({ fs, path, migrationFolder }) });
    const run = async () => {
        const { error, results } = await migrator.migrateToLatest();
        assert.ifError(error);
        return results.map(({ migrationName, status }) => [migrationName, status]);
    };
    assert.deepEqual(await run(), [["2026-01-01-photos", "Success"]]);
    assert.deepEqual(await run(), []);
    assert.equal(await shard("photos"), "5");
});

test("an insert returns its id, exactly", async () => {
    user = await db.insertInto("users").values({ name: "ada" }).returning("id").executeTakeFirstOrThrow();
    await assertAllIds("users", [user.id]);
});

test("a bulk insert returns its ids, exactly and in order", async () => {
    const photos = captions.map((caption) => ({ user_id: user.id, caption }));
    const inserted = await db.insertInto("photos").values(photos).returning(["id", "caption"]).execute();
    await assertAllIds("photos", inserted.map(({ id }) => id));
    assert.deepEqual(inserted.map(({ caption }) => caption), captions);
    assert.deepEqual(inserted, await rows("SELECT id, caption FROM photos ORDER BY id"));
});

test("all ids are read back exactly", async () => {
    const photos = await db.selectFrom("photos").innerJoin("users", "users.id", "photos.user_id")
        .select(["photos.id", "users.id as user_id"]).execute();
    await assertAllIds("photos", photos.map(({ id }) => id));
    assert.ok(photos.every(({ user_id }) => user_id === user.id));
});

test("a page begins after an id, and a range of time is a range of ids", async () => {
    const last = (await column("SELECT id FROM photos ORDER BY id OFFSET 99 LIMIT 1"))[0];
    const next = await db.selectFrom("photos").select("id").where("id", ">", last).orderBy("id").limit(100).execute();
    assert.deepEqual(next.map(({ id }) => id), await page("photos", last, 100));

    const { from, to, ids } = await span("photos");
    const found = await db.selectFrom("photos").select("id")
        .where(sql`snowflake_between(id, ${from}, ${to})`).orderBy("id").execute();
    assert.deepEqual(found.map(({ id }) => id), ids);
});

test("relations made as JSON round ids", async () => {
    const [found] = await db.selectFrom("users")
        .select((users) => [
            "users.id",
            jsonArrayFrom(
                users.selectFrom("photos").select(["photos.id", "photos.user_id"])
                    .whereRef("photos.user_id", "=", "users.id"),
            ).as("photos"),
        ])
        .execute();
    assert.equal(found.id, user.id);
    assert.equal(typeof found.photos[0].id, "number");
    const exact = new Set(await column("SELECT id FROM photos"));
    assert.ok(found.photos.some(({ id }) => !exact.has(String(id))));
    // So are the keys of parents.
    const [photo] = await db.selectFrom("photos")
        .select((photos) => jsonObjectFrom(
            photos.selectFrom("users").select("users.id").whereRef("users.id", "=", "photos.user_id"),
        ).as("user")).limit(1).execute();
    assert.equal(typeof photo.user.id, "number");
});

test("relations made as JSON are exact with ids as text", async () => {
    const [found] = await db.selectFrom("users")
        .select((users) => [
            "users.id",
            jsonArrayFrom(
                users.selectFrom("photos")
                    .select((photo) => [
                        photo.cast("photos.id", "text").as("id"),
                        photo.cast("photos.user_id", "text").as("user_id"),
                        "photos.caption",
                    ])
                    .whereRef("photos.user_id", "=", "users.id")
                    .orderBy("photos.id"),
            ).as("photos"),
        ])
        .execute();
    assert.deepEqual(found.photos, await rows("SELECT id, user_id, caption FROM photos ORDER BY id"));
});

test("relations made as JSON are exact with a parser that keeps long integers", async () => {
    await import("./exact-json.mjs");
    const [found] = await db.selectFrom("users")
        .select((users) => jsonArrayFrom(users.selectFrom("photos").selectAll().orderBy("photos.id")).as("photos"))
        .execute();
    assert.deepEqual(found.photos, await rows("SELECT * FROM photos ORDER BY id"));
});

test("a string as a default becomes text, which is not a bigint", async () => {
    const table = db.schema.createTable("wrong")
        .addColumn("id", "bigint", (column) => column.primaryKey().defaultTo("snowflake_next_id(5)"));
    assert.match(table.compile().sql, /default 'snowflake_next_id\(5\)'/);
    await assert.rejects(table.execute(), { code: "22P02" });
});
