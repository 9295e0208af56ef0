//! Tests inside a backend, for code that reads PostgreSQL's state and cannot be tested from SQL.

#[pgrx::pg_schema]
mod tests {
    use idgen_ids::text::BadText;
    use idgen_ids::{OutOfRange, Shard};
    use pgrx::pg_sys::panic::ErrorReport;
    use pgrx::prelude::*;

    use crate::error::Error;
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

    /// The setting is the same to SQL and to Rust.
    #[pg_test]
    fn settings_are_read() {
        Spi::run("SET idgen.shard = 77; SET idgen.max_lease = 5; SET idgen.max_wait = '2s'").expect("SET");
        assert_eq!(settings::shard().map(i32::from), Ok(77));
        assert_eq!((settings::max_lease(), settings::max_wait_ms()), (5, 2000));
        assert_eq!(get::<i32>("SELECT shard_of(snowflake_next_id())"), 77);
        assert_eq!(SESSION.last_id(), Some(get::<i64>("SELECT snowflake_last_id()")));
    }

    /// One of each error, by the one before it. A new error has to be added here, or the match is not exhaustive.
    fn error_after(error: &Error) -> Option<Error> {
        use idgen_core::mint::Error as Minting;
        let shard = Shard::try_from(8191).expect("a shard");
        let (by_ms, max_ahead_ms, waited_ms) = (1, 1, 1);
        Some(match error {
            Error::Null(_) => Error::Part(OutOfRange { part: "shard", value: 8192, max: 8191 }),
            Error::Part(_) => Error::NegativeCount(-1),
            Error::NegativeCount(_) => Error::Timestamp,
            Error::Timestamp => Error::EpochArgument,
            Error::EpochArgument => Error::ShardUnset,
            Error::ShardUnset => Error::ShardNotAllowed { shard: 1, allowed: String::new() },
            Error::ShardNotAllowed { .. } => Error::NoShardsBesideCitus,
            Error::NoShardsBesideCitus => Error::NotPreloaded,
            Error::NotPreloaded => Error::NoLastId,
            Error::NoLastId => Error::BadSetting(""),
            Error::BadSetting(_) => Error::NotTaken("idgen.epoch".into()),
            Error::NotTaken(_) => Error::ClockBeforeEpoch { by_ms },
            Error::ClockBeforeEpoch { .. } => Error::OneSnapshot,
            Error::OneSnapshot => Error::NoOrigin { needed: 1 },
            Error::NoOrigin { .. } => Error::NoRoom { setting: "", room: 0, needed: 1 },
            Error::NoRoom { .. } => Error::NotSuperuser(""),
            Error::NotSuperuser(_) => Error::InRecovery(""),
            Error::InRecovery(_) => Error::StillPreloaded,
            Error::StillPreloaded => Error::OtherEpoch,
            Error::OtherEpoch => Error::NotTheEpoch,
            Error::NotTheEpoch => Error::MarkInFuture { by_ms },
            Error::MarkInFuture { .. } => Error::AnyLeap,
            Error::AnyLeap => Error::NoLayout(String::new()),
            Error::NoLayout(_) => Error::NotOfLayout { id: 1, layout: "", max: 0 },
            Error::NotOfLayout { .. } => Error::BadShortcode(String::new(), BadText::TooGreat),
            Error::BadShortcode(..) => Error::BadText(String::new(), BadText::TooGreat),
            Error::BadText(..) => Minting::BatchTooLarge { count: 1, most: 0 }.into(),
            Error::Mint(why) => match why {
                Minting::BatchTooLarge { .. } => Minting::BatchesBefore { shard, count: 1, ahead: 1 },
                Minting::BatchesBefore { .. } => Minting::ShardFull { shard, max_ahead_ms, waited_ms },
                Minting::ShardFull { .. } => Minting::ClockBehindMark { by_ms, max_ahead_ms, waited_ms },
                Minting::ClockBehindMark { .. } => {
                    Minting::ClockBehind { shard, by_ms, max_ahead_ms, waited_ms }
                }
                Minting::ClockBehind { .. } => Minting::ClockBehindIds { by_ms, max_ahead_ms, waited_ms },
                Minting::ClockBehindIds { .. } => Minting::ClockStands { waited_ms },
                Minting::ClockStands { .. } => Minting::ClockLeapt { by_ms },
                Minting::ClockLeapt { .. } => Minting::MarkNotRenewed { waited_ms },
                Minting::MarkNotRenewed { .. } => Minting::Recovery,
                Minting::Recovery => Minting::Prepared { count: 1 },
                Minting::Prepared { .. } => Minting::AdvanceTooFar { by_ms, max_ahead_ms },
                Minting::AdvanceTooFar { .. } => Minting::Exhausted,
                Minting::Exhausted => return None,
            }
            .into(),
        })
    }

    /// Promise 5: whoever finds an error in a log learns from it what raised it, what is wrong and what to do.
    #[pg_test]
    fn every_error_says_where_it_comes_from() {
        for error in std::iter::successors(Some(Error::Null("shard")), error_after) {
            let report = ErrorReport::from(error.clone());
            let (detail, hint) = (report.detail().unwrap_or(""), report.hint().unwrap_or(""));
            let shown = format!("{}\n{detail}", report.message());
            assert!(shown.contains("idgen") || shown.contains("snowflake_"), "{error:?}: {shown}");
            assert!(detail.ends_with('.') && hint.ends_with('.'), "{error:?}");
        }
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
