// Checks what docs/orm/javascript.md says about Sequelize.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { DataTypes, Op, Sequelize } from "sequelize";
import { SequelizeStorage, Umzug } from "umzug";
import { assertAllIds, column, page, rows, shard, span } from "./server.mjs";

const statements = [];
const sequelize = new Sequelize(process.env.DATABASE_URL, {
    logging: (sql) => statements.push(sql),
    define: { timestamps: false },
});
after(() => sequelize.close());

const User = sequelize.define("user", {
    id: { type: DataTypes.BIGINT, primaryKey: true, defaultValue: Sequelize.literal("DEFAULT") },
    name: { type: DataTypes.TEXT, allowNull: false },
});
const Photo = sequelize.define("photo", {
    id: { type: DataTypes.BIGINT, primaryKey: true, defaultValue: Sequelize.literal("DEFAULT") },
    caption: { type: DataTypes.TEXT, allowNull: false },
});
User.hasMany(Photo, { foreignKey: "user_id" });
Photo.belongsTo(User, { foreignKey: "user_id" });

const captions = Array.from({ length: 3000 }, (_, n) => `photo ${n}`);
let user;

test("migrations are run once", async () => {
    const umzug = new Umzug({
        migrations: { glob: "migrations/*.mjs" },
        context: sequelize.getQueryInterface(),
        storage: new SequelizeStorage({ sequelize }),
    });
    assert.deepEqual((await umzug.up()).map(({ name }) => name), ["2026-01-01-photos.mjs"]);
    assert.deepEqual(await umzug.up(), []);
    assert.equal(await shard("photos"), "5");
});

test("an insert returns its id, exactly", async () => {
    assert.equal(User.build().id.val, "DEFAULT");
    user = await User.create({ name: "ada" });
    await assertAllIds("users", [user.id]);
    user.name = "grace";
    await user.save();
    assert.deepEqual(await rows("SELECT id, name FROM users"), [{ id: user.id, name: "grace" }]);
});

test("a bulk insert returns its ids, exactly and in order", async () => {
    const photos = captions.map((caption) => ({ user_id: user.id, caption }));
    const inserted = (await Photo.bulkCreate(photos)).map(({ id, caption }) => ({ id, caption }));
    await assertAllIds("photos", inserted.map(({ id }) => id));
    assert.deepEqual(inserted.map(({ caption }) => caption), captions);
    assert.deepEqual(inserted, await rows("SELECT id, caption FROM photos ORDER BY id"));
});

test("all ids are read back exactly", async () => {
    const found = await User.findOne({ include: Photo });
    assert.equal(found.id, user.id);
    await assertAllIds("photos", found.photos.map(({ id }) => id));
    assert.ok(found.photos.every(({ user_id }) => user_id === user.id));
    // The same holds if a query of its own reads the relation.
    const [{ photos }] = await User.findAll({ include: { model: Photo, separate: true } });
    await assertAllIds("photos", photos.map(({ id }) => id));
});

test("a page begins after an id, and a range of time is a range of ids", async () => {
    const last = (await column("SELECT id FROM photos ORDER BY id OFFSET 99 LIMIT 1"))[0];
    const next = await Photo.findAll({ where: { id: { [Op.gt]: last } }, order: ["id"], limit: 100 });
    assert.deepEqual(next.map(({ id }) => id), await page("photos", last, 100));

    const { from, to, ids } = await span("photos");
    const found = await Photo.findAll({
        where: Sequelize.fn("snowflake_between", Sequelize.col("id"), from, to),
        order: ["id"],
    });
    assert.deepEqual(found.map(({ id }) => id), ids);
});

test("a default in the model is sent with each insert and overrides the shard of the table", async () => {
    const Inlined = sequelize.define("photo_inlined", {
        id: { type: DataTypes.BIGINT, primaryKey: true, defaultValue: Sequelize.literal("snowflake_next_id(5)") },
        user_id: DataTypes.BIGINT,
        caption: DataTypes.TEXT,
    }, { tableName: "photos" });
    await rows("SELECT snowflake_assign_shard('public', 7)");
    try {
        const shardOf = async ({ id }) => (await column("SELECT shard_of($1)", id))[0];
        const wrong = await Inlined.create({ user_id: user.id, caption: "of shard 5" });
        assert.match(statements.at(-1), /VALUES \(snowflake_next_id\(5\),/);
        assert.equal(await shardOf(wrong), "5");

        const right = await Photo.create({ user_id: user.id, caption: "of shard 7" });
        assert.match(statements.at(-1), /VALUES \(DEFAULT,/);
        assert.equal(await shardOf(right), "7");
        const [bulk] = await Photo.bulkCreate([{ user_id: user.id, caption: "also of shard 7" }]);
        assert.equal(await shardOf(bulk), "7");
        const [upserted] = await Photo.upsert({ user_id: user.id, caption: "and this" });
        assert.equal(await shardOf(upserted), "7");
    } finally {
        await rows("SELECT snowflake_assign_shard('public', 5)");
    }
});

test("a table cannot be created from such a model", async () => {
    const Unmade = sequelize.define("unmade", User.getAttributes());
    await assert.rejects(Unmade.sync(), { name: "SequelizeDatabaseError" });
});

test("ignored duplicates give objects the ids of other rows", async () => {
    await rows("CREATE UNIQUE INDEX ON photos (caption)");
    const batch = ["photo 1", "added"].map((caption) => ({ user_id: user.id, caption }));
    const [old] = await rows("SELECT id FROM photos WHERE caption = 'photo 1'");
    const [first] = await Photo.bulkCreate(batch, { ignoreDuplicates: true });
    const [{ id }] = await rows("SELECT id FROM photos WHERE caption = 'added'");
    assert.deepEqual([first.id, first.caption], [id, "added"]);
    // An update on a duplicate returns the ids of old rows, too.
    const options = { updateOnDuplicate: ["user_id"], conflictAttributes: ["caption"] };
    assert.deepEqual((await Photo.bulkCreate(batch, options)).map((photo) => photo.id), [old.id, id]);
});
