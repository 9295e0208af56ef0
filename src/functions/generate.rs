//! Minting.

use std::vec;

use idgen_core::host::Host;
use idgen_core::mint;
use idgen_core::position::{LayoutShard, Run};
use idgen_ids::js::JsShard;
use idgen_ids::{OutOfRange, Shard};
use pgrx::pg_extern;
use pgrx::pg_sys::panic::ErrorReport;

use crate::error::Error;
use crate::host::count_refusal;
use crate::minting::{host, host_at_hand};
use crate::pg::call::{Call, hot_entry};
use crate::pg::{backend, planner};
use crate::session::SESSION;
use crate::settings;

/// The shard that a call names.
pub fn shard_argument<S: TryFrom<i32, Error = OutOfRange>>(shard: Option<i32>) -> Result<S, Error> {
    Ok(S::try_from(shard.ok_or(Error::Null("shard"))?)?)
}

hot_entry!(
    snowflake_next_id_wrapper,
    |call: Call| at_once(Shard::try_from(call.int4(0)?).ok()?),
    |call: Call| shard_argument(call.int4(0)).and_then(next_id).map_err(count_refusal)
);

hot_entry!(
    snowflake_next_id_of_session_wrapper,
    |_| at_once(settings::shard().ok()?),
    // Report that there is no memory first, whatever else is missing.
    |_| host().and_then(|_| next_id(settings::shard()?)).map_err(count_refusal)
);

#[inline]
fn at_once(shard: Shard) -> Option<i64> {
    // A parallel worker never has a lease, so this keeps it from minting, and host() says so.
    let settings = || if backend::in_parallel_worker() { None } else { settings::if_allowed(shard) };
    mint::at_once(&host_at_hand()?, &SESSION, shard, settings)
}

fn next_id(shard: Shard) -> Result<i64, Error> {
    let host = host()?;
    // What keeps every shard from minting is reported before what concerns this one.
    host.now()?;
    mint::next_id(&host, &settings::for_shard(shard)?, &SESSION, shard)
}

hot_entry!(snowflake_next_ids_wrapper, |call: Call| call.next_of_set::<Batch>(), |call: Call| call
    .begin_or_end_set(|| next_ids(call).map_err(count_refusal)));

fn next_ids(call: Call) -> Result<Batch, Error> {
    let shard = shard_argument(call.int4(0))?;
    let count = call.int4(1).ok_or(Error::Null("count"))?;
    let count = u64::try_from(count).map_err(|_| Error::NegativeCount(count))?;
    let host = host()?;
    Ok(Batch::new(shard, mint::next_ids(&host, &settings::for_shard(shard)?, &SESSION, shard, count)?))
}

/// The ids of some runs, one after the other.
struct Batch {
    shard: Shard,
    run: Run<Shard>,
    later: vec::IntoIter<Run<Shard>>,
}

impl Batch {
    fn new(shard: Shard, runs: Vec<Run<Shard>>) -> Batch {
        Batch { shard, run: Run::EMPTY, later: runs.into_iter() }
    }
}

impl Iterator for Batch {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        let position = self.run.take_first().or_else(|| {
            self.run = self.later.next()?;
            self.run.take_first()
        })?;
        Some(self.shard.id(position))
    }
}

hot_entry!(snowflake_next_id_js_wrapper, |_| None::<i64>, |call: Call| shard_argument(call.int4(0))
    .and_then(next_id_js)
    .map_err(count_refusal));

fn next_id_js(shard: JsShard) -> Result<i64, Error> {
    mint::next_id_js(&host()?, &settings::for_shard(shard.into())?, &SESSION, shard)
}

#[pg_extern(sql = false)]
fn snowflake_last_id() -> Result<i64, ErrorReport> {
    Ok(SESSION.last_id().ok_or(Error::NoLastId)?)
}

hot_entry!(idgen_simplify_wrapper, |_| None::<i64>, |call: Call| Ok::<_, Error>(planner::simplified(call)));
