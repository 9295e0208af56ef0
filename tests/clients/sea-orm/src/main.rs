use std::error::Error;
use std::process::Command;

use chrono::{DateTime, TimeDelta, Utc};
use sea_orm::sea_query::OnConflict;
use sea_orm::{
    ConnectOptions, Database, DbBackend, QueryOrder, QuerySelect, Set, Statement, entity::prelude::*,
};
use sea_orm_migration::{MigrationTrait, MigratorTrait};

mod m2026_users_and_photos;
mod m2027_albums;

mod user {
    use sea_orm::entity::prelude::*;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "users")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: i64,
        #[sea_orm(unique)]
        pub name: String,
        #[sea_orm(has_many)]
        pub photos: HasMany<super::photo::Entity>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

mod photo {
    use sea_orm::entity::prelude::*;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "photos")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: i64,
        pub user_id: i64,
        pub caption: String,
        #[sea_orm(belongs_to, from = "user_id", to = "id")]
        pub user: BelongsTo<super::user::Entity>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

mod synced {
    use sea_orm::entity::prelude::*;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "synced")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false, default_expr = "Expr::cust(\"snowflake_next_id()\")")]
        pub id: i64,
        pub name: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

mod counted {
    use sea_orm::entity::prelude::*;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "counted")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub name: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(m2026_users_and_photos::Migration), Box::new(m2027_albums::Migration)]
    }
}

/// Runs a command of SeaORM, which this program includes; returns its output, or its error.
fn command(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(std::env::current_exe().unwrap()).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn migrate() {
    command(&["up", "-n", "1"]).unwrap();
    // The path of the connection is only `public`.
    let error = command(&["up"]).unwrap_err();
    assert!(error.contains("function snowflake_next_id() does not exist"), "{error}");
    command(&["up", "-s", "public,idgen"]).unwrap();
    assert!(command(&["up"]).unwrap().contains("No pending migrations"));
}

/// Returns the names of the generated entities, which all have ids.
fn generated(url: &str) -> Vec<String> {
    let folder = format!("{}/entities", std::env::var("IDGEN_CLIENT_DIR").unwrap());
    let _ = std::fs::remove_dir_all(&folder);
    command(&["generate", "entity", "-u", url, "-o", &folder]).unwrap();
    let mut names = Vec::new();
    for file in std::fs::read_dir(&folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let text = std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
        if !["mod.rs", "prelude.rs"].contains(&name.as_str()) {
            assert!(
                text.contains("#[sea_orm(primary_key, auto_increment = false)]\n    pub id: i64,"),
                "{text}"
            );
            names.push(name);
        }
    }
    names.sort();
    names
}

/// With the extension in `public`.
async fn in_public(db: &DatabaseConnection, url: &str) -> Result<(), DbErr> {
    db.execute_unprepared("CREATE DATABASE sea_orm_public TEMPLATE idgen_in_public").await?;
    let other = Database::connect(url).await?;
    other
        .execute_unprepared("CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowflake_next_id())")
        .await?;
    assert_eq!(generated(url), ["photos.rs"]);
    let error = command(&["fresh", "-u", url]).unwrap_err();
    assert!(error.contains("cannot drop type snowflake_layouts"), "{error}");
    Ok(())
}

async fn rows(db: &DatabaseConnection) -> Result<(), DbErr> {
    let since: DateTime<Utc> = Utc::now() - TimeDelta::seconds(1);
    let ada = user::ActiveModel { name: Set("Ada".into()), ..Default::default() };
    let user = ada.clone().insert(db).await?;
    assert!(user.id > 1 << 53);
    let by_name = OnConflict::column(user::Column::Name).update_column(user::Column::Name).to_owned();
    let again = user::Entity::insert(ada).on_conflict(by_name).exec(db).await?;
    assert_eq!(again.last_insert_id, user.id);

    let captions: Vec<String> = (0..3000).map(|n| format!("photo {n}")).collect();
    let new = captions.iter().map(|caption| photo::ActiveModel {
        user_id: Set(user.id),
        caption: Set(caption.clone()),
        ..Default::default()
    });
    let made = photo::Entity::insert_many(new).exec_with_returning(db).await?;
    assert!(made.iter().map(|photo| &photo.caption).eq(&captions));
    let ids: Vec<i64> = made.iter().map(|photo| photo.id).collect();
    assert!(ids.len() == 3000 && user.id < ids[0] && ids.is_sorted_by(|a, b| a < b));

    let page = photo::Entity::find().filter(photo::Column::Id.gt(ids[499])).order_by_asc(photo::Column::Id);
    let page: Vec<i64> = page.limit(100).select_only().column(photo::Column::Id).into_tuple().all(db).await?;
    assert_eq!(page, ids[500..600]);
    let related = user::Entity::load().with(photo::Entity).one(db).await?.unwrap();
    assert_eq!(related.photos.len(), 3000);

    let until = Utc::now() + TimeDelta::seconds(3);
    let range =
        photo::Entity::find().filter(Expr::cust_with_values("snowflake_between(id, $1, $2)", [since, until]));
    assert_eq!(range.count(db).await?, 3000);
    let earlier =
        Expr::cust_with_values("snowflake_between(id, $1, $2)", [since - TimeDelta::hours(1), since]);
    assert_eq!(photo::Entity::find().filter(earlier).count(db).await?, 0);
    Ok(())
}

async fn shards(url: &str) -> Result<(), DbErr> {
    let shard = |db: DatabaseConnection| async move {
        let row = db
            .query_one_raw(Statement::from_string(
                DbBackend::Postgres,
                "SELECT shard_of(snowflake_next_id())",
            ))
            .await?;
        row.unwrap().try_get_by_index::<i32>(0)
    };
    let mut options = ConnectOptions::new(url);
    options.map_sqlx_postgres_opts(|options| options.options([("idgen.shard", "7")]));
    assert_eq!(shard(Database::connect(options).await?).await?, 7);

    let mut options = ConnectOptions::new(url);
    options.set_schema_search_path("public");
    let error = shard(Database::connect(options).await?).await.unwrap_err().to_string();
    assert!(error.contains("function snowflake_next_id() does not exist"), "{error}");
    let mut options = ConnectOptions::new(url);
    options.set_schema_search_path("public,idgen");
    assert_eq!(shard(Database::connect(options).await?).await?, 5);
    Ok(())
}

async fn sync(db: &DatabaseConnection) -> Result<(), DbErr> {
    for _ in 0..2 {
        db.get_schema_builder().register(synced::Entity).register(counted::Entity).sync(db).await?;
    }
    let made = synced::ActiveModel { name: Set("Ada".into()), ..Default::default() }.insert(db).await?;
    assert!(made.id > 1 << 53);
    let made = counted::ActiveModel { name: Set("Ada".into()), ..Default::default() }.insert(db).await?;
    assert_eq!(made.id, 1);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1).as_deref() {
        None => {}
        Some("generate") => {
            sea_orm_cli::main().await;
            return Ok(());
        }
        Some(_) => {
            sea_orm_migration::cli::run_cli(Migrator).await;
            return Ok(());
        }
    }
    let url = std::env::var("DATABASE_URL")?;
    let db = Database::connect(&url).await?;
    migrate();
    assert_eq!(generated(&url), ["albums.rs", "photos.rs", "users.rs"]);
    rows(&db).await?;
    shards(&url).await?;
    sync(&db).await?;

    in_public(&db, &format!("{url}_public")).await?;
    command(&["fresh", "-s", "public,idgen"]).unwrap();
    println!(
        "used: migrations, a row, an upsert, 3000 rows in a statement, a page, a range of time, entities"
    );
    Ok(())
}
