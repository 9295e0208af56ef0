CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(), name text NOT NULL);
CREATE TABLE photos (
    id bigint PRIMARY KEY DEFAULT snowflake_next_id(),
    user_id bigint NOT NULL REFERENCES users,
    caption text NOT NULL
);
