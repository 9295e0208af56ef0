use std::error::Error;

use chrono::{DateTime, TimeDelta, Utc};
use diesel::prelude::*;
use diesel::result::Error::DatabaseError;
use diesel::sql_types::{BigInt, Integer, Timestamptz};
use diesel_migrations::{EmbeddedMigrations, MigrationHarness, embed_migrations};

mod schema;
use schema::{photos, users};

const MIGRATIONS: EmbeddedMigrations = embed_migrations!();

#[diesel::declare_sql_function]
extern "SQL" {
    fn snowflake_next_id(shard: Integer) -> BigInt;
    fn snowflake_between(id: BigInt, since: Timestamptz, until: Timestamptz) -> Bool;
    fn shard_of(id: BigInt) -> Integer;
}

#[derive(Insertable)]
#[diesel(table_name = photos)]
struct NewPhoto {
    user_id: i64,
    caption: String,
}

#[derive(Queryable, Selectable)]
struct Photo {
    id: i64,
    user_id: i64,
    caption: String,
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let connection = &mut PgConnection::establish(&std::env::var("DATABASE_URL")?)?;
    assert_eq!(connection.run_pending_migrations(MIGRATIONS)?.len(), 1);
    assert_eq!(connection.run_pending_migrations(MIGRATIONS)?.len(), 0);

    let since: DateTime<Utc> = Utc::now() - TimeDelta::seconds(1);
    let user: i64 = diesel::insert_into(users::table)
        .values(users::name.eq("Ada"))
        .returning(users::id)
        .get_result(connection)?;
    assert!(user > 1 << 53);

    let new: Vec<NewPhoto> =
        (0..3000).map(|n| NewPhoto { user_id: user, caption: format!("photo {n}") }).collect();
    let made: Vec<Photo> = diesel::insert_into(photos::table)
        .values(&new)
        .returning(Photo::as_returning())
        .get_results(connection)?;
    assert!(made.iter().map(|photo| &photo.caption).eq(new.iter().map(|photo| &photo.caption)));
    let ids: Vec<i64> = made.iter().map(|photo| photo.id).collect();
    assert!(ids.len() == 3000 && user < ids[0] && ids.is_sorted_by(|a, b| a < b));

    let found: Vec<(i64, String)> =
        photos::table.order(photos::id).select((photos::id, photos::caption)).load(connection)?;
    assert!(found.into_iter().eq(made.iter().map(|photo| (photo.id, photo.caption.clone()))));
    let page: Vec<i64> = photos::table
        .filter(photos::id.gt(ids[499]))
        .order(photos::id)
        .limit(100)
        .select(photos::id)
        .load(connection)?;
    assert_eq!(page, ids[500..600]);
    let until = Utc::now() + TimeDelta::seconds(3);
    let count: i64 = photos::table
        .inner_join(users::table)
        .filter(snowflake_between(photos::id, since, until))
        .filter(photos::user_id.eq(made[0].user_id))
        .count()
        .get_result(connection)?;
    assert_eq!(count, 3000);

    // A shard is an Integer. With a BigInt there is no such function.
    let shard: i32 = diesel::select(shard_of(snowflake_next_id(7))).get_result(connection)?;
    assert_eq!(shard, 7);
    let long = diesel::select(diesel::dsl::sql::<BigInt>("snowflake_next_id(").bind::<BigInt, _>(7).sql(")"));
    match long.get_result::<i64>(connection) {
        Err(DatabaseError(_, error)) => {
            assert!(error.message().ends_with("(bigint) does not exist"), "{error:?}")
        }
        other => panic!("{other:?}"),
    }
    println!("used: migrations, a row, 3000 rows in a statement, a page, a range of time");
    Ok(())
}
