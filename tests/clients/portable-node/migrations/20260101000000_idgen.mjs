import { readFile } from "node:fs/promises";

const script = process.env.IDGEN_SCRIPT;

export async function up(knex) {
    await knex.raw("SELECT set_config('idgen.allowed_shards', '0-7', true)");
    await knex.raw(await readFile(script, "utf8"));
}

export async function down() {}
