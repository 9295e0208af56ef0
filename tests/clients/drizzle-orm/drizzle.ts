// What docs/orm.md says of Drizzle.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { asc, gt, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { drizzle as drizzleOnPostgresJs } from "drizzle-orm/postgres-js";
import { bigint, pgTable } from "drizzle-orm/pg-core";
import postgres from "postgres";
import * as schema from "./schema.ts";
import { photos, users } from "./schema.ts";
import { assertAllIds, column, page, rows, shard, span } from "./server.mjs";

const kit = (command: string, options: { config?: string, url?: string } = {}) => {
    const { stdout, stderr } = spawnSync(
        "node_modules/.bin/drizzle-kit", [command, "--config", options.config ?? "drizzle.config.ts"],
        {
            encoding: "utf8",
            env: { ...process.env, NODE_OPTIONS: "", DATABASE_URL: options.url ?? process.env.DATABASE_URL },
        });
    return stdout + stderr;
};

const db = drizzle(process.env.DATABASE_URL!, { schema });
after(() => db.$client.end());

const captions = Array.from({ length: 3000 }, (_, n) => `photo ${n}`);
let user: typeof users.$inferSelect;

test("migrations are made and run, and made again there are none", async () => {
    assert.match(kit("generate"), /Your SQL migration file/);
    assert.match(kit("migrate"), /migrations applied successfully/);
    assert.match(kit("generate"), /No schema changes, nothing to migrate/);
    assert.equal(await shard("photos"), "5");
});

test("push has nothing to do either", () => {
    assert.match(kit("push"), /No changes detected/);
});

test("push sets a default on every run that is not spelled as the search_path shows it", () => {
    writeFileSync("qualified.ts", readFileSync("schema.ts", "utf8").replaceAll("`snowflake", "`idgen.snowflake"));
    for (const run of [1, 2]) assert.match(kit("push", { config: "qualified.config.ts" }), /Changes applied/, `${run}`);
});

test("push drops the views of the extension where they are in public, and fails; a filter spares them", async () => {
    const name = `${process.env.PGDATABASE}_public`;
    await rows(`CREATE DATABASE ${name} TEMPLATE idgen_in_public`);
    const url = process.env.DATABASE_URL!.replace(/[^/]*$/, name);
    assert.match(kit("push", { url }), /cannot drop view \w+ because extension idgen requires it/);
    const config = "in-public.config.ts";
    assert.match(kit("push", { url, config }), /Changes applied/);
    assert.match(kit("push", { url, config }), /No changes detected/);
});

test("a schema that is pulled says number where it must say bigint", () => {
    assert.match(kit("pull", { config: "pulled.config.ts" }), /Your schema file is ready/);
    const pulled = readFileSync("pulled/schema.ts", "utf8");
    assert.match(pulled, /id: bigint\(\{ mode: "number" \}\)\.default\(sql`snowflake_next_id\(5\)`\)\.primaryKey/);
});

test("an insert returns its id, exactly", async () => {
    [user] = await db.insert(users).values({ name: "ada" }).returning();
    await assertAllIds("users", [user.id]);
});

test("a bulk insert returns its ids, exactly and in order", async () => {
    const values = captions.map((caption) => ({ userId: user.id, caption }));
    const inserted = await db.insert(photos).values(values).returning();
    await assertAllIds("photos", inserted.map(({ id }) => id));
    assert.deepEqual(inserted.map(({ caption }) => caption), captions);
    assert.deepEqual(inserted.map(({ id }) => String(id)), await column("SELECT id FROM photos ORDER BY id"));
});

test("all ids are read back exactly by select", async () => {
    const found = await db.select().from(photos);
    await assertAllIds("photos", found.map(({ id }) => id));
    assert.ok(found.every(({ userId }) => userId === user.id));
});

test("a page begins after an id, and a range of time is a range of ids", async () => {
    const last = BigInt((await column("SELECT id FROM photos ORDER BY id OFFSET 99 LIMIT 1"))[0]);
    const next = await db.select().from(photos).where(gt(photos.id, last)).orderBy(asc(photos.id)).limit(100);
    assert.deepEqual(next.map(({ id }) => String(id)), await page("photos", last, 100));

    const { from, to, ids } = await span("photos");
    const found = await db.select().from(photos)
        .where(sql`snowflake_between(${photos.id}, ${from}, ${to})`)
        .orderBy(photos.id);
    assert.deepEqual(found.map(({ id }) => String(id)), ids);
});

