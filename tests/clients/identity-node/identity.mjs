// Sequelize models whose key is declared as generated need no change once the database has the default. TypeORM models
// do need the change that docs/cookbook.md describes.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, test } from "node:test";
import pg from "pg";
import { DataTypes, Sequelize } from "sequelize";
import { DataSource, EntitySchema } from "typeorm";

const statement = await readFile(process.env.DECLARED_KEYS, "utf8");
const giveDefaults = statement.replace("'shop'", "'public'");
assert.notEqual(giveDefaults, statement);

const { PGHOST: host, PGPORT: port, PGUSER: user, PGDATABASE: database, PGPASSWORD: password } = process.env;
const client = new pg.Client();
before(() => client.connect());
after(() => client.end());
const shards = async (table) =>
    (await client.query(`SELECT DISTINCT shard_of(id) AS shard FROM ${table}`)).rows.map((row) => row.shard);

test("Sequelize models need no change", async () => {
    const sequelize = new Sequelize(database, user, password, { dialect: "postgres", host, port, logging: false });
    const key = { type: DataTypes.BIGINT, autoIncrement: true, primaryKey: true };
    const Customer = sequelize.define("customer", { id: key, name: DataTypes.TEXT });
    const Invoice = sequelize.define("invoice", { id: { ...key, autoIncrementIdentity: true } });
    Invoice.belongsTo(Customer);
    await sequelize.sync();
    await sequelize.query(giveDefaults);

    const ada = await Customer.create({ name: "Ada" });
    assert.equal((await Customer.findByPk(ada.id)).name, "Ada");
    const made = await Invoice.bulkCreate(Array.from({ length: 3000 }, () => ({ customerId: ada.id })));
    assert.deepEqual(made.map((row) => row.id).sort(), (await Invoice.findAll()).map((row) => row.id).sort());
    await sequelize.sync({ alter: true });
    await Customer.create({ name: "Grace" });
    assert.deepEqual(await shards("customers"), [5]);
    assert.deepEqual(await shards("invoices"), [5]);
    assert.equal((await Customer.create({ id: "7", name: "Joan" })).id, "7");
    await sequelize.drop();
    await sequelize.close();
});

const typeorm = (key) => new DataSource({
    type: "postgres", host, port: Number(port), username: user, password, database,
    entities: [new EntitySchema({ name: "Photo", columns: { id: { type: "bigint", primary: true, ...key }, tag: { type: "text" } } })],
}).initialize();
const plans = async (source) => (await source.driver.createSchemaBuilder().log()).upQueries.map(({ query }) => query);

for (const [generated, planned] of [["increment", /SET DEFAULT nextval/], ["identity", /DROP DEFAULT/]]) {
    test(`TypeORM undoes the default of a model with a key by ${generated}`, async () => {
        const source = await typeorm({ generated });
        await source.synchronize();
        await source.query(giveDefaults);
        const row = await source.getRepository("Photo").save({ tag: "first" });
        assert.equal((await source.getRepository("Photo").findOneBy({ id: row.id })).tag, "first");
        assert.deepEqual(await shards("photo"), [5]);
        assert.match((await plans(source)).join("\n"), planned);
        await source.query("DROP TABLE photo");
        await source.destroy();
    });
}

test("TypeORM leaves a model alone that declares the default", async () => {
    const source = await typeorm({ default: () => "snowflake_next_id(5)" });
    await source.synchronize();
    assert.deepEqual(await plans(source), []);
    const rows = await source.getRepository("Photo").save([{ tag: "first" }, { tag: "second" }]);
    const ids = (await client.query("SELECT id FROM photo ORDER BY tag")).rows.map((row) => row.id);
    assert.deepEqual(rows.map((row) => row.id), ids);
    assert.deepEqual(await shards("photo"), [5]);
    await source.query("DROP TABLE photo");
    await source.destroy();
});
