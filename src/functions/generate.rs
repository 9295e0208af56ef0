//! Minting.

use std::ops::Range;
use std::vec;

use pgrx::pg_extern;

use crate::error::{Error, or_raise};
use crate::js::JsShard;
use crate::layout::{OutOfRange, Position, Shard, compose};
use crate::pg::{Call, hot_entry};
use crate::slot::Run;
use crate::{mint, settings, shmem};

fn shard_argument<S: TryFrom<i32, Error = OutOfRange>>(shard: Option<i32>) -> Result<S, Error> {
    Ok(S::try_from(shard.ok_or(Error::Null("shard"))?)?)
}

hot_entry!(
    snowflake_next_id_wrapper,
    |call: Call| mint::at_once(Shard::try_from(call.int4(0)?).ok()?),
    |call: Call| shard_argument(call.int4(0)).and_then(mint::next_id)
);

hot_entry!(snowflake_next_id_of_session_wrapper, |_| mint::at_once(settings::shard().ok()?), |_| {
    // Without the preload that is what has to be done first, whatever else is missing.
    shmem::shared().and_then(|_| settings::shard()).and_then(mint::next_id)
});

hot_entry!(snowflake_next_ids_wrapper, |call: Call| call.next_of_set::<Batch>(), |call: Call| call
    .begin_or_end_set(|| {
        let shard = shard_argument(call.int4(0))?;
        let count = call.int4(1).ok_or(Error::Null("count"))?;
        let count = u64::try_from(count).map_err(|_| Error::NegativeCount(count))?;
        Ok(Batch::new(shard, mint::next_ids(shard, count)?))
    }));

/// The ids of some runs, one after the other.
struct Batch {
    shard: Shard,
    run: Range<Position>,
    later: vec::IntoIter<Run>,
}

impl Batch {
    fn new(shard: Shard, runs: Vec<Run>) -> Batch {
        Batch { shard, run: 0..0, later: runs.into_iter() }
    }
}

impl Iterator for Batch {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        let position = self.run.next().or_else(|| {
            let Run { start, end } = self.later.next()?;
            self.run = start + 1..end;
            Some(start)
        })?;
        compose(position, self.shard).ok()
    }
}

#[pg_extern(sql = false)]
fn snowflake_next_id_js(shard: Option<i32>) -> i64 {
    or_raise(shard_argument::<JsShard>(shard).and_then(mint::next_id_js))
}

#[pg_extern(sql = false)]
fn snowflake_last_id() -> i64 {
    or_raise(mint::last_id())
}

#[pg_extern(sql = false)]
fn snowflake_advance(shard: Option<i32>, past: Option<i64>) -> i64 {
    let shard = or_raise(shard_argument(shard));
    or_raise(past.ok_or(Error::Null("past")).and_then(|past| mint::advance(shard, past)))
}