// Each found by a query that makes its relations as JSON, with the table's own columns beside them.
const related = async (db: any) => {
    const found = await db.query.users.findMany({ with: { photos: { orderBy: photos.id } } });
    const [photo] = await db.query.photos.findMany({ with: { user: true }, limit: 1 });
    return { user: found[0], photos: found[0].photos, parent: photo.user };
};

test("relations round ids, those of parents too, and the mode number rounds them everywhere", async () => {
    const exact = await column("SELECT id FROM photos ORDER BY id");
    const found = await related(db);
    assert.equal(found.user.id, user.id);
    // They are BigInts, and wrong all the same.
    assert.equal(typeof found.photos[0].id, "bigint");
    assert.notDeepEqual(found.photos.map(({ id }: any) => String(id)), exact);
    assert.equal(found.photos[0].userId, BigInt(Number(user.id)));
    assert.equal(found.parent.id, BigInt(Number(user.id)));

    const asNumbers = pgTable("photos", { id: bigint({ mode: "number" }).primaryKey() });
    const numbers = await drizzle(db.$client).select().from(asNumbers).orderBy(asNumbers.id);
    assert.notDeepEqual(numbers.map(({ id }) => String(id)), exact);
});

test("relations are exact with a parser for json that keeps long integers", async () => {
    await import("./exact-json.mjs");
    const exact = await column("SELECT id FROM photos ORDER BY id");
    const found = await related(db);
    assert.deepEqual(found.photos.map(({ id }: any) => String(id)), exact);
    assert.ok(found.photos.every(({ userId }: any) => userId === user.id));
    assert.equal(found.parent.id, user.id);
    assert.equal(found.user.id, user.id);
    // What else is in JSON is as before.
    const json = '{"n": [1, -2.5, 1e3, 9007199254740991], "t": "12345678901234567890", "b": true, "z": null}';
    const [{ parsed }] = (await db.execute(sql`SELECT ${json}::json AS parsed`)).rows;
    assert.deepEqual({ ...parsed as object }, JSON.parse(json));
});

test("on postgres.js relations are exact with that parser too, and the shard is no BigInt", async () => {
    const { parseExactly } = await import("./exact-json.mjs");
    const exact = await column("SELECT id FROM photos ORDER BY id");
    const asItIs = postgres(process.env.DATABASE_URL!);
    const rounded = await related(drizzleOnPostgresJs(asItIs, { schema }));
    assert.notDeepEqual(rounded.photos.map(({ id }: any) => String(id)), exact);
    // A number and a text go without a type, and a BigInt as a bigint.
    for (const shard of [7, "7"]) await asItIs`SELECT snowflake_next_id(${shard})`;
    await assert.rejects(async () => asItIs`SELECT snowflake_next_id(${7n as any})`, { code: "42883" });
    // By itself it gives text; as BigInts, ids are what JSON.stringify refuses.
    const [plain] = await asItIs`SELECT id FROM users`;
    assert.equal(plain.id, String(user.id));
    await asItIs.end();

    const client = postgres(process.env.DATABASE_URL!, {
        types: {
            bigint: postgres.BigInt,
            json: { to: 114, from: [114], serialize: JSON.stringify, parse: parseExactly },
        },
    });
    const found = await related(drizzleOnPostgresJs(client, { schema }));
    assert.deepEqual(found.photos.map(({ id }: any) => String(id)), exact);
    assert.equal(found.parent.id, user.id);
    const [big] = await client`SELECT id FROM users`;
    assert.equal(big.id, user.id);
    assert.throws(() => JSON.stringify(big), TypeError);
    await client.end();
});

test("JSON.stringify refuses a BigInt, and a replacer writes it as text", () => {
    assert.throws(() => JSON.stringify(user), TypeError);
    const text = JSON.stringify(user, (_, value) => typeof value === "bigint" ? String(value) : value);
    assert.equal(text, `{"id":"${user.id}","name":"ada"}`);
});
