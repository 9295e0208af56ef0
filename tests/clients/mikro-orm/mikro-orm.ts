// Checks what docs/orm/javascript.md says about MikroORM.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { after, test } from "node:test";
import { defineEntity, MikroORM, p, sql } from "@mikro-orm/postgresql";
import { Migrator } from "@mikro-orm/migrations";
import { Photo, User } from "./entities.ts";
import { assertAllIds, column, databaseWith, fromIdentity, page, rows, rowsOf, shard, span } from "./server.mjs";

const connect = (entities: any[], options = {}) => MikroORM.init({
    clientUrl: process.env.DATABASE_URL,
    entities,
    extensions: [Migrator],
    migrations: { path: "migrations", snapshot: false },
    logger: () => {},
    ...options,
});
const orm = await connect([User, Photo]);
after(() => orm.close());

const withOrm = async <Result>(entities: any[], options: object, work: (other: MikroORM) => Promise<Result>) => {
    const other = await connect(entities, options);
    try {
        return await work(other);
    } finally {
        await other.close();
    }
};

const captions = Array.from({ length: 3000 }, (_, n) => `photo ${n}`);
let userId: string;

test("migrations are generated and run, and then there are no more", async () => {
    assert.ok((await orm.migrator.create()).fileName);
    assert.equal((await orm.migrator.up()).length, 1);
    assert.deepEqual((await orm.migrator.create()).diff, { up: [], down: [] });
    assert.equal((await orm.migrator.up()).length, 0);
    assert.equal(readdirSync("migrations").length, 1);
    assert.equal(await shard("photos"), "5");
    assert.deepEqual(await column(
        "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'photos'::regclass AND attname = 'user_id'"),
        ["bigint"]);
});

test("an insert returns its id, exactly", async () => {
    const em = orm.em.fork();
    const user = em.create(User, { name: "ada" });
    assert.equal(user.id, undefined);
    await em.flush();
    await assertAllIds("users", [user.id]);
    user.name = "grace";
    await em.flush();
    assert.deepEqual(await rows("SELECT id, name FROM users"), [{ id: user.id, name: "grace" }]);
    userId = user.id;
});

test("a flush of many entities gives them their ids, exactly and in order", async () => {
    const em = orm.em.fork();
    const photos = captions.map((caption) => em.create(Photo, { user: userId, caption }));
    await em.flush();
    await assertAllIds("photos", photos.map(({ id }) => id));
    assert.deepEqual(
        photos.map(({ id, caption }) => ({ id, caption })), await rows("SELECT id, caption FROM photos ORDER BY id"));
});

test("insertMany returns one id only, but all for entities", async () => {
    const em = orm.em.fork();
    const batch = (name: string) => [1, 2, 3].map((n) => ({ user: userId, caption: `${name} ${n}` }));
    const ids = () => column("SELECT id FROM photos WHERE caption ~ '^(plain|entity)' ORDER BY id");
    const returned = await em.insertMany(Photo, batch("plain"));
    assert.deepEqual(returned, (await ids()).slice(0, 1));
    assert.equal((await ids()).length, 3);

    const entities = batch("entity").map((data) => em.create(Photo, data, { persist: false }));
    assert.deepEqual(await em.insertMany(entities), (await ids()).slice(3));
    await rows("DELETE FROM photos WHERE caption ~ '^(plain|entity)'");
});

test("all ids are read back exactly, relations too", async () => {
    for (const strategy of ["joined", "select-in"] as const) {
        const found = await orm.em.fork().findOneOrFail(User, userId, { populate: ["photos"], strategy });
        assert.equal(found.id, userId);
        await assertAllIds("photos", found.photos.map(({ id }) => id));
    }
});

test("a page begins after an id, and a range of time is a range of ids", async () => {
    const last = (await column("SELECT id FROM photos ORDER BY id OFFSET 99 LIMIT 1"))[0];
    const next = await orm.em.fork().find(Photo, { id: { $gt: last } }, { orderBy: { id: "asc" }, limit: 100 });
    assert.deepEqual(next.map(({ id }) => id), await page("photos", last, 100));

    const { from, to, ids } = await span("photos");
    const where = { [sql`snowflake_between(id, ${from}, ${to})`]: true };
    const found = await orm.em.fork().find(Photo, where, { orderBy: { id: "asc" } });
    assert.deepEqual(found.map(({ id }) => id), ids);
});

