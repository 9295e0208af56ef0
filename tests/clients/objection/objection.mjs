// Checks what docs/orm/javascript.md says about Objection.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import createKnex from "knex";
import objection from "objection";
import { assertAllIds, column, page, rows, span } from "./server.mjs";

const { AjvValidator, Model } = objection;
const knex = createKnex({
    client: "pg",
    connection: { connectionString: process.env.DATABASE_URL, options: "-c idgen.shard=7" },
    migrations: { loadExtensions: [".mjs"] },
});
Model.knex(knex);
after(() => knex.destroy());

class User extends Model {
    static tableName = "users";
    static jsonSchema = { type: "object", properties: { id: { type: "string" }, name: { type: "string" } } };
    static relationMappings = () => ({
        photos: { relation: Model.HasManyRelation, modelClass: Photo, join: { from: "users.id", to: "photos.user_id" } },
    });
}

class Photo extends Model {
    static tableName = "photos";
    static jsonSchema = {
        type: "object",
        properties: {
            id: { type: "string" },
            user_id: { type: "string" },
            caption: { type: "string" },
        },
    };
}

const captions = Array.from({ length: 3000 }, (_, n) => `photo ${n}`);
let user;

test("migrations are run once", async () => {
    assert.deepEqual((await knex.migrate.latest())[1], ["20260101000000_photos.mjs"]);
    assert.deepEqual((await knex.migrate.latest())[1], []);
});

test("an insert returns its id, exactly", async () => {
    user = await User.query().insert({ name: "ada" });
    await assertAllIds("users", [user.id]);
    assert.deepEqual(await column("SELECT shard_of(id) FROM users"), ["7"]);
    await user.$query().patch({ name: "grace" });
    assert.deepEqual(await rows("SELECT id, name FROM users"), [{ id: user.id, name: "grace" }]);
});

test("a bulk insert returns its ids, exactly and in order", async () => {
    const inserted = await Photo.query().insert(captions.map((caption) => ({ user_id: user.id, caption })));
    await assertAllIds("photos", inserted.map(({ id }) => id));
    assert.deepEqual(
        inserted.map(({ id, caption }) => ({ id, caption })), await rows("SELECT id, caption FROM photos ORDER BY id"));
});

test("relations are exact", async () => {
    for (const read of ["withGraphFetched", "withGraphJoined"]) {
        const found = await User.query()[read]("photos").findById(user.id);
        assert.equal(found.id, user.id);
        await assertAllIds("photos", found.photos.map(({ id }) => id));
    }
    const made = await User.query().insertGraph({ name: "joan", photos: [{ caption: "a" }, { caption: "b" }] });
    assert.deepEqual(
        made.photos.map(({ id, user_id }) => ({ id, user_id })),
        await rows("SELECT id, user_id FROM photos WHERE user_id = $1 ORDER BY id", made.id));
});

test("a page begins after an id, and a range of time is a range of ids", async () => {
    const last = (await column("SELECT id FROM photos ORDER BY id OFFSET 99 LIMIT 1"))[0];
    const next = await Photo.query().where("id", ">", last).orderBy("id").limit(100);
    assert.deepEqual(next.map(({ id }) => id), await page("photos", last, 100));

    const { from, to, ids } = await span("photos");
    const found = await Photo.query().whereRaw("snowflake_between(id, ?, ?)", [from, to]).orderBy("id");
    assert.deepEqual(found.map(({ id }) => id), ids);
});

test("an upsert returns the id of the old row", async () => {
    const [{ id }] = await rows("SELECT id FROM photos WHERE caption = 'photo 1'");
    const row = { user_id: user.id, caption: "photo 1" };
    assert.equal((await Photo.query().insert(row).onConflict("caption").merge()).id, id);
});

test("a schema of integers refuses ids, or rounds them", async () => {
    class Refusing extends Model {
        static tableName = "photos";
        static jsonSchema = { type: "object", properties: { user_id: { type: "integer" } } };
    }
    await assert.rejects(Refusing.query().insert({ user_id: user.id, caption: "refused" }), {
        name: "ValidationError", message: "user_id: must be integer",
    });
    class Rounding extends Refusing {
        static createValidator() {
            return new AjvValidator({ options: { coerceTypes: true } });
        }
    }
    const rounded = Rounding.fromJson({ user_id: "501554830561516682" });
    assert.equal(rounded.user_id, 501554830561516700);
});

test("ignored conflicts give objects the ids of other rows", async () => {
    const batch = [{ user_id: user.id, caption: "photo 1" }, { user_id: user.id, caption: "added" }];
    const [first, second] = await Photo.query().insert(batch).onConflict("caption").ignore();
    const [{ id }] = await rows("SELECT id FROM photos WHERE caption = 'added'");
    assert.deepEqual([first.caption, first.id, second.id], ["photo 1", id, undefined]);
});

test("the shard can be set for a transaction", async () => {
    const id = await User.transaction(async (transaction) => {
        await transaction.raw("SELECT set_config('idgen.shard', '9', true)");
        return (await User.query(transaction).insert({ name: "of shard 9" })).id;
    });
    assert.deepEqual(await column("SELECT shard_of($1)", id), ["9"]);
    assert.equal((await knex.raw("SELECT shard_of(snowflake_next_id(?)) AS shard", [9])).rows[0].shard, 9);
});
