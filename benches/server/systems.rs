//! The compared ways to make keys, each as a user would set it up.

use postgres::Client;

use crate::{sql, value};

/// A way to make keys.
pub struct System {
    pub name: &'static str,
    /// An expression that makes a key.
    pub call: &'static str,
    /// A column filled by the expression.
    pub column: &'static str,
    /// The table for whose rows one backend makes calls.
    pub calls_over: Rows,
    /// The same in each transaction of concurrent backends.
    pub load_over: Rows,
}

/// A table, and the number of its rows.
#[derive(Clone, Copy)]
pub struct Rows(pub &'static str, pub f64);

pub const MILLION: Rows = Rows("million", 1e6);
pub const HUNDRED_THOUSAND: Rows = Rows("hundred_thousand", 1e5);
pub const THOUSAND: Rows = Rows("thousand", 1e3);
pub const READY_MADE: Rows = Rows("ready_made", 1e6);

const FAST: [Rows; 2] = [MILLION, HUNDRED_THOUSAND];
const SLOW: [Rows; 2] = [HUNDRED_THOUSAND, THOUSAND];
/// A transaction that updates one row many times takes ever longer to find it, and its lock delays all others.
const SLOWEST: [Rows; 2] = [THOUSAND, Rows("(VALUES (1)) AS one", 1.0)];

pub const IDGEN: &str = "idgen";
pub const NEXTVAL: &str = "nextval, identity";
pub const CACHED: &str = "nextval, CACHE 100";
pub const INSTAGRAM: &str = "Instagram's PL/pgSQL";
const PGEDGE: &str = "pgEdge Snowflake";

const SYSTEMS: [System; 9] = [
    system(IDGEN, "snowflake_next_id(5)", "bigint DEFAULT snowflake_next_id(5)", FAST),
    system(NEXTVAL, "nextval('numbers')", "bigint GENERATED ALWAYS AS IDENTITY", FAST),
    system(CACHED, "nextval('cached')", "bigint GENERATED ALWAYS AS IDENTITY (CACHE 100)", FAST),
    system(INSTAGRAM, "insta5.next_id()", "bigint DEFAULT insta5.next_id()", SLOW),
    system("gen_random_uuid", "gen_random_uuid()", "uuid DEFAULT gen_random_uuid()", FAST),
    system("uuidv7", "uuidv7()", "uuid DEFAULT uuidv7()", FAST),
    system(PGEDGE, "snowflake.nextval('flakes')", "bigint DEFAULT snowflake.nextval('flakes')", FAST),
    system("segments of 1000", "next_of_segment()", "bigint DEFAULT next_of_segment()", SLOW),
    system("ticket table", "next_ticket()", "bigint DEFAULT next_ticket()", SLOWEST),
];

const fn system(
    name: &'static str,
    call: &'static str,
    column: &'static str,
    [calls_over, load_over]: [Rows; 2],
) -> System {
    System { name, call, column, calls_over, load_over }
}

/// Creates the objects that the systems need, and a table for each: `rows_0`, `rows_1` and so on. Returns the systems
/// that the server has: PostgreSQL has `uuidv7()` from version 18 on, and few servers have the extension of pgEdge.
pub fn create(client: &mut Client) -> Vec<System> {
    sql(client, SET_UP);
    let is_new: bool = value(client, "SELECT to_regprocedure('uuidv7()') IS NOT NULL");
    let has_pgedge =
        value(client, "SELECT count(*) > 0 FROM pg_available_extensions WHERE name = 'snowflake'");
    if has_pgedge {
        sql(client, PGEDGE_SET_UP);
    }
    let has = |system: &System| match system.name {
        "uuidv7" => is_new,
        PGEDGE => has_pgedge,
        _ => true,
    };
    let systems: Vec<_> = SYSTEMS.into_iter().filter(has).collect();
    for (number, System { column, .. }) in systems.iter().enumerate() {
        sql(client, &format!("CREATE TABLE rows_{number} (id {column} PRIMARY KEY, n integer)"));
    }
    systems
}

const PGEDGE_SET_UP: &str = "
CREATE EXTENSION snowflake;
CREATE SEQUENCE flakes;
SET snowflake.node = 1;
ALTER DATABASE postgres SET snowflake.node = 1";

const SET_UP: &str = concat!(
    include_str!("../instagram.sql"),
    "
CREATE SEQUENCE numbers;
CREATE SEQUENCE cached CACHE 100;

CREATE TABLE tickets (name text PRIMARY KEY, id bigint NOT NULL);
CREATE FUNCTION next_ticket() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ticket bigint;
BEGIN
    INSERT INTO tickets AS t VALUES ('rows', 1) ON CONFLICT (name) DO UPDATE SET id = t.id + 1
    RETURNING t.id INTO ticket;
    RETURN ticket;
END $$;

-- A session keeps the next number of its segment in a setting of its own.
CREATE TABLE segments (name text PRIMARY KEY, next bigint NOT NULL);
INSERT INTO segments VALUES ('rows', 0);
CREATE FUNCTION next_of_segment() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    number bigint := coalesce(nullif(current_setting('bench.segment', true), ''), '0');
BEGIN
    IF number % 1000 = 0 THEN
        UPDATE segments AS s SET next = s.next + 1000 WHERE name = 'rows'
        RETURNING s.next - 1000 INTO number;
    END IF;
    PERFORM set_config('bench.segment', (number + 1)::text, false);
    RETURN number;
END $$;

CREATE TABLE million AS SELECT n FROM generate_series(1, 1000000) AS n;
CREATE TABLE hundred_thousand AS SELECT n FROM generate_series(1, 100000) AS n;
CREATE TABLE thousand AS SELECT n FROM generate_series(1, 1000) AS n;
CREATE TABLE ready_made AS SELECT snowflake_make_id(now() + n / 1000 * interval '1 ms', 5, n % 1000) AS id, n
    FROM million;
"
);
