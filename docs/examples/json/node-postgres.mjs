// How node-postgres handles 64-bit ids; see docs/json.md. PGHOST, PGUSER and the like say where to connect:
//     npm install pg && node node-postgres.mjs
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import pg from "pg";

const ID = "499440859704464385";
const { version } = JSON.parse(readFileSync(new URL(import.meta.resolve("pg/package.json"))));
console.log(`node ${process.version}, pg ${version}`);

const client = new pg.Client();
await client.connect();
const row = async (sql, ...values) => (await client.query(sql, values)).rows[0];
const show = (what, value) => console.log(what.padEnd(46), value);

// A bigint comes as a string, exactly.
let { id, ids } = await row("SELECT $1::bigint AS id, ARRAY[$1::bigint] AS ids", ID);
show("bigint", id);
assert.equal(id, ID);
assert.deepEqual(ids, [ID]);

// Within json it is a number, which the client parses with JSON.parse, and JavaScript rounds it.
let { doc } = await row("SELECT json_build_object('id', $1::bigint) AS doc", ID);
show("json_build_object('id', id)", doc.id);
assert.equal(doc.id, 499440859704464400);

// As text it arrives.
({ doc } = await row("SELECT json_build_object('id', $1::bigint::text) AS doc", ID));
show("json_build_object('id', id::text)", doc.id);
assert.equal(doc.id, ID);

// A parameter goes as a string or a BigInt. A number has been rounded before the client sees it.
({ id } = await row("SELECT $1::bigint AS id", BigInt(ID)));
assert.equal(id, ID);
({ id } = await row("SELECT $1::bigint AS id", Number(ID)));
show("parameter Number(id)", id);
assert.notEqual(id, ID);

// This is found in many projects, and rounds ids.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);
({ id } = await row("SELECT $1::bigint AS id", ID));
show("setTypeParser(INT8, Number)", id);
assert.notEqual(String(id), ID);

// BigInt is exact. It does not reach arrays, which keep strings, and JSON.stringify refuses it.
pg.types.setTypeParser(pg.types.builtins.INT8, BigInt);
({ id, ids } = await row("SELECT $1::bigint AS id, ARRAY[$1::bigint] AS ids", ID));
show("setTypeParser(INT8, BigInt)", id);
assert.equal(id, BigInt(ID));
assert.deepEqual(ids, [ID]);
assert.throws(() => JSON.stringify({ id }), TypeError);
const text = JSON.stringify({ id }, (_, value) => (typeof value === "bigint" ? String(value) : value));
show("JSON.stringify with a replacer", text);
assert.equal(text, `{"id":"${ID}"}`);

await client.end();
