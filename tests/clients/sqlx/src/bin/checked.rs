//! Macros that query the database while this program is compiled.

use std::error::Error;

use chrono::{TimeDelta, Utc};
use sqlx::postgres::PgPool;

struct Photo {
    id: i64,
    caption: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    let user =
        sqlx::query!("INSERT INTO users (name) VALUES ($1) RETURNING id", "Ada").fetch_one(&pool).await?;
    assert!(user.id > 1 << 53);
    let caption = "sunset";
    let photo = sqlx::query_as!(
        Photo,
        "INSERT INTO photos (user_id, caption) VALUES ($1, $2) RETURNING id, caption",
        user.id,
        caption
    )
    .fetch_one(&pool)
    .await?;
    assert!(photo.id > user.id && photo.caption == caption);

    let (since, until) = (Utc::now() - TimeDelta::seconds(9), Utc::now() + TimeDelta::seconds(3));
    let found = sqlx::query_scalar!(
        r#"SELECT id FROM photos WHERE snowflake_between(id, $1, $2) AND caption = $3"#,
        since,
        until,
        caption
    );
    assert_eq!(found.fetch_all(&pool).await?, [photo.id]);

    #[cfg(not(feature = "long"))]
    let shard = 7i32;
    #[cfg(feature = "long")]
    let shard = 7i64;
    let id = sqlx::query_scalar!("SELECT snowflake_next_id($1)", shard).fetch_one(&pool).await?;
    assert_eq!(id.expect("an id") >> 10 & 8191, 7);
    let id = sqlx::query_scalar!(r#"SELECT snowflake_next_id($1) AS "id!""#, shard).fetch_one(&pool).await?;
    assert_eq!(id >> 10 & 8191, 7);
    println!("used: queries that the compiler has checked");
    Ok(())
}
