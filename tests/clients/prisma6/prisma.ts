// Checks what docs/orm/javascript.md says about Prisma before 7: the strategy `join` rounds the ids of relations.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "./generated/client.ts";
import { assertAllIds, column, rows } from "./server.mjs";

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env.DATABASE_URL }) });
after(() => prisma.$disconnect());

test("the strategy join rounds ids, also those of parents, and the strategy query does not", async () => {
    await rows("CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5), name text NOT NULL)");
    await rows(`CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5),
                                     user_id bigint NOT NULL REFERENCES users, caption text NOT NULL)`);
    const user = await prisma.user.create({ data: { name: "ada" } });
    const data = Array.from({ length: 3000 }, (_, n) => ({ userId: user.id, caption: `photo ${n}` }));
    const inserted = await prisma.photo.createManyAndReturn({ data });
    await assertAllIds("photos", inserted.map(({ id }) => id));

    const exact = await column("SELECT id FROM photos ORDER BY id");
    const related = async (relationLoadStrategy?: "join" | "query") => {
        const [found] = await prisma.user.findMany({
            relationLoadStrategy, include: { photos: { orderBy: { id: "asc" } } },
        });
        const photo = await prisma.photo.findFirstOrThrow({ relationLoadStrategy, include: { user: true } });
        return { ids: found.photos.map(({ id }) => String(id)), parent: photo.user.id };
    };
    for (const strategy of ["join", undefined] as const) {
        const { ids, parent } = await related(strategy);
        assert.notDeepEqual(ids, exact);
        assert.equal(parent, BigInt(Number(user.id)));
    }
    assert.deepEqual(await related("query"), { ids: exact, parent: user.id });
});
