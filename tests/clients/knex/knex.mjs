// Checks what docs/orm/javascript.md says about Knex.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import createKnex from "knex";
import { assertAllIds, column, page, rows, shard, span } from "./server.mjs";

const knex = createKnex({
    client: "pg",
    connection: process.env.DATABASE_URL,
    migrations: { loadExtensions: [".mjs"] },
});
after(() => knex.destroy());

const captions = Array.from({ length: 3000 }, (_, n) => `photo ${n}`);
let user;

test("migrations are run once", async () => {
    const [, first] = await knex.migrate.latest();
    assert.deepEqual(first, ["20260101000000_photos.mjs"]);
    const [, again] = await knex.migrate.latest();
    assert.deepEqual(again, []);
    assert.equal(await shard("photos"), "5");
});

test("an insert returns its id, exactly", async () => {
    [user] = await knex("users").insert({ name: "ada" }).returning("id");
    await assertAllIds("users", [user.id]);
});

test("a bulk insert returns its ids, exactly and in order", async () => {
    const photos = captions.map((caption) => ({ user_id: user.id, caption }));
    const inserted = await knex("photos").insert(photos).returning(["id", "caption"]);
    await assertAllIds("photos", inserted.map(({ id }) => id));
    assert.deepEqual(inserted.map(({ caption }) => caption), captions);
    assert.deepEqual(inserted, await rows("SELECT id, caption FROM photos ORDER BY id"));
});

test("all ids are read back exactly", async () => {
    await assertAllIds("photos", await knex("photos").pluck("id"));
    const joined = await knex("photos").join("users", "users.id", "photos.user_id").pluck("users.id");
    assert.deepEqual(joined, captions.map(() => user.id));
});

test("a page begins after an id, and a range of time is a range of ids", async () => {
    const last = (await column("SELECT id FROM photos ORDER BY id OFFSET 99 LIMIT 1"))[0];
    const next = await knex("photos").where("id", ">", last).orderBy("id").limit(100).pluck("id");
    assert.deepEqual(next, await page("photos", last, 100));

    const { from, to, ids } = await span("photos");
    const found = await knex("photos").whereRaw("snowflake_between(id, ?, ?)", [from, to]).orderBy("id").pluck("id");
    assert.deepEqual(found, ids);
});

test("a string as a default becomes text, which is not a bigint", async () => {
    const table = knex.schema.createTable("wrong", (table) => {
        table.bigInteger("id").primary().defaultTo("snowflake_next_id(5)");
    });
    assert.match(table.toString(), /default 'snowflake_next_id\(5\)'/);
    await assert.rejects(table, { code: "22P02" });
});

test("a shard that is set stays with the connection, for its next user", async () => {
    const pool = createKnex({ client: "pg", connection: process.env.DATABASE_URL, pool: { min: 1, max: 1 } });
    const shardNow = async (knex) => (await knex.raw("SELECT current_setting('idgen.shard') AS shard")).rows[0].shard;
    await pool.raw("SET idgen.shard = 7");
    assert.equal(await shardNow(pool), "7");
    await pool.raw("RESET idgen.shard");
    const before = await shardNow(pool);
    assert.equal(before, "5");    // the shard of the database

    // In a transaction, the setting ends with it.
    await pool.transaction(async (transaction) => {
        await transaction.raw("SELECT set_config('idgen.shard', ?, true)", ["7"]);
        assert.equal(await shardNow(transaction), "7");
    });
    assert.equal(await shardNow(pool), before);
    await pool.destroy();

    const ofShard = createKnex({
        client: "pg",
        connection: { connectionString: process.env.DATABASE_URL, options: "-c idgen.shard=7" },
    });
    assert.equal(await shardNow(ofShard), "7");
    const { rows: [{ minted }] } = await ofShard.raw("SELECT shard_of(snowflake_next_id()) AS minted");
    assert.equal(minted, 7);
    await ofShard.destroy();
});
