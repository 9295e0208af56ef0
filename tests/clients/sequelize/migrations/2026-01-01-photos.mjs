import { DataTypes, Sequelize } from "sequelize";

export async function up({ context: queryInterface }) {
    await queryInterface.createTable("users", {
        id: { type: DataTypes.BIGINT, primaryKey: true, defaultValue: Sequelize.literal("snowflake_next_id(5)") },
        name: { type: DataTypes.TEXT, allowNull: false },
    });
    await queryInterface.createTable("photos", {
        id: { type: DataTypes.BIGINT, primaryKey: true, defaultValue: Sequelize.literal("snowflake_next_id(5)") },
        user_id: { type: DataTypes.BIGINT, allowNull: false, references: { model: "users", key: "id" } },
        caption: { type: DataTypes.TEXT, allowNull: false },
    });
}

export async function down({ context: queryInterface }) {
    await queryInterface.dropTable("photos");
    await queryInterface.dropTable("users");
}
