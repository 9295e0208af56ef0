use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::{big_integer, string, string_uniq};

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let users = Table::create()
            .table("users")
            .col(big_integer("id").primary_key().default(Expr::cust("idgen.snowflake_next_id()")))
            .col(string_uniq("name"))
            .take();
        manager.create_table(users).await?;
        let photos = Table::create()
            .table("photos")
            .col(big_integer("id").primary_key().default(Expr::cust("idgen.snowflake_next_id()")))
            .col(big_integer("user_id"))
            .col(string("caption"))
            .foreign_key(ForeignKey::create().from("photos", "user_id").to("users", "id"))
            .take();
        manager.create_table(photos).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.drop_table(Table::drop().table("photos").take()).await?;
        manager.drop_table(Table::drop().table("users").take()).await
    }
}
