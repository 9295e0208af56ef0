//! Tests inside a backend.

#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    use crate::pg::setting::{names_library, preloads};
    use crate::session::SESSION;
    use crate::{settings, shmem};

    fn get<T: FromDatum + IntoDatum>(sql: &str) -> T {
        Spi::get_one(sql).expect("query").expect("a value")
    }

    /// Promise 1: a byte 1 says that standbys are defined where it is a `bool`, and that they are not where it
    /// is bits.
    #[pg_test]
    fn the_status_of_standbys_is_read_as_the_release_means_it() {
        let defined = |status, has_bits| crate::pg::standbys::defined(|| status, has_bits);
        assert_eq!([0, 1, 3].map(|status| defined(status, true)), [None, Some(false), Some(true)]);
        // The checkpointer of this server has begun.
        assert_eq!([0, 1].map(|status| defined(status, false)), [Some(false), Some(true)]);
    }

    /// The size in docs and README: one cache line a slot, whatever the number of connections.
    #[pg_test]
    fn shared_memory_is_as_large_as_the_reference_says() {
        assert_eq!(shmem::SIZE, 540_928);
        let taken: i64 = get("SELECT size FROM pg_shmem_allocations WHERE name = 'idgen'");
        assert_eq!(taken, shmem::SIZE as i64);
    }

    /// Promise 2: within a backend ids increase, also where a batch comes between two calls.
    #[pg_test]
    fn ids_increase_over_calls_and_batches() {
        let ids: Vec<i64> = get("SELECT array_agg(id ORDER BY n) FROM (
                 SELECT 1 AS n, snowflake_next_id(3) AS id
                 UNION ALL SELECT 2, snowflake_next_ids(3, 2000)
                 UNION ALL SELECT 3, snowflake_next_id(3)) AS minted");
        assert_eq!(ids.len(), 2002);
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 2002);
        assert!(ids[0] < ids[1] && ids[2000] < ids[2001]);
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

    /// Errors that are caught leave minting as it was: no lock is held, the next call succeeds.
    #[pg_test]
    fn minting_goes_on_after_an_error() {
        Spi::run(
            "DO $$ BEGIN
                 FOR i IN 1..300 LOOP
                     BEGIN
                         PERFORM snowflake_next_id(8192);
                     EXCEPTION WHEN invalid_parameter_value THEN
                         PERFORM snowflake_next_id(4);
                     END;
                 END LOOP;
             END $$",
        )
        .expect("the block");
    }

    #[pg_test(error = "shard \"8192\" is out of range")]
    fn a_shard_out_of_range() {
        get::<i64>("SELECT snowflake_next_id(8192)");
    }
}
