use sea_orm_migration::prelude::*;
use sea_orm_migration::schema::big_integer;

#[derive(DeriveMigrationName)]
pub struct Migration;

#[async_trait::async_trait]
impl MigrationTrait for Migration {
    async fn up(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        let albums = Table::create()
            .table("albums")
            .col(big_integer("id").primary_key().default(Expr::cust("snowflake_next_id()")))
            .take();
        manager.create_table(albums).await
    }

    async fn down(&self, manager: &SchemaManager) -> Result<(), DbErr> {
        manager.drop_table(Table::drop().table("albums").take()).await
    }
}
