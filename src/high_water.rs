//! Keeps the durable high-water mark ahead of the ids: the steps around `reservation`, in the order
//! that its promise needs; and whether PostgreSQL has room for it. The raw calls are in `pg`.

use std::time::{Duration, Instant};

use crate::clock;
use crate::compat::{Wait, most_origins};
use crate::error::Error;
use crate::fault;
use crate::layout::Tick;
use crate::mint::{Patience, QUEUE_MS};
use crate::origins::{Origins, SAVED_IN};
use crate::pg;
use crate::reservation::{CLAIM_MS, Mark, Plan, Rules, Unplanned, runs_low};
use crate::settings;
use crate::shmem::{self, Shared};

/// How soon a backend first asks again whether the standbys have acknowledged, in microseconds. It
/// asks itself, instead of SyncRepWaitForLSN, because that would swallow a cancel with a warning and
/// look to the session's synchronous_commit; the mark is everybody's.
const POLL_FROM_US: u64 = 500;
/// How seldom it asks at last, in microseconds.
const POLL_TO_US: u64 = 20_000;

/// Takes over the stored mark, once in a run of the server; whether that was now.
///
/// # Errors
/// 25006 in recovery.
pub fn load(shared: &Shared) -> Result<bool, Error> {
    if shared.with_reservation(|r| r.loaded()) {
        return Ok(false);
    }
    if pg::in_recovery() {
        return Err(Error::Recovery);
    }
    // Recovery is over, so nothing but this run moves the register from here on.
    let stored = pg::load_mark();
    shared.with_reservation(|r| r.load(stored));
    Ok(true)
}

/// Waits until synchronous standbys, where there are any, have the mark that the horizon rests on. That of a run
/// that begins may be on this server's disk alone, and so may one that was published before the standbys were
/// configured. A standby that is promoted would begin below it.
///
/// # Errors
/// 25006 in recovery, and 55000 where the standbys do not acknowledge it in time.
pub fn share_settled(shared: &Shared, patience: &mut Patience) -> Result<(), Error> {
    load(shared)?;
    if !pg::standbys_must_acknowledge() {
        return Ok(());
    }
    let (settled, acknowledged, mut mark) =
        shared.with_reservation(|r| (r.settled(), r.limit(true), r.written(true)));
    if settled <= acknowledged {
        return Ok(());
    }
    if mark.tick < settled {
        // It is the floor, which is written once more: a standby that has it tells so when it gets something new.
        mark = Mark { tick: settled, lsn: pg::write_mark(settled) };
        shared.with_reservation(|r| r.wrote(mark, true));
    }
    pg::flush_wal(mark.lsn);
    until_acknowledged(mark, patience, || ())?;
    Ok(())
}

/// Makes `tick` issuable, and what is `wanted` up to a tick after it, or brings the caller nearer to that:
/// ask the slot again afterwards.
///
/// # Errors
/// 25006 in recovery, 53400, and 55000 where the mark does not become durable in time or the clock
/// leapt.
pub fn reserve(shared: &Shared, tick: Tick, wanted: Tick, patience: &mut Patience) -> Result<(), Error> {
    if load(shared)? {
        // The slot must see the new floor: with it the tick may be too far after the clock.
        return Ok(());
    }
    while shared.limit() <= tick {
        if let Some(claim) = Claim::take(shared, |limit| limit <= tick) {
            return renew(&claim, tick, wanted, patience);
        }
        let left = time_left(patience)?;
        let ms = (left.as_millis() as u64).clamp(1, CLAIM_MS);
        shared.wait_for_mark(ms, || shared.limit() > tick);
    }
    Ok(())
}

/// Renews the mark where less than half of the window is left after `tick` and nobody else does. The
/// caller has its ids already, so what fails here is left to the call that will need the mark.
pub fn renew_early(shared: &Shared, tick: Tick, patience: &mut Patience) {
    let reserve_ahead = settings::reserve_ahead_ms();
    if runs_low(tick, shared.limit(), reserve_ahead)
        && let Some(claim) = Claim::take(shared, |limit| runs_low(tick, limit, reserve_ahead))
    {
        let _ = renew(&claim, tick, tick, patience);
    }
}

