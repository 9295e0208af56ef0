//! Whether ids can be minted now.

use idgen_ids::id::{MAX_TICK, Tick};

use crate::mint::{Error, LOOK_AGAIN_US, Patience, QUEUE_MS};
use crate::renew;
use crate::server::{Server, Wait};

/// Does what a call for an id does, except for taking one from a slot. Returns the limit: the end of the ticks that may
/// be issued now. `furthest` is the tick of the furthest id of all shards.
///
/// # Errors
/// Those of [`crate::mint::next_id`], except that a single shard has run out of ids or may not be minted for.
pub fn check<V: Server>(server: &V, furthest: Tick) -> Result<Tick, V::Error> {
    let mut patience = Patience::default();
    loop {
        let now = server.now()?;
        server.check_any_allowed()?;
        let max_ahead_ms = server.max_ahead_ms();
        // The limit is read first: see Published::limit.
        let limit = server.limit();
        let floor = server.floor();
        let tick = now.max(floor);
        if tick > MAX_TICK {
            return Err(Error::Exhausted.into());
        }
        // Calls that queue for a full shard take it that much further.
        let ahead = floor.max(furthest.saturating_sub(QUEUE_MS));
        if ahead > now + max_ahead_ms {
            if let Some(left_us) = patience.left_us(server) {
                let due_in = server.us_until(ahead - max_ahead_ms)?;
                server.sleep(due_in.min(left_us).clamp(1, LOOK_AGAIN_US), Wait::Clock);
                continue;
            }
            // The process may have been suspended since it read the clock.
            let now = server.now()?;
            if ahead > now + max_ahead_ms {
                return Err(behind(server, ahead, now, patience.waited_ms(server)).into());
            }
        } else if limit > tick {
            renew::renew_early(server, tick, &mut patience);
            return Ok(server.limit());
        } else {
            renew::reserve(server, tick, tick, &mut patience)?;
            server.check_for_interrupts();
        }
    }
}

fn behind(server: &impl Server, ahead: Tick, now: Tick, waited_ms: u64) -> Error {
    let max_ahead_ms = server.max_ahead_ms();
    let floor = server.run_floor();
    if floor > now + max_ahead_ms {
        Error::ClockBehindMark { by_ms: floor - now, max_ahead_ms, waited_ms }
    } else {
        Error::ClockBehindIds { by_ms: ahead - now, max_ahead_ms, waited_ms }
    }
}
