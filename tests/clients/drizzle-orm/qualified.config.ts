import { defineConfig } from "drizzle-kit";

export default defineConfig({
    dialect: "postgresql",
    schema: "./qualified.ts",
    out: "./migrations",
    schemaFilter: ["public"],
    dbCredentials: { url: process.env.DATABASE_URL! },
});