/// Writes, flushes, has acknowledged, publishes: only in this order does a crash between any two
/// steps leave every issued id below the stored mark.
fn renew(claim: &Claim, tick: Tick, wanted: Tick, patience: &mut Patience) -> Result<(), Error> {
    let clocks = clock::both()?;
    let rules = Rules {
        // Those who queue for a full shard may be that much further ahead.
        max_ahead: settings::max_ahead_ms() + QUEUE_MS,
        // What is wanted makes a mark reach further, but is no reason to write one where one is awaited.
        reserve_ahead: settings::reserve_ahead_ms() + (wanted - tick),
        max_jump: settings::max_clock_jump_ms(),
        standbys: pg::standbys_must_acknowledge(),
    };
    let plan = match claim.0.with_reservation(|r| r.plan(clocks, tick, rules)) {
        Ok(plan) => plan,
        Err(Unplanned::Stale) => return Ok(()),
        Err(Unplanned::Leap { by_ms }) => return Err(Error::ClockLeapt { by_ms }),
    };

    let start = Instant::now();
    let mark = match plan {
        Plan::Await(mark) => mark,
        Plan::Write(tick) => {
            fault::point("before-wal");
            let mark = Mark { tick, lsn: pg::write_mark(tick) };
            claim.0.with_reservation(|r| r.wrote(mark, rules.standbys));
            mark
        }
    };
    fault::point("after-insert");
    pg::flush_wal(mark.lsn);
    fault::point("after-flush");
    let acknowledged = until_acknowledged(mark, patience, || claim.keep())?;
    fault::point("before-publish");
    let us = start.elapsed().as_micros() as u64;
    claim.0.with_reservation(|r| r.publish(mark.tick, acknowledged, clocks, us));
    Ok(())
}

/// The replication origins that the last checkpoint saved, as far as they can be read: what the server begins
/// with. Files are named from the data directory, which processes of the server are in.
pub fn saved_origins() -> Origins {
    std::fs::read(SAVED_IN).ok().and_then(|file| Origins::saved(&file)).unwrap_or_default()
}

/// The replication origins of this run of the server. A server that is allowed none has left the saved ones
/// where they are. Raises PostgreSQL's errors.
pub fn origins() -> Origins {
    if most_origins().1 == 0 {
        return saved_origins();
    }
    // In this order a mark that comes meanwhile does not look like one too many.
    let in_use = pg::origins_in_use();
    Origins { in_use, with_mark: pg::load_mark() > 0 }
}

/// Checks that there is room for the mark beside the other origins. Where there is not, a primary cannot mint,
/// and a server that replays the mark or has saved it goes down.
///
/// # Errors
/// 53400 where there is not.
pub fn room(origins: Origins) -> Result<(), Error> {
    let ((setting, room), needed) = (most_origins(), origins.needed());
    if needed > room { Err(Error::NoRoom { setting, room, needed }) } else { Ok(()) }
}

/// Removes the mark from the cluster for good; whether there was one.
///
/// # Errors
/// 42501 for who is no superuser, 25006 in recovery, 55000 where the library is preloaded: this run of the
/// server could go on to mint below a limit that nothing keeps. 53400 where PostgreSQL has left the mark on
/// disk, for lack of room: it would come back.
pub fn remove() -> Result<bool, Error> {
    if !pg::superuser() {
        return Err(Error::NotSuperuser);
    }
    if pg::in_recovery() {
        return Err(Error::RemovalInRecovery);
    }
    if shmem::shared().is_ok() {
        return Err(Error::StillPreloaded);
    }
    let origins = origins();
    if origins.with_mark {
        room(origins)?;
    }
    Ok(pg::drop_mark())
}

/// Waits until synchronous standbys have a mark; false where none have to. That is looked at anew each time:
/// synchronous replication may begin or end meanwhile. Where it begins after the last look, nobody takes ids below
/// a limit that was published unacknowledged.
fn until_acknowledged(mark: Mark, patience: &mut Patience, at_work: impl Fn()) -> Result<bool, Error> {
    let mut poll_us = POLL_FROM_US;
    while pg::standbys_must_acknowledge() {
        if pg::acknowledged(mark.lsn) {
            return Ok(true);
        }
        fault::point("before-acknowledge");
        let left = time_left(patience)?;
        at_work();
        pg::sleep(poll_us.min(left.as_micros() as u64), Wait::Standby);
        poll_us = (poll_us * 2).min(POLL_TO_US);
    }
    Ok(false)
}

/// What is left of a call's patience with the mark.
///
/// # Errors
/// 55000 where nothing is.
pub fn time_left(patience: &mut Patience) -> Result<Duration, Error> {
    patience.left().ok_or_else(|| Error::MarkNotRenewed { waited_ms: patience.waited_ms() })
}

/// The task of renewing the mark. Given up, and the others woken, however the renewal ends.
struct Claim<'a>(&'a Shared);

impl Claim<'_> {
    /// Takes the task where nobody has it and it is still `needed` at the limit of that moment: those
    /// who queue for the lock while one renews would otherwise renew once more, one after the other.
    fn take(shared: &Shared, needed: impl FnOnce(Tick) -> bool) -> Option<Claim<'_>> {
        let (boot_ms, standbys) = (clock::boot_ms(), pg::standbys_must_acknowledge());
        // A Claim made in vain would give up the claim of another when it is dropped.
        shared.with_reservation(|r| needed(r.limit(standbys)) && r.claim(boot_ms)).then(|| Claim(shared))
    }

    fn keep(&self) {
        let boot_ms = clock::boot_ms();
        self.0.with_reservation(|r| r.keep_claim(boot_ms));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.with_reservation(|r| r.release());
        self.0.wake_waiting();
    }
}
