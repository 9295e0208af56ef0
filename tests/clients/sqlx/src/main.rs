use std::error::Error;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Acquire, Row};

#[derive(sqlx::FromRow)]
struct Photo {
    id: i64,
    caption: String,
}

async fn shard(connection: &mut sqlx::PgConnection) -> sqlx::Result<i32> {
    sqlx::query_scalar("SELECT shard_of(snowflake_next_id())").fetch_one(connection).await
}

async fn rows(pool: &PgPool) -> sqlx::Result<()> {
    let since: DateTime<Utc> = Utc::now() - TimeDelta::seconds(1);
    let user: i64 = sqlx::query_scalar("INSERT INTO users (name) VALUES ($1) RETURNING id")
        .bind("Ada")
        .fetch_one(pool)
        .await?;
    assert!(user > 1 << 53);

    let captions: Vec<String> = (0..3000).map(|n| format!("photo {n}")).collect();
    let made: Vec<Photo> = sqlx::query_as(
        "INSERT INTO photos (user_id, caption) SELECT $1, unnest($2::text[]) RETURNING id, caption",
    )
    .bind(user)
    .bind(&captions)
    .fetch_all(pool)
    .await?;
    assert!(made.iter().map(|photo| &photo.caption).eq(&captions));
    let ids: Vec<i64> = made.iter().map(|photo| photo.id).collect();
    assert!(ids.len() == 3000 && ids.is_sorted_by(|a, b| a < b));

    let found = sqlx::query("SELECT id, caption FROM photos ORDER BY id").fetch_all(pool).await?;
    assert!(
        found
            .iter()
            .map(|row| (row.get::<i64, _>(0), row.get::<String, _>(1)))
            .eq(made.iter().map(|photo| (photo.id, photo.caption.clone())))
    );
    let page: Vec<i64> = sqlx::query_scalar("SELECT id FROM photos WHERE id > $1 ORDER BY id LIMIT 100")
        .bind(ids[499])
        .fetch_all(pool)
        .await?;
    assert_eq!(page, ids[500..600]);
    let range: i64 = sqlx::query_scalar("SELECT count(*) FROM photos WHERE snowflake_between(id, $1, $2)")
        .bind(since)
        .bind(Utc::now() + TimeDelta::seconds(3))
        .fetch_one(pool)
        .await?;
    assert_eq!(range, 3000);
    Ok(())
}

async fn shards(pool: &PgPool, options: PgConnectOptions) -> sqlx::Result<()> {
    // A shard is an i32, and no function takes an i64. A connection that has already prepared the statement with an i32
    // would hide this.
    let id: i64 = sqlx::query_scalar("SELECT snowflake_next_id($1)").bind(7i32).fetch_one(pool).await?;
    assert_eq!(id >> 10 & 8191, 7);
    let other = PgPool::connect_with(options.clone()).await?;
    let long =
        sqlx::query_scalar::<_, i64>("SELECT snowflake_next_id($1)").bind(7i64).fetch_one(&other).await;
    let error = long.expect_err("a long was accepted").into_database_error().expect("an error of the server");
    assert_eq!(error.code().as_deref(), Some("42883"));

    // A setting of one session is still in effect in the next one: the pool does not reset connections.
    let one = PgPoolOptions::new().max_connections(1);
    let pool = one.clone().connect_with(options.clone()).await?;
    sqlx::query("SET idgen.shard = 7").execute(&pool).await?;
    assert_eq!(shard(&mut *pool.acquire().await?).await?, 7);

    // The shard can be set for a transaction, or for all connections of a pool.
    let pool = one.clone().connect_with(options.clone()).await?;
    let mut connection = pool.acquire().await?;
    let mut transaction = connection.begin().await?;
    sqlx::query("SELECT set_config('idgen.shard', $1, true)").bind("7").execute(&mut *transaction).await?;
    assert_eq!(shard(&mut transaction).await?, 7);
    transaction.commit().await?;
    assert_eq!(shard(&mut connection).await?, 5);
    let pool = one.connect_with(options.options([("idgen.shard", "7")])).await?;
    assert_eq!(shard(&mut *pool.acquire().await?).await?, 7);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options: PgConnectOptions = std::env::var("DATABASE_URL")?.parse()?;
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
    for _ in 0..2 {
        sqlx::migrate!().run(&pool).await?;
    }
    rows(&pool).await?;
    shards(&pool, options).await?;
    println!(
        "used: migrations, a row, 3000 rows in a statement, a page, a range of time; the shard is an i32"
    );
    Ok(())
}
