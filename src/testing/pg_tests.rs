//! Tests inside a backend, for code that reads PostgreSQL's state and cannot be tested from SQL.

#[pgrx::pg_schema]
mod tests {
    use std::collections::BTreeSet;

    use idgen_core::host::Host;
    use pgrx::pg_sys::panic::ErrorReport;
    use pgrx::prelude::*;

    use crate::clock;
    use crate::error::{Class, Error, Reason, Row, Table, Warning, sqlstate};
    use crate::host::host;
    use crate::pg::compat::standbys_status_has_bits;
    use crate::pg::setting::{names_library, preloads};
    use crate::pg::standbys::defined;
    use crate::session::SESSION;
    use crate::settings;

    fn get<T: FromDatum + IntoDatum>(sql: &str) -> T {
        Spi::get_one(sql).expect("query").expect("a value")
    }

    /// Promise 1: a byte 1 says that standbys are defined where it is a `bool`, and that they are not where it
    /// is bits.
    #[pg_test]
    fn the_status_of_standbys_is_read_as_the_release_means_it() {
        let read = |status, has_bits| defined(|| status, has_bits);
        assert_eq!([0, 1, 3].map(|status| read(status, true)), [None, Some(false), Some(true)]);
        // The checkpointer of this server has begun.
        assert_eq!([0, 1].map(|status| read(status, false)), [Some(false), Some(true)]);
    }

    /// Promise 1: a release that is taken for an earlier one waits for standbys that there are not, and one that is
    /// taken for a later one does not wait for those that there are.
    #[pg_test]
    fn the_releases_whose_status_of_standbys_has_bits_are_known() {
        let last_before = [15_00_12, 16_00_08, 17_00_04];
        for release in last_before {
            let has_bits = [release, release + 1].map(standbys_status_has_bits);
            assert_eq!(has_bits, [false, true], "{release}");
        }
        let first = [15, 16, 17, 18, 19].map(|version| standbys_status_has_bits(version * 1_00_00));
        assert_eq!(first, [false, false, false, true, true]);
    }

    /// Promise 4: a call that waits for the clock sleeps no longer than that takes.
    #[pg_test]
    fn the_time_until_a_tick_is_told_in_microseconds() {
        let in_an_hour = clock::now().expect("a tick") + 3_600_000;
        let us = clock::us_until(in_an_hour).expect("an epoch");
        assert!((1_000_000_000..=3_600_000_000).contains(&us), "{us}");
    }

    /// The setting is the same to SQL and to Rust.
    #[pg_test]
    fn settings_are_read() {
        Spi::run("SET idgen.shard = 77; SET idgen.max_lease = 5; SET idgen.max_wait = '2s'").expect("SET");
        assert_eq!(settings::shard().map(i32::from), Ok(77));
        let current = settings::current().expect("an epoch");
        assert_eq!((current.max_lease, current.max_wait_ms), (5, 2000));
        assert_eq!(get::<i32>("SELECT shard_of(snowflake_next_id())"), 77);
        assert_eq!(SESSION.last_id(), Some(get::<i64>("SELECT snowflake_last_id()")));
    }

    /// Promise 5: an error in a log says what raised it, what is wrong and what to do.
    #[pg_test]
    fn every_error_says_where_it_comes_from() {
        for error in Error::samples() {
            let report = ErrorReport::from(error.clone());
            let (detail, hint) = (report.detail().unwrap_or(""), report.hint().unwrap_or(""));
            let shown = format!("{}\n{detail}", report.message());
            assert!(shown.contains("idgen") || shown.contains("snowflake_"), "{error:?}: {shown}");
            assert!(detail.ends_with('.') && hint.ends_with('.'), "{error:?}");
        }
    }

