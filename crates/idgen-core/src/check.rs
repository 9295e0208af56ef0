//! Checks whether ids can be minted now.

use idgen_ids::Tick;
use idgen_ids::id::MAX_TICK;

use crate::deadline::{Deadline, LOOK_AGAIN_US};
use crate::error::Error;
use crate::host::{Host, Wait};
use crate::mark::renewal;
use crate::settings::{QUEUE_MS, Settings};

/// Does what a call for an id does, except for taking one from a slot. Returns the limit: the end of the ticks that may
/// be issued now. `furthest` is the tick of the furthest id of all shards.
///
/// # Errors
/// Those of [`crate::mint::next_id`], except those of a single shard that has run out of ids or may not be minted for.
pub fn check<H: Host>(host: &H, settings: &Settings, furthest: Tick) -> Result<Tick, H::Error> {
    let mut deadline = Deadline::new(settings);
    let max_ahead_ms = settings.max_ahead_ms;
    loop {
        let now = host.now()?;
        // The limit is read first: see Published::limit.
        let limit = host.limit();
        let floor = host.floor();
        let tick = now.max(floor);
        if tick > MAX_TICK {
            return Err(Error::Exhausted.into());
        }
        // Calls that queue for a full shard take it this much further.
        let ahead = floor.max(furthest.saturating_sub(QUEUE_MS));
        if ahead > now + max_ahead_ms {
            if let Some(left_us) = deadline.left_us(host) {
                let due_in = host.us_until(ahead - max_ahead_ms)?;
                host.sleep(due_in.min(left_us).clamp(1, LOOK_AGAIN_US), Wait::Clock);
                continue;
            }
            // The process may have been suspended since it read the clock.
            let now = host.now()?;
            if ahead > now + max_ahead_ms {
                let waited_ms = deadline.waited_ms(host);
                return Err(behind(host.recovered(), ahead, now, max_ahead_ms, waited_ms).into());
            }
        } else if limit > tick {
            renewal::renew_early(host, settings, tick, &mut deadline);
            return Ok(host.limit());
        } else {
            renewal::reserve(host, settings, tick, tick, &mut deadline)?;
            host.check_for_interrupts();
        }
    }
}

fn behind(recovered: Tick, ahead: Tick, now: Tick, max_ahead_ms: u64, waited_ms: u64) -> Error {
    if recovered > now + max_ahead_ms {
        Error::ClockBehindMark { by_ms: recovered - now, max_ahead_ms, waited_ms }
    } else {
        Error::ClockBehindIds { by_ms: ahead - now, max_ahead_ms, waited_ms }
    }
}
