// Queries PostgreSQL directly. Every value is the text that the server sent, whatever parsers a client has set.
import assert from "node:assert/strict";
import { after } from "node:test";
import pg from "pg";

const asText = { types: { getTypeParser: () => (text) => text } };
const client = new pg.Client(asText);
await client.connect();
after(() => client.end());

export const rows = async (sql, ...values) => (await client.query(sql, values)).rows;
export const column = async (sql, ...values) => (await rows(sql, ...values)).map((row) => Object.values(row)[0]);

/** Asserts that these are exactly the ids of a table, as strings or BigInts, in any order. */
export async function assertAllIds(table, ids) {
    assert.ok(ids.every((id) => typeof id === "string" || typeof id === "bigint"));
    assert.deepEqual(ids.map(String).sort(), (await column(`SELECT id FROM ${table}`)).sort());
}

/** A span of time in which some rows of a table were inserted, and their ids. A millisecond has at most 1024 ids. */
export async function span(table) {
    const times = await column(`SELECT DISTINCT snowflake_time(id) AS at FROM ${table} ORDER BY at`);
    assert.ok(times.length >= 3);
    const [from, to] = [times[1], times[times.length - 2]];
    const ids = await column(
        `SELECT id FROM ${table} WHERE snowflake_time(id) BETWEEN $1 AND $2 ORDER BY id`, from, to);
    return { from: new Date(from), to: new Date(to), ids };
}

/** The ids of the page that begins after an id. */
export const page = (table, id, size) =>
    column(`SELECT id FROM ${table} WHERE id > $1 ORDER BY id LIMIT ${size}`, id);

/** The shard that a column's default mints for. */
export const shard = async (table) =>
    (await column('SELECT shard FROM idgen_columns WHERE "table" = $1', table))[0];

/** Like `rows`, in the database of a URL. */
export async function rowsOf(url, sql) {
    const other = new pg.Client({ connectionString: url, ...asText });
    await other.connect();
    try {
        return (await other.query(sql)).rows;
    } finally {
        await other.end();
    }
}

/** Creates another database from a template, and returns its URL. */
export async function database(name, template) {
    const own = `${process.env.PGDATABASE}_${name}`;
    await rows(`CREATE DATABASE ${own} TEMPLATE ${template}`);
    await rows(`ALTER DATABASE ${own} SET search_path = "$user", public, idgen`);
    return process.env.DATABASE_URL.replace(/[^/]*$/, own);
}

/** Creates a database that already has the tables, with keys of this type. */
export async function databaseWith(name, type) {
    const url = await database(name, "idgen_template");
    await rowsOf(url, `
        SET search_path = public, idgen;
        CREATE TABLE users (id ${type} PRIMARY KEY, name text NOT NULL);
        CREATE TABLE photos (id ${type} PRIMARY KEY, user_id bigint NOT NULL, caption text NOT NULL)`);
    return url;
}

/** The statements that docs/orm.md says to write by hand if the keys are identities. */
export const fromIdentity = `
    ALTER TABLE users ALTER id DROP IDENTITY, ALTER id SET DEFAULT snowflake_next_id(5);
    ALTER TABLE photos ALTER id DROP IDENTITY, ALTER id SET DEFAULT snowflake_next_id(5);
`;
