import { defineConfig } from "drizzle-kit";

export default defineConfig({
    dialect: "postgresql",
    schema: "./schema.ts",
    out: "./migrations",
    schemaFilter: ["public"],
    dbCredentials: { url: process.env.DATABASE_URL! },
});
