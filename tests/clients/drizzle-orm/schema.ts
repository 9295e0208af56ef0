import { relations, sql } from "drizzle-orm";
import { bigint, pgTable, text } from "drizzle-orm/pg-core";

export const users = pgTable("users", {
    id: bigint({ mode: "bigint" }).primaryKey().default(sql`snowflake_next_id(5)`),
    name: text().notNull(),
});

export const photos = pgTable("photos", {
    id: bigint({ mode: "bigint" }).primaryKey().default(sql`snowflake_next_id(5)`),
    userId: bigint("user_id", { mode: "bigint" }).notNull().references(() => users.id),
    caption: text().notNull(),
});

export const usersRelations = relations(users, ({ many }) => ({ photos: many(photos) }));
export const photosRelations = relations(photos, ({ one }) => ({
    user: one(users, { fields: [photos.userId], references: [users.id] }),
}));
