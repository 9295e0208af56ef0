//! The ways to make keys that are compared, each as a user would have it.

use postgres::Client;

use crate::{sql, value};

/// A way to make keys: its name, an expression that makes a key, a column that it fills, and the table for whose rows one
/// backend calls it, and the one for each transaction of concurrent backends.
pub type System = (&'static str, &'static str, &'static str, [Rows; 2]);

/// A table, and the number of its rows.
#[derive(Clone, Copy)]
pub struct Rows(pub &'static str, pub f64);

pub const MILLION: Rows = Rows("million", 1e6);
pub const HUNDRED_THOUSAND: Rows = Rows("hundred_thousand", 1e5);
pub const THOUSAND: Rows = Rows("thousand", 1e3);
pub const READY_MADE: Rows = Rows("ready_made", 1e6);

const FAST: [Rows; 2] = [MILLION, HUNDRED_THOUSAND];
const SLOW: [Rows; 2] = [HUNDRED_THOUSAND, THOUSAND];

pub const IDGEN: &str = "idgen";
pub const NEXTVAL: &str = "nextval, identity";
pub const CACHED: &str = "nextval, CACHE 100";
pub const INSTAGRAM: &str = "Instagram's PL/pgSQL";

const SYSTEMS: [System; 6] = [
    (IDGEN, "snowflake_next_id(5)", "bigint DEFAULT snowflake_next_id(5)", FAST),
    (NEXTVAL, "nextval('numbers')", "bigint GENERATED ALWAYS AS IDENTITY", FAST),
    (CACHED, "nextval('cached')", "bigint GENERATED ALWAYS AS IDENTITY (CACHE 100)", FAST),
    (INSTAGRAM, "insta5.next_id()", "bigint DEFAULT insta5.next_id()", SLOW),
    ("gen_random_uuid", "gen_random_uuid()", "uuid DEFAULT gen_random_uuid()", FAST),
    ("uuidv7", "uuidv7()", "uuid DEFAULT uuidv7()", FAST),
];

/// Creates what the systems need, and a table for each: `rows_0`, `rows_1` and so on. Returns the systems that the server
/// has: PostgreSQL has `uuidv7()` from version 18 on.
pub fn create(client: &mut Client) -> Vec<System> {
    sql(client, SET_UP);
    let is_new: bool = value(client, "SELECT to_regproc('uuidv7') IS NOT NULL");
    let systems: Vec<_> = SYSTEMS.into_iter().filter(|system| is_new || system.0 != "uuidv7").collect();
    for (number, (_, _, column, _)) in systems.iter().enumerate() {
        sql(client, &format!("CREATE TABLE rows_{number} (id {column} PRIMARY KEY, n integer)"));
    }
    systems
}

const SET_UP: &str = concat!(
    include_str!("../instagram.sql"),
    "
CREATE SEQUENCE numbers;
CREATE SEQUENCE cached CACHE 100;

CREATE TABLE million AS SELECT n FROM generate_series(1, 1000000) AS n;
CREATE TABLE hundred_thousand AS SELECT n FROM generate_series(1, 100000) AS n;
CREATE TABLE thousand AS SELECT n FROM generate_series(1, 1000) AS n;
CREATE TABLE ready_made AS SELECT snowflake_make_id(now() + n / 1000 * interval '1 ms', 5, n % 1000) AS id, n
    FROM million;
"
);
