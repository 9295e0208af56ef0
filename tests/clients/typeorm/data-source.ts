import { DataSource } from "typeorm";
import { Photo, User } from "./entities.ts";

export default new DataSource({
    type: "postgres",
    url: process.env.DATABASE_URL,
    entities: [User, Photo],
    migrations: ["migrations/*.ts"],
});
