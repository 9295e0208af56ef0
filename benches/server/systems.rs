//! The ways to make keys that are compared, each as a user would have it.

/// A way to make keys.
pub struct System {
    /// What tables and plots call it.
    pub name: &'static str,
    /// An expression that makes a key.
    pub call: &'static str,
    /// A column filled by it.
    pub column: &'static str,
    /// The table for whose rows it is called when the calls of one backend are timed.
    pub calls_over: Rows,
    /// The table that each transaction of a load is over; none: a transaction for each call.
    pub load_over: Option<Rows>,
    /// The table for each transaction of a bulk insert, if a single transaction would take too long.
    pub insert_from: Option<Rows>,
}

/// A table of that many rows.
#[derive(Clone, Copy)]
pub struct Rows(pub &'static str, pub u64);

/// 1,000,000 rows.
pub const MILLION: Rows = Rows("million", 1_000_000);
/// 100,000 rows.
pub const HUNDRED_THOUSAND: Rows = Rows("hundred_thousand", 100_000);
/// 1000 rows.
pub const THOUSAND: Rows = Rows("thousand", 1000);

/// Places in [`SYSTEMS`] that the report names.
pub const IDGEN: usize = 0;
pub const NEXTVAL: usize = 1;
pub const CACHED: usize = 2;
pub const INSTAGRAM: usize = 3;

const FAST: System = System {
    name: "",
    call: "",
    column: "",
    calls_over: MILLION,
    load_over: Some(HUNDRED_THOUSAND),
    insert_from: None,
};

/// All of them. `uuidv7()` is there from PostgreSQL 18.
pub const SYSTEMS: [System; 8] = [
    System {
        name: "idgen",
        call: "snowflake_next_id(5)",
        column: "bigint PRIMARY KEY DEFAULT snowflake_next_id(5)",
        ..FAST
    },
    System {
        name: "nextval, identity",
        call: "nextval('numbers')",
        column: "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        ..FAST
    },
    System {
        name: "nextval, CACHE 100",
        call: "nextval('numbers_cached')",
        column: "bigint GENERATED ALWAYS AS IDENTITY (CACHE 100) PRIMARY KEY",
        ..FAST
    },
    System {
        name: "Instagram's PL/pgSQL",
        call: "insta5.next_id()",
        column: "bigint PRIMARY KEY DEFAULT insta5.next_id()",
        calls_over: HUNDRED_THOUSAND,
        load_over: Some(THOUSAND),
        ..FAST
    },
    System {
        name: "gen_random_uuid",
        call: "gen_random_uuid()",
        column: "uuid PRIMARY KEY DEFAULT gen_random_uuid()",
        ..FAST
    },
    System { name: "uuidv7", call: "uuidv7()", column: "uuid PRIMARY KEY DEFAULT uuidv7()", ..FAST },
    System {
        name: "segments of 1000",
        call: "next_of_segment()",
        column: "bigint PRIMARY KEY DEFAULT next_of_segment()",
        calls_over: HUNDRED_THOUSAND,
        load_over: Some(THOUSAND),
        ..FAST
    },
    // A transaction that updates one row a million times over finds it ever more slowly.
    System {
        name: "ticket table",
        call: "next_ticket()",
        column: "bigint PRIMARY KEY DEFAULT next_ticket()",
        calls_over: THOUSAND,
        load_over: None,
        insert_from: Some(THOUSAND),
    },
];

/// What they need in the database, and the tables of rows.
pub const SET_UP: &str = concat!(
    include_str!("../instagram.sql"),
    "
CREATE EXTENSION idgen;
CREATE SEQUENCE numbers;
CREATE SEQUENCE numbers_cached CACHE 100;

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