    /// Promise 5: the reference has each error, with its SQLSTATE and the reason under which it is counted, and each
    /// warning.
    #[pg_test]
    fn the_reference_has_every_error_and_warning() {
        let page = include_str!("../../docs/reference.md");
        let (_, warnings) = page.split_once("\n### Warnings\n").expect("the section");
        let (warnings, rest) = warnings.split_once("\n### ").expect("the next one");
        // An item is an SQLSTATE, then messages, each perhaps with its reason.
        let errors: Vec<String> =
            rest.split("\n- `").map(|item| item.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        // A text has "…" for names and numbers.
        let is_text_of = |text: &str, message: &str| {
            let mut parts = text.split('…');
            let left = parts.next().and_then(|begin| message.strip_prefix(begin));
            let left = parts.try_fold(left, |left, part| Some(Some(left?.split_once(part)?.1))).flatten();
            left.is_some_and(|left| left.is_empty() || text.ends_with('…'))
        };
        for error in Error::samples() {
            let Row { class: Class(code, reason), message, .. } = error.row();
            let begin = format!("{}` ", sqlstate(code));
            let counted = reason.map(|reason| format!(" (`{}`)", Reason::ALL[reason as usize].1));
            let has = errors.iter().filter(|item| item.starts_with(&begin)).any(|item| {
                let parts: Vec<&str> = item.split("**").collect();
                parts[1..].chunks(2).any(|pair| {
                    let after = pair.get(1).copied().unwrap_or("");
                    let as_counted = match &counted {
                        Some(reason) => after.starts_with(reason),
                        None => !after.starts_with(" (`"),
                    };
                    is_text_of(pair[0], &message) && as_counted
                })
            });
            assert!(has, "{error:?}");
        }
        // The log alone has those without a code.
        let warnings: Vec<String> = warnings
            .split("\n- **")
            .map(|item| item.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for warning in Warning::samples().into_iter().filter(|warning| !matches!(warning, Warning::Error(_)))
        {
            let Row { known, message, .. } = warning.row();
            let mut items = warnings.iter().filter_map(|item| item.split_once("**"));
            let item = items.find(|(text, _)| is_text_of(text, &message));
            let is_known = item.map(|(_, said)| !said.contains("only in the log"));
            assert_eq!(is_known, Some(known.is_some()), "{warning:?}");
        }
    }

    /// Programs tell warnings by their codes, and do not need to know any text.
    #[pg_test]
    fn every_warning_has_a_code_of_its_own() {
        let page = include_str!("../../docs/reference.md").split_whitespace().collect::<Vec<_>>().join(" ");
        let rows = Warning::samples().into_iter().filter_map(|warning| warning.row().known);
        let codes: Vec<_> = rows.map(|known| known.code).collect();
        assert_eq!(codes.iter().collect::<BTreeSet<_>>().len(), codes.len(), "{codes:?}");
        let is_listed = |code: &&&str| {
            page.contains(&format!("** (`{code}`)")) || page.contains(&format!("⚠ `{code}` **"))
        };
        let missing: Vec<_> = codes.iter().filter(|code| !is_listed(code)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    /// A backend that waits for the mark is woken, even between its last look at the mark and its sleep. Otherwise it
    /// would sleep to the end.
    #[pg_test]
    fn a_wake_up_ends_the_wait_for_the_mark() {
        const SLEEP_MS: u64 = 60_000;
        let host = host().expect("shared memory");
        let begun_us = host.monotonic_us();
        host.wait_for_mark(SLEEP_MS, || {
            host.wake_waiting();
            false
        });
        let slept_ms = (host.monotonic_us() - begun_us) / 1000;
        assert!(slept_ms < SLEEP_MS, "the backend was not woken: {slept_ms} ms");
    }

    /// Citus in a list of libraries, as PostgreSQL reads it: beside it an empty list of shards allows none.
    #[pg_test]
    fn citus_is_found_in_any_form() {
        let forms = [
            "citus",
            "citus,idgen",
            " idgen ,\tcitus ",
            "\"citus\"",
            "idgen, \"$libdir/citus\"",
            "$libdir/citus",
            "citus.so",
            "/opt/a folder/citus.so,x",
            "\"/opt/a,b/citus\"",
            "/opt//lib/./citus",
            "Citus",
        ];
        for list in forms {
            assert!(names_library(list, "citus"), "{list}");
        }
        for list in [
            "",
            "idgen",
            "citus_columnar",
            "\"citus,idgen\"",
            "citus/idgen",
            "notcitus",
            "citus x",
            ",",
            "\"",
        ] {
            assert!(!names_library(list, "citus"), "{list}");
        }
        assert!(preloads("idgen") && !preloads("citus"));
    }
}
