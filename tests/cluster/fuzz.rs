//! Promise 5 on a real server: a function or a setting answers any input, or refuses it with an SQLSTATE of its own.
//! `make fuzz CALLS=… SEED=…`.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::process::number_variable;
use crate::server::{PRELOAD, Server, Sql};

/// Texts that are nearly valid.
const WORDS: [&str; 14] = [
    "2025-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999+23:59",
    "1735689600000",
    "-62135596800000",
    "0-4095,5000",
    "8191",
    "idgen",
    "js53",
    "instagram",
    "-__________",
    "P_________",
    "FZZZZZZZZZZZZ",
    "0000000000000",
    "public",
];

/// Characters that occur in the forms of a text, and others.
const CHARACTERS: &str = "0123456789abcdefTZtz+-:., _AEIOULPYXé€𝄞\t\n\r\u{1}\u{85}\u{2028}\\\"'%$";

fn word(rng: &mut Rng) -> String {
    let characters: Vec<char> = CHARACTERS.chars().collect();
    let drawn = |rng: &mut Rng| *rng.choice(&characters).unwrap();
    let mut text: Vec<char> = rng.choice(WORDS).unwrap_or_default().chars().collect();
    match rng.u8(..8) {
        0 => text = (0..rng.usize(..20)).map(|_| drawn(rng)).collect(),
        1 => text = (0..rng.usize(..20)).map(|_| rng.char('\u{1}'..)).collect(),
        2 => text = text.repeat(rng.usize(..2000)),
        3 => {}
        _ => {
            for _ in 0..rng.usize(1..4) {
                let place = rng.usize(..=text.len());
                match rng.u8(..3) {
                    0 => text.insert(place, drawn(rng)),
                    1 => text.truncate(place),
                    _ => text[..place].reverse(),
                }
            }
        }
    }
    text.into_iter().collect()
}

fn integer(rng: &mut Rng, bits: u32) -> i64 {
    let edge = 1i64.wrapping_shl(rng.u32(..bits)).wrapping_add(rng.i64(-1..=1));
    let number = match rng.u8(..4) {
        0 => rng.i64(-1..9000),
        1 => edge,
        2 => edge.wrapping_neg(),
        _ => rng.i64(..),
    };
    number << (64 - bits) >> (64 - bits)
}

fn timestamp(rng: &mut Rng) -> String {
    let edges = ["-infinity", "infinity", "4714-11-24 00:00:00+00 BC", "294276-12-31 23:59:59.999999+00"];
    match rng.u8(..4) {
        0 => rng.choice(edges).unwrap_or_default().into(),
        // Around the range of ids, and around the year 1.
        1 => format!("{}-0{}-01 00:00:00.{:06}+00", rng.u32(1..12_000), rng.u8(1..=9), rng.u32(..1_000_000)),
        _ => format!("20{:02}-01-01 00:00:00.{:06}+00", rng.u8(10..100), rng.u32(..1_000_000)),
    }
}

/// A literal argument.
///
/// # Panics
/// If the type is new to this test.
fn argument(rng: &mut Rng, of_type: &str) -> String {
    if rng.u8(..30) == 0 {
        return format!("NULL::{of_type}");
    }
    let value = match of_type {
        "integer" => integer(rng, 32).to_string(),
        "bigint" => integer(rng, 64).to_string(),
        "boolean" => rng.bool().to_string(),
        "text" => word(rng),
        "timestamp with time zone" => timestamp(rng),
        "regnamespace" | "oid" => integer(rng, 32).unsigned_abs().to_string(),
        // SQL has no values of this type.
        "internal" => return "NULL::internal".into(),
        // PostgreSQL accepts no text for this type, so the value comes from the catalog.
        "pg_node_tree" => return format!("(SELECT adbin FROM pg_attrdef OFFSET {} LIMIT 1)", rng.u8(..5)),
        other => panic!("say what an argument of type {other} can be"),
    };
    format!("{}::{of_type}", literal(&value))
}

fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A call of a function or a SET, with random arguments.
fn call(rng: &mut Rng, surface: &[(String, Vec<String>)], settings: &[String]) -> String {
    if rng.u8(..50) == 0 {
        let value = if rng.bool() { word(rng) } else { integer(rng, 64).to_string() };
        return format!("SET LOCAL {} = {}", rng.choice(settings).unwrap(), literal(&value));
    }
    let (name, types) = rng.choice(surface).unwrap();
    let arguments: Vec<String> = types.iter().map(|of_type| argument(rng, of_type)).collect();
    // A few ids of a batch are enough.
    format!("SELECT count(r) FROM (SELECT {name}({}) AS r LIMIT 3) AS rows", arguments.join(", "))
}

/// Promise 5: no input causes an internal error or takes the server down. New functions take part automatically.
#[test]
fn any_input_is_answered_or_refused() {
    let calls = number_variable("CALLS").unwrap_or(10_000);
    let seed = number_variable("SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("to replay: make fuzz CALLS={calls} SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let server = Server::start(&[PRELOAD, "log_min_messages = panic"]);
    let mut client = server.connect();
    let sql = "SELECT p.oid::regproc::text, array(SELECT format_type(t, NULL)
                   FROM unnest(proargtypes) WITH ORDINALITY AS a (t, n) ORDER BY n)
               FROM pg_proc AS p JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = p.oid
               WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
               ORDER BY p.oid::regprocedure::text";
    let surface: Vec<(String, Vec<String>)> = client.rows(sql);
    let sql = "SELECT name FROM pg_settings WHERE name LIKE 'idgen.%' ORDER BY name";
    let settings: Vec<String> = client.column(sql);
    let started = |client: &mut postgres::Client| -> String {
        client.value("SELECT pg_postmaster_start_time()::text || pg_backend_pid()")
    };
    let before = started(&mut client);
    client.run("CREATE TABLE defaults (a bigint DEFAULT snowflake_next_id(200), b text DEFAULT 'b' || snowflake_next_id(),
                                    c integer DEFAULT -7, d text DEFAULT repeat('é', 100))");

    // Each round has a hundred calls, each in a block of its own, because the round trip costs more than the call. No
    // call waits, whatever was set before.
    let sql =
        "CREATE FUNCTION pg_temp.answer(call text) RETURNS text LANGUAGE plpgsql SET idgen.max_wait = 0 AS
               $$ BEGIN EXECUTE call; RETURN 'answered'; EXCEPTION WHEN OTHERS THEN RETURN sqlstate; END $$";
    client.run(sql);
    let answer = client.prepare("SELECT pg_temp.answer(call) FROM unnest($1::text[]) AS call").unwrap();
    let mut answers: BTreeMap<String, u64> = BTreeMap::new();
    let mut left = calls;
    while left > 0 {
        let calls: Vec<String> = (0..left.min(100)).map(|_| call(&mut rng, &surface, &settings)).collect();
        left -= calls.len() as u64;
        let rows = client.query(&answer, &[&calls]);
        let rows = rows.unwrap_or_else(|error| panic!("{error} in {calls:#?}\n{}", server.log()));
        for (row, call) in rows.iter().zip(&calls) {
            let state: String = row.get(0);
            assert!(!state.starts_with("XX"), "{state} at {call}");
            *answers.entry(state).or_default() += 1;
        }
        // This cannot run in a transaction.
        let value = literal(&word(&mut rng));
        let sql = format!("ALTER SYSTEM SET {} = {value}", rng.choice(&settings).unwrap());
        if let Err(error) = client.batch_execute(&sql) {
            assert!(error.code().is_some_and(|code| !code.code().starts_with("XX")), "{error} at {sql}");
        }
    }
    println!("{calls} calls of {} functions: {answers:?}", surface.len());
    assert_eq!(started(&mut client), before, "the server or the session has ended");
}
