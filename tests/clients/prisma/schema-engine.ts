// Prisma's schema engine, the program behind `prisma migrate` and `prisma db push`. No package registry has it,
// so this is its WebAssembly build, with functions of the same names.
import { readFileSync } from "node:fs";
import { PrismaPg } from "@prisma/adapter-pg";
import { bindMigrationAwareSqlAdapterFactory } from "@prisma/driver-adapter-utils";
import * as engine from "@prisma/schema-engine-wasm/schema_engine_bg";

const code = readFileSync("node_modules/@prisma/schema-engine-wasm/schema_engine_bg.wasm");
const { instance } = await WebAssembly.instantiate(code, { "./schema_engine_bg.js": engine as any });
(engine as any).__wbg_set_wasm(instance.exports);
(instance.exports as any).__wbindgen_start();

// The adapter is made for the queries of clients and does not know the type "char" of the catalogs.
const CHAR = 18, TEXT = 25;
class CatalogAdapter extends PrismaPg {
    adapters: any[] = [];
    async connect() {
        const adapter = await super.connect() as any;
        this.adapters.push(adapter);
        const performIO = adapter.performIO.bind(adapter);
        adapter.performIO = async (query: unknown) => {
            const result = await performIO(query);
            for (const field of result.fields ?? []) if (field.dataTypeID === CHAR) field.dataTypeID = TEXT;
            return result;
        };
        return adapter;
    }
}

export async function withSchemaEngine<Result>(
    connectionString: string, schema: string, work: (engine: engine.SchemaEngine) => Promise<Result>,
): Promise<Result> {
    const factory = new CatalogAdapter({ connectionString });
    const adapter = bindMigrationAwareSqlAdapterFactory(factory) as any;
    const running = await engine.SchemaEngine.new({ datamodels: [["schema.prisma", schema]] }, () => {}, adapter);
    try {
        return await work(running);
    } finally {
        for (const adapter of factory.adapters) await adapter.dispose();
    }
}
