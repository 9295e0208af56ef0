// Sends portable/idgen.sql unchanged through the tools that run migrations in JavaScript. Each must create the same
// functions and comments, to the last character, as libpq's protocol without parameters, and then be able to mint ids.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import Knex from "knex";
import * as kysely from "kysely";
import pg from "pg";
import postgres from "postgres";
import { Sequelize } from "sequelize";
import { DataSource } from "typeorm";

const script = await readFile(process.env.IDGEN_SCRIPT, "utf8");
const shards = "SELECT set_config('idgen.allowed_shards', '0-7', true)";
const { PGHOST: host, PGPORT: port, PGUSER: user } = process.env;

const withClient = async (database, run) => {
    const client = new pg.Client({ database });
    await client.connect();
    await run(client).finally(() => client.end());
};

const withKnex = async (database, run) => {
    const knex = Knex({ client: "pg", connection: { host, port, user, database } });
    await run(knex).finally(() => knex.destroy());
};

const withSequelize = (options) => async (database) => {
    const sequelize = new Sequelize(database, user, "", { dialect: "postgres", host, port, logging: false });
    await sequelize.transaction(async (transaction) => {
        await sequelize.query(shards, { transaction });
        await sequelize.query(script, { ...options, transaction });
    }).finally(() => sequelize.close());
};

const ways = {
    pg: (database) => withClient(database, async (client) => {
        await client.query("BEGIN");
        await client.query(shards);
        await client.query(script);
        await client.query("COMMIT");
    }),
    pg_prepared: (database) => withClient(database, async (client) => {
        await client.query("BEGIN");
        await client.query(shards);
        await client.query({ name: "script", text: script, values: [] });
        await client.query("COMMIT");
    }),
    pg_two_statements: (database) => withClient(database, (client) => client.query(`${shards};\n${script}`)),
    postgres_js: async (database) => {
        const sql = postgres({ host, port, user, database, onnotice() {} });
        await sql.begin(async (transaction) => {
            await transaction.unsafe(shards);
            await transaction.unsafe(script);
        }).finally(() => sql.end());
    },
    knex: (database) => withKnex(database, (knex) => knex.transaction(async (transaction) => {
        await transaction.raw(shards);
        await transaction.raw(script);
    })),
    knex_named_bindings: (database) => withKnex(database, (knex) => knex.transaction(async (transaction) => {
        await transaction.raw(shards);
        await transaction.raw(script, { shard: 5, space: " " });
    })),
    knex_migration: (database) => withKnex(database, (knex) =>
        knex.migrate.latest({ directory: "migrations", loadExtensions: [".mjs"] })),
    kysely: async (database) => {
        const db = new kysely.Kysely({
            dialect: new kysely.PostgresDialect({ pool: new pg.Pool({ database }) }),
        });
        await db.transaction().execute(async (transaction) => {
            await kysely.sql.raw(shards).execute(transaction);
            await kysely.sql.raw(script).execute(transaction);
        }).finally(() => db.destroy());
    },
    sequelize: withSequelize({}),
    sequelize_replacements: withSequelize({ replacements: { shard: 5, space: " " } }),
    sequelize_raw: withSequelize({ raw: true }),
    typeorm: async (database) => {
        const source = await new DataSource({ type: "postgres", host, port: Number(port), username: user, database })
            .initialize();
        await source.transaction(async (manager) => {
            await manager.query(shards);
            await manager.query(script);
        }).finally(() => source.destroy());
    },
};

// Everything that the script creates whose text a client could have changed.
const made = `
    SELECT string_agg(oid::regprocedure || ' ' || pg_get_functiondef(oid) || obj_description(oid, 'pg_proc'), '/'
                      ORDER BY oid::regprocedure::text)
           || (SELECT string_agg(viewname || definition, '/' ORDER BY viewname)
               FROM pg_views WHERE schemaname = 'public') AS made
    FROM pg_proc WHERE pronamespace IN ('public'::regnamespace, 'idgen_portable'::regnamespace)`;

let expected;
for (const [name, way] of Object.entries(ways)) {
    test(`${name} creates what the others create`, async () => {
        await withClient("postgres", (client) => client.query(`CREATE DATABASE ${name}`));
        await way(name);
        await withClient(name, async (client) => {
            const value = async (sql) => Object.values((await client.query(sql)).rows[0])[0];
            assert.equal(await value("SELECT shard_of(snowflake_next_id(5))"), 5);
            assert.equal(await value("SELECT allowed_shards FROM idgen_status"), "0-7");
            expected ??= await value(made);
            assert.equal(await value(made), expected);
        });
    });
}