test("upserts return the ids of old rows, too", async () => {
    const [{ id }] = await rows("SELECT id FROM photos WHERE caption = 'photo 1'");
    assert.equal((await orm.em.fork().upsert(Photo, { user: userId, caption: "photo 1" })).id, id);
    for (const onConflictAction of ["ignore", "merge"] as const) {
        const batch = [{ user: userId, caption: "photo 1" }, { user: userId, caption: onConflictAction }];
        const both = await orm.em.fork().upsertMany(Photo, batch, { onConflictAction });
        const ids = await column("SELECT id FROM photos WHERE caption IN ('photo 1', $1) ORDER BY id", onConflictAction);
        assert.deepEqual(both.map(({ id }) => id), ids);
    }
});

test("without autoincrement(false), the default is a sequence", async () => {
    for (const key of [
        p.bigint("string").primary(),
        p.bigint("string").primary().defaultRaw("snowflake_next_id(5)"),
    ]) {
        const Wrong = defineEntity({ name: "Wrong", properties: { id: key } });
        const create = await withOrm([Wrong], {}, (other) => other.schema.getCreateSchemaSQL());
        assert.match(create, /"id" bigserial primary key/);
    }
});

test("the mode bigint is exact and becomes text in JSON, and the mode number rounds", async () => {
    const exact = await column("SELECT id FROM users");
    for (const [mode, id, json] of [
        ["bigint", BigInt(exact[0]), JSON.stringify(exact[0])],
        ["number", Number(exact[0]), JSON.stringify(Number(exact[0]))],
    ] as const) {
        const Mode = defineEntity({
            name: "Mode",
            tableName: "users",
            properties: {
                id: p.bigint(mode as any).primary().autoincrement(false).defaultRaw("snowflake_next_id(5)"),
            },
        });
        const [found] = await withOrm([Mode], {}, (other) => other.em.fork().find(Mode, {}));
        assert.equal(found.id, id);
        assert.equal(JSON.stringify(found), `{"id":${json}}`);
    }
});

test("a default that is not spelled as the search_path shows it is a change on every run", async () => {
    const Qualified = defineEntity({
        name: "Qualified",
        tableName: "users",
        properties: {
            id: p.bigint("string").primary().autoincrement(false).defaultRaw("idgen.snowflake_next_id(5)"),
            name: p.text(),
        },
    });
    const update = await withOrm([Qualified], {}, (other) => other.schema.getUpdateSchemaSQL({ safe: true }));
    assert.match(update, /set default idgen\.snowflake_next_id\(5\)/);
});

test("an identity gets a default only by hand", async () => {
    const url = await databaseWith("identity", "bigint GENERATED BY DEFAULT AS IDENTITY");
    const update = () =>
        withOrm([User, Photo], { clientUrl: url }, (other) => other.schema.getUpdateSchemaSQL({ safe: true }));
    const setDefault = 'alter table "users" alter column "id" set default snowflake_next_id(5)';
    assert.ok((await update()).includes(setDefault));
    await assert.rejects(rowsOf(url, setDefault), { message: 'column "id" of relation "users" is an identity column' });
    await rowsOf(url, fromIdentity);
    assert.doesNotMatch(await update(), /set default/);
});

test("the shard is a setting of the connection or of a transaction", async () => {
    const options = {
        driverOptions: { options: "-c idgen.shard=7" },
    };
    await withOrm([User, Photo], options, async (other) => {
        const shard = (em: any) => em.execute("SELECT shard_of(snowflake_next_id()) AS shard");
        assert.deepEqual(await shard(other.em), [{ shard: 7 }]);
        await other.em.fork().transactional(async (em) => {
            await em.execute("SELECT set_config('idgen.shard', '9', true)");
            assert.deepEqual(await shard(em), [{ shard: 9 }]);
        });
        assert.deepEqual(await shard(other.em), [{ shard: 7 }]);
    });
});
