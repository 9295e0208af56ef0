import asyncio
import os
from datetime import datetime, timedelta, timezone

import asyncpg

url = os.environ["DATABASE_URL"]


async def shard(connection):
    return await connection.fetchval("SELECT shard_of(snowflake_next_id())")


async def use():
    connection = await asyncpg.connect(url)
    await connection.execute("""
        CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text NOT NULL);
        CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id(),
                             user_id bigint NOT NULL REFERENCES users, caption text NOT NULL)""")
    begin = datetime.now(timezone.utc)
    user = await connection.fetchval("INSERT INTO users (name) VALUES ('Ada') RETURNING id")
    captions = [f"photo {n}" for n in range(3000)]
    rows = await connection.fetch("""
        INSERT INTO photos (user_id, caption) SELECT $1, unnest($2::text[]) RETURNING id, caption""", user, captions)
    assert [row["caption"] for row in rows] == captions
    ids = [row["id"] for row in rows]
    assert ids == sorted(set(ids)) and 2**53 < user < ids[0]
    assert ids == [row["id"] for row in await connection.fetch("SELECT id FROM photos ORDER BY id")]
    page = await connection.fetch("SELECT id FROM photos WHERE id > $1 ORDER BY id LIMIT 100", ids[499])
    assert [row["id"] for row in page] == ids[500:600]
    found = await connection.fetchval(
        "SELECT count(*) FROM photos WHERE snowflake_between(id, $1, $2)",
        begin - timedelta(seconds=1), begin + timedelta(hours=1))
    assert found == 3000
    assert await connection.fetchval("SELECT shard_of(snowflake_next_id($1))", 9) == 9
    await connection.close()


async def a_setting_is_lost_when_a_connection_goes_back():
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            await connection.execute("SET idgen.shard = 7")
            assert await shard(connection) == 7
        async with pool.acquire() as connection:
            assert await shard(connection) == 5, "not the shard of the database"


async def what_init_sets_is_lost_too():
    async def init(connection):
        await connection.execute("SET idgen.shard = 7")

    async with asyncpg.create_pool(url, min_size=1, max_size=1, init=init) as pool:
        shards = []
        for _ in range(2):
            async with pool.acquire() as connection:
                shards.append(await shard(connection))
        assert shards == [7, 5]


async def server_settings_stay():
    pool = asyncpg.create_pool(url, min_size=1, max_size=1, server_settings={"idgen.shard": "7"})
    async with pool:
        for _ in range(2):
            async with pool.acquire() as connection:
                assert await shard(connection) == 7
                await connection.execute("SET idgen.shard = 8")


async def a_setting_for_a_transaction_ends_with_it():
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection:
            async with connection.transaction():
                await connection.execute("SELECT set_config('idgen.shard', $1, true)", str(7))
                assert await shard(connection) == 7
            assert await shard(connection) == 5


for program in (use, a_setting_is_lost_when_a_connection_goes_back, what_init_sets_is_lost_too,
                server_settings_stay, a_setting_for_a_transaction_ends_with_it):
    asyncio.run(program())
    print(program.__name__.replace("_", " "))
