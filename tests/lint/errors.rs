//! Errors that SQL raises: each has an SQLSTATE, a DETAIL and a HINT, and its message or DETAIL names idgen or one of
//! its functions. For errors of the library, the compiler and a test in src/testing/pg_tests.rs check this.

use crate::{assert_none, files, read};

/// The fields that are missing in statements of a script that raise errors, except one that passes on a foreign error.
fn incomplete_errors(path: &str, script: &str) -> Vec<String> {
    let raised = script.match_indices("RAISE EXCEPTION").filter_map(|(begin, _)| {
        let statement =
            script[begin..].split_once(";\n").map_or(&script[begin..], |(statement, _)| statement);
        let (shown, hint) = statement.split_once("HINT = ").unwrap_or((statement, ""));
        // Every second part is inside quotes.
        let named =
            shown.split('\'').skip(1).step_by(2).any(|q| q.contains("idgen") || q.contains("snowflake_"));
        let complete =
            shown.contains("ERRCODE = '") && shown.contains("DETAIL = ") && !hint.is_empty() && named;
        let line = script[..begin].lines().count();
        (!complete && !statement.contains("ERRCODE = state")).then(|| format!("{path}:{line}: {statement}"))
    });
    raised.collect()
}

/// Promise 5.
#[test]
fn errors_that_sql_raises_say_where_they_come_from() {
    let mut scripts = files("sql", ".sql");
    scripts.retain(|path| !path.starts_with("sql/install/")); // released
    scripts.push("portable/idgen.sql".into());
    assert_none(&scripts.iter().flat_map(|path| incomplete_errors(path, &read(path))).collect::<Vec<_>>());
}

#[test]
fn an_incomplete_error_is_found() {
    let of = |statement: &str| incomplete_errors("", &format!("{statement};\n")).len();
    let whole = "RAISE EXCEPTION 'idgen; it' USING ERRCODE = '55000', DETAIL = 'b', HINT = 'c'";
    assert_eq!(of(whole), 0);
    for missing in ["ERRCODE = '55000', ", "DETAIL = 'b', ", ", HINT = 'c'", "idgen"] {
        assert_eq!(of(&whole.replace(missing, "")), 1, "{missing}");
    }
    assert_eq!(of("RAISE EXCEPTION 'a' USING ERRCODE = '55000', DETAIL = idgen.b(), HINT = 'idgen'"), 1);
}
