//! Moves a shard, or all of them, from one server to another without minting an id twice: the old server closes the
//! shard and says how far its ids can have got, and the new one goes past that.

use idgen_ids::id::MAX_TICK;
use idgen_ids::js::JsShard;
use idgen_ids::{Shard, Tick};

use crate::deadline::Deadline;
use crate::error::Error;
use crate::host::{Host, Wait};
use crate::mark::renewal;
use crate::mint::Session;
use crate::position::{LayoutShard, Position};
use crate::settings::Settings;
use crate::shared::Slotted;
use crate::slot::Slot;

/// Closes a shard in both layouts. Returns the first id that this server will never mint for it unless it is reopened.
/// It does not wait: everything that a session has taken and not yet handed out, a lease, a batch, or a run that is not
/// due, was carved from the slot, and is therefore below the slot's next position.
///
/// The second of every JavaScript-safe id begins before the millisecond of the result. So a server that has
/// [advanced](advance) past the id before the result continues in a later second.
///
/// # Errors
/// [`Error::Recovery`], [`Error::OtherEpoch`], and [`Error::Exhausted`] if no id is left for another server.
pub fn close<H: Host>(
    host: &H,
    settings: &Settings,
    session: &Session,
    shard: Shard,
) -> Result<i64, H::Error> {
    session.drop_lease();
    renewal::load(host, settings)?;
    let next = set_closed(host, shard, true).next;
    let js = js(shard).and_then(|js| set_closed(host, js, true).last()).map_or(0, |last| last.tick() + 1);
    let bound = next.max(Position::first_of(js.max(host.recovered())));
    if bound.tick() > MAX_TICK {
        return Err(Error::Exhausted.into());
    }
    Ok(shard.id(bound))
}

/// Lets a closed shard mint again. Returns whether it was closed.
pub fn reopen(host: &impl Host, shard: Shard) -> bool {
    let was_closed = js(shard).is_some_and(|js| set_closed(host, js, false).closed);
    set_closed(host, shard, false).closed || was_closed
}

/// Closes or opens a shard in one layout, and returns its previous slot.
fn set_closed<S: Slotted>(host: &impl Host, shard: S, closed: bool) -> Slot<S> {
    host.with_slot(shard, |slot| {
        let before = *slot;
        slot.closed = closed;
        before
    })
}

/// The shard with the same number for JavaScript-safe ids, if there is one.
fn js(shard: Shard) -> Option<JsShard> {
    JsShard::try_from(i32::from(shard)).ok()
}

/// Makes the shard's next id greater than `past`, durably, and returns the smallest id that can come next. Its
/// JavaScript-safe ids will be of a later second. The shard may be closed.
///
/// # Errors
/// [`Error::AdvanceTooFar`], [`Error::Exhausted`] for an id at the end of the range, and those of
/// [`crate::mint::next_id`].
pub fn advance<H: Host>(
    host: &H,
    settings: &Settings,
    session: &Session,
    shard: Shard,
    past: i64,
) -> Result<i64, H::Error> {
    let position = Position::after(past, shard).ok_or(Error::Exhausted)?;
    let tick = position.tick();
    session.drop_lease();
    let mut deadline = Deadline::new(settings);
    reach(host, settings, tick, &mut deadline, |by_ms, max_ahead_ms| Error::AdvanceTooFar {
        by_ms,
        max_ahead_ms,
    })?;
    let next = go_to(host, shard, position);
    // A server that begins at a mark above `tick` begins after its second, so this is as durable.
    if let Some(js) = js(shard) {
        go_to(host, js, Position::first_of(tick / JsShard::UNIT_MS + 1));
    }
    // Leases granted earlier may hold lower positions, and live until the end of their millisecond.
    let (granted, since) = (host.now()?, host.monotonic_us());
    while host.now()? == granted {
        // The rest of the millisecond is part of any call.
        let stands = host.monotonic_us().saturating_sub(since) > 2000;
        if stands && deadline.left_us(host).is_none() {
            return Err(Error::ClockStands { waited_ms: deadline.waited_ms(host) }.into());
        }
        host.sleep(100, Wait::Clock);
    }
    Ok(shard.id(next))
}

/// Moves a slot on to a position unless it is already past it. Returns its next position.
fn go_to<S: Slotted>(host: &impl Host, shard: S, position: Position<S>) -> Position<S> {
    host.with_slot(shard, |slot| {
        slot.next = slot.next.max(position);
        slot.next
    })
}

/// Makes all ids of later calls be of `first` or later, durably, for all shards of both layouts. Returns the first tick
/// that ids can now have.
///
/// A reader of the horizon asks for no more than what has been issued; this raises the floor above all ids. But it goes
/// no further ahead of the clock than ids may go.
///
/// # Errors
/// [`Error::RaiseTooFar`], [`Error::Exhausted`] after the end of the range, and those of [`crate::mint::next_id`].
pub fn raise_mark<H: Host>(host: &H, settings: &Settings, first: Tick) -> Result<Tick, H::Error> {
    let mut deadline = Deadline::new(settings);
    let past = first.saturating_sub(1);
    reach(host, settings, past, &mut deadline, |by_ms, max_ahead_ms| Error::RaiseTooFar {
        by_ms,
        max_ahead_ms,
    })?;
    host.with_mark(|mark| mark.raise(first));
    Ok(host.now()?.max(host.floor()))
}

/// Makes a mark above `tick` durable, so that a server that restarts, or a standby that is promoted, begins after it.
fn reach<H: Host>(
    host: &H,
    settings: &Settings,
    tick: Tick,
    deadline: &mut Deadline,
    too_far: impl Fn(u64, u64) -> Error,
) -> Result<(), H::Error> {
    loop {
        let (now, max_ahead_ms) = (host.now()?, settings.max_ahead_ms);
        if tick > now.saturating_add(max_ahead_ms) {
            return Err(too_far(tick - now, max_ahead_ms).into());
        }
        if tick > MAX_TICK {
            return Err(Error::Exhausted.into());
        }
        if host.limit() > tick {
            return Ok(());
        }
        if host.recovered() > tick {
            // The mark may be durable on this server only, and a standby that is promoted would begin below it.
            return renewal::share_settled(host, settings, deadline);
        }
        renewal::reserve(host, settings, tick, tick, deadline)?;
    }
}
