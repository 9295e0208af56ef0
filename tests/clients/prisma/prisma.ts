// What docs/orm.md says of Prisma.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { PrismaPg } from "@prisma/adapter-pg";
import pg from "pg";
import { PrismaClient } from "./generated/client.ts";
import { withSchemaEngine } from "./schema-engine.ts";
import { assertAllIds, column, page, rows, shard, span } from "./server.mjs";

const url = process.env.DATABASE_URL!;
const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: url }) });
after(() => prisma.$disconnect());

const captions = Array.from({ length: 3000 }, (_, n) => `photo ${n}`);
const asSchema = (content: string) => ({ files: [{ path: "schema.prisma", content }] });
const written = readFileSync("schema.prisma", "utf8");
const filters = { externalTables: [], externalEnums: [] };
let user: { id: bigint, name: string };

/** What `prisma migrate diff --from-config-datasource --to-schema schema.prisma --script --exit-code` says. */
const diff = (url: string, content = written) => withSchemaEngine(url, content, async (engine) => {
    const { exitCode, stdout } = await engine.diff({
        from: { tag: "schemaDatasource", ...asSchema(content), configDir: "." },
        to: { tag: "schemaDatamodel", ...asSchema(content) },
        script: true, exitCode: true, shadowDatabaseUrl: null, filters,
    } as any);
    return { differs: exitCode === 2, script: stdout! };
});

test("a migration is made and run, and made again it is empty", async () => {
    const { differs, script } = await diff(url);
    assert.ok(differs);
    assert.match(script, /"id" BIGINT NOT NULL DEFAULT snowflake_next_id\(5\)/);

    const migration = { path: "migration.sql", content: { tag: "ok" as const, value: script } };
    const migrationsList = {
        baseDir: "migrations",
        lockfile: { path: "migration_lock.toml", content: 'provider = "postgresql"\n' },
        shadowDbInitScript: "",
        migrationDirectories: [{ path: "20260101000000_photos", migrationFile: migration }],
    };
    await withSchemaEngine(url, written, async (engine) => {
        // What `prisma migrate deploy` calls, and `prisma db push`.
        const deploy = () => engine.applyMigrations({ migrationsList, filters });
        assert.deepEqual((await deploy()).appliedMigrationNames, ["20260101000000_photos"]);
        assert.deepEqual((await deploy()).appliedMigrationNames, []);
        const { executedSteps } = await engine.schemaPush({ force: false, schema: asSchema(written), filters });
        assert.equal(executedSteps, 0);
    });
    assert.deepEqual(await diff(url), { differs: false, script: "-- This is an empty migration.\n" });
    assert.equal(await shard("photos"), "5");
});

test("a default that is not spelled as the search_path shows it differs on every run", async () => {
    const qualified = written.replaceAll('"snowflake_next_id(', '"idgen.snowflake_next_id(');
    assert.match((await diff(url, qualified)).script, /SET DEFAULT idgen\.snowflake_next_id\(5\)/);
    // The path that `?schema=public` gives the engine.
    const ofPublic = `${url}?options=${encodeURIComponent("-c search_path=public")}`;
    assert.ok(!(await diff(ofPublic, qualified)).differs);
    assert.match((await diff(ofPublic)).script, /SET DEFAULT snowflake_next_id\(5\)/);
});

test("a reset drops the extension where it is in public, and spares it in a schema of its own", async () => {
    for (const [template, left] of [["idgen_in_public", 0], ["idgen_template", 1]]) {
        const name = `${process.env.PGDATABASE}_reset`;
        await rows(`CREATE DATABASE ${name} TEMPLATE ${template}`);
        await withSchemaEngine(url.replace(/[^/]*$/, name), written, async (engine) => {
            // What `prisma migrate reset` calls.
            await engine.reset({ filter: filters });
        });
        const client = new pg.Client(url.replace(/[^/]*$/, name));
        await client.connect();
        const { rowCount } = await client.query("SELECT FROM pg_extension WHERE extname = 'idgen'");
        assert.equal(rowCount, left);
        await client.end();
        await rows(`DROP DATABASE ${name}`);
    }
});

test("an insert returns its id, exactly", async () => {
    user = await prisma.user.create({ data: { name: "ada" } });
    await assertAllIds("users", [user.id]);
});

test("a bulk insert returns its ids, exactly and in order", async () => {
    const data = captions.map((caption) => ({ userId: user.id, caption }));
    const inserted = await prisma.photo.createManyAndReturn({ data });
    await assertAllIds("photos", inserted.map(({ id }) => id));
    assert.deepEqual(inserted.map(({ caption }) => caption), captions);
    assert.deepEqual(inserted.map(({ id }) => String(id)), await column("SELECT id FROM photos ORDER BY id"));
});

test("all ids are read back exactly", async () => {
    const photos = await prisma.photo.findMany();
    await assertAllIds("photos", photos.map(({ id }) => id));
    assert.ok(photos.every(({ userId }) => userId === user.id));
});

test("a page begins after an id, and a range of time is a range of ids", async () => {
    const last = BigInt((await column("SELECT id FROM photos ORDER BY id OFFSET 99 LIMIT 1"))[0]);
    const next = await prisma.photo.findMany({ where: { id: { gt: last } }, orderBy: { id: "asc" }, take: 100 });
    assert.deepEqual(next.map(({ id }) => String(id)), await page("photos", last, 100));
    const byCursor = await prisma.photo.findMany({
        cursor: { id: last }, skip: 1, orderBy: { id: "asc" }, take: 100,
    });
    assert.deepEqual(byCursor, next);

    const { from, to, ids } = await span("photos");
    const [range] = await prisma.$queryRaw<{ gte: bigint, lte: bigint }[]>`
        SELECT snowflake_min_id(${from}::timestamptz) AS gte, snowflake_max_id(${to}::timestamptz) AS lte`;
    const found = await prisma.photo.findMany({ where: { id: range }, orderBy: { id: "asc" } });
    assert.deepEqual(found.map(({ id }) => String(id)), ids);
});

test("relations are exact by either strategy", async () => {
    const exact = await column("SELECT id FROM photos ORDER BY id");
    for (const relationLoadStrategy of ["join", "query"] as const) {
        const [found] = await prisma.user.findMany({
            relationLoadStrategy, include: { photos: { orderBy: { id: "asc" } } },
        });
        assert.equal(found.id, user.id);
        assert.deepEqual(found.photos.map(({ id }) => String(id)), exact);
        assert.ok(found.photos.every(({ userId }) => userId === user.id));
        const photo = await prisma.photo.findFirstOrThrow({ relationLoadStrategy, include: { user: true } });
        assert.equal(photo.user.id, user.id);
    }
});

test("JSON.stringify refuses a BigInt, and a replacer writes it as text", () => {
    assert.throws(() => JSON.stringify(user), TypeError);
    const text = JSON.stringify(user, (_, value) => typeof value === "bigint" ? String(value) : value);
    assert.equal(text, `{"id":"${user.id}","name":"ada"}`);
});
