// Checks what docs/orm/javascript.md says about TypeORM.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, test } from "node:test";
import { Column, DataSource, Entity, MoreThan, PrimaryColumn, PrimaryGeneratedColumn } from "typeorm";
import dataSource from "./data-source.ts";
import { Photo, User } from "./entities.ts";
import { assertAllIds, column, databaseWith, fromIdentity, page, rows, rowsOf, shard, span } from "./server.mjs";

const cli = (...args: string[]) => {
    const { status, stdout, stderr } = spawnSync(
        process.execPath, ["--import", "tsx", "node_modules/typeorm/cli.js", ...args, "-d", "data-source.ts"],
        { encoding: "utf8", env: { ...process.env, NODE_OPTIONS: "" } });
    return { status, said: stdout + stderr };
};

before(() => dataSource.initialize());
after(() => dataSource.destroy());

const captions = Array.from({ length: 3000 }, (_, n) => `photo ${n}`);
let user: User;

test("migrations are generated and run, and then there are no more", async () => {
    const generate = () => cli("migration:generate", "migrations/Photos");
    assert.match(generate().said, /has been generated successfully/);
    const run = () => cli("migration:run");
    assert.match(run().said, /Photos\d+ has been executed successfully/);
    assert.match(generate().said, /No changes in database schema were found/);
    assert.match(run().said, /No migrations are pending/);
    assert.equal(await shard("photos"), "5");
    assert.deepEqual(await rows("SELECT FROM pg_sequences WHERE sequencename ~ '^(users|photos)'"), []);
});

test("an insert returns its id, exactly", async () => {
    user = await dataSource.manager.save(dataSource.manager.create(User, { name: "ada" }));
    await assertAllIds("users", [user.id]);
    user.name = "grace";
    await dataSource.manager.save(user);
    assert.deepEqual(await rows("SELECT id, name FROM users"), [{ id: user.id, name: "grace" }]);
});

test("a bulk insert returns its ids, exactly and in order", async () => {
    const photos = captions.map((caption) => ({ user, caption }));
    const inserted = await dataSource.manager.insert(Photo, photos);
    await assertAllIds("photos", inserted.identifiers.map(({ id }) => id));
    assert.deepEqual(inserted.identifiers.map(({ id }) => id), await column("SELECT id FROM photos ORDER BY id"));
    assert.deepEqual(captions, await column("SELECT caption FROM photos ORDER BY id"));

    // The entities get their ids, too.
    await rows("DELETE FROM photos");
    const saved = await dataSource.manager.save(dataSource.manager.create(Photo, photos));
    await assertAllIds("photos", saved.map(({ id }) => id));
    assert.deepEqual(
        saved.map(({ id, caption }) => ({ id, caption })), await rows("SELECT id, caption FROM photos ORDER BY id"));
});

test("all ids are read back exactly, relations too", async () => {
    for (const relationLoadStrategy of ["join", "query"] as const) {
        const [found] = await dataSource.manager.find(User, { relations: { photos: true }, relationLoadStrategy });
        assert.equal(found.id, user.id);
        await assertAllIds("photos", found.photos.map(({ id }) => id));
        const photos = await dataSource.manager.find(Photo, { relations: { user: true }, relationLoadStrategy });
        assert.ok(photos.every((photo) => photo.user.id === user.id));
    }
});

test("a page begins after an id, and a range of time is a range of ids", async () => {
    const last = (await column("SELECT id FROM photos ORDER BY id OFFSET 99 LIMIT 1"))[0];
    const next = await dataSource.manager.find(Photo, {
        where: { id: MoreThan(last) }, order: { id: "ASC" }, take: 100,
    });
    assert.deepEqual(next.map(({ id }) => id), await page("photos", last, 100));

    const { from, to, ids } = await span("photos");
    const found = await dataSource.manager.createQueryBuilder(Photo, "photo")
        .where("snowflake_between(photo.id, :from, :to)", { from, to })
        .orderBy("photo.id").getMany();
    assert.deepEqual(found.map(({ id }) => id), ids);
});

const withSource = async <Result>(
    entities: Function[], url: string | undefined, work: (source: DataSource) => Promise<Result>,
) => {
    const source = await new DataSource({ type: "postgres", url, entities }).initialize();
    try {
        return await work(source);
    } finally {
        await source.destroy();
    }
};

const planned = (entities: Function[], url = process.env.DATABASE_URL) => withSource(entities, url, async (source) =>
    (await source.driver.createSchemaBuilder().log()).upQueries.map(({ query }) => query).join("\n"));

test("a default that is not spelled as the search_path shows it is a change on every run", async () => {
    @Entity("users")
    class Qualified {
        @PrimaryColumn({ type: "bigint", default: () => "idgen.snowflake_next_id(5)" })
        id!: string;

        @Column("text")
        name!: string;
    }
    assert.match(await planned([Qualified]), /SET DEFAULT idgen\.snowflake_next_id\(5\)/);
});

test("@PrimaryGeneratedColumn removes the default, and puts a sequence there the next time", async () => {
    @Entity("users")
    class Generated {
        @PrimaryGeneratedColumn("increment", { type: "bigint" })
        id!: string;

        @Column("text")
        name!: string;
    }
    const url = await databaseWith("generated", "bigint DEFAULT snowflake_next_id(5)");
    const synchronize = () => withSource([Generated], url, (source) => source.synchronize());
    const insert = () => rowsOf(url, "INSERT INTO users (name) VALUES ('ada') RETURNING id");
    assert.match(await planned([Generated], url), /CREATE SEQUENCE/);
    await synchronize();
    await assert.rejects(insert(), { code: "23502" });
    await synchronize();
    assert.deepEqual(await insert(), [{ id: "1" }]);
});

test("it does not see an identity, which gets a default only by hand", async () => {
    const url = await databaseWith("identity", "bigint GENERATED BY DEFAULT AS IDENTITY");
    const setDefault = 'ALTER TABLE "users" ALTER COLUMN "id" SET DEFAULT snowflake_next_id(5)';
    const plan = await planned([User, Photo], url);
    assert.ok(plan.includes(setDefault) && !plan.includes("IDENTITY"));
    await assert.rejects(rowsOf(url, setDefault), { message: 'column "id" of relation "users" is an identity column' });
    await rowsOf(url, fromIdentity);
    assert.doesNotMatch(await planned([User, Photo], url), /SET DEFAULT/);
});

test("orIgnore gives objects the ids of other rows", async () => {
    await rows("CREATE UNIQUE INDEX ON photos (caption)");
    const [old] = await rows("SELECT id FROM photos WHERE caption = 'photo 1'");
    const batch = () => ["photo 1", "added"].map((caption) => ({ id: undefined as any, user, caption }));
    const ignored = batch();
    await dataSource.createQueryBuilder().insert().into(Photo).values(ignored).orIgnore().execute();
    const [{ id }] = await rows("SELECT id FROM photos WHERE caption = 'added'");
    assert.deepEqual(ignored.map((photo) => photo.id), [id, undefined]);
    // An upsert returns the ids of old rows, too.
    const upserted = batch();
    await dataSource.manager.upsert(Photo, upserted, ["caption"]);
    assert.deepEqual(upserted.map((photo) => photo.id), [old.id, id]);
});
