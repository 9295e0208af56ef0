//! Keeps the durable high-water mark ahead of the ids: the steps around [`Mark`], in the order that its guarantee
//! requires.

use idgen_ids::id::Tick;

use crate::mark::{CLAIM_MS, Clocks, Mark, Plan, Rules, Unplanned, Written, runs_low};
use crate::mint::{Error, Patience, QUEUE_MS};
use crate::server::{Point, Server, Wait};

/// First interval at which a backend checks whether the standbys have acknowledged, in microseconds.
const POLL_FROM_US: u64 = 500;
/// Longest such interval, in microseconds.
const POLL_TO_US: u64 = 20_000;
/// A flush that takes this long, in milliseconds, counts when the time comes to write the mark again.
const SLOW_FLUSH_MS: u64 = 1000;

/// A mark that was durable before anybody looked counts as having taken no longer than this, in microseconds: half of
/// what the alert on slow marks allows. Where calls are frequent, one of them looks sooner or waits for it.
const MOST_UNSEEN_US: u64 = 250_000;
/// How often both clocks are read at most, for a machine so slow that no two readings are ever close.
const READINGS: usize = 10;

/// Reads both clocks for one moment. A process that is suspended between two readings would see a step that there was
/// not, so it reads them again, and in the end goes by those that were closest.
///
/// # Errors
/// That of [`Server::now`].
pub fn clocks<V: Server>(server: &V) -> Result<Clocks, V::Error> {
    let mut closest = (u64::MAX, Clocks::default());
    for _ in 0..READINGS {
        let boot_ms = server.boot_ms();
        let now = server.now()?;
        let apart_ms = server.boot_ms().saturating_sub(boot_ms);
        if apart_ms < closest.0 {
            closest = (apart_ms, Clocks { now, boot_ms });
        }
        if apart_ms <= 1 {
            break;
        }
    }
    Ok(closest.1)
}

/// Loads the stored mark, once in a run of the server. Returns whether this call loaded it.
///
/// # Errors
/// [`Error::Recovery`], and that of [`Server::load_mark`].
pub fn load<V: Server>(server: &V) -> Result<bool, V::Error> {
    if server.with_mark(|mark| mark.loaded()) {
        return Ok(false);
    }
    if server.in_recovery() {
        return Err(Error::Recovery.into());
    }
    // Recovery is over, so from here on only this run moves the stored mark.
    let stored = server.load_mark()?;
    server.with_mark(|mark| mark.load(stored));
    Ok(true)
}

/// Waits until synchronous standbys, if there are any, have the mark on which the horizon rests. At the beginning
/// of a run the mark may be on this server's disk only, and so may a mark that was published before the standbys
/// were configured. A standby that is promoted would then begin below it.
///
/// # Errors
/// [`Error::Recovery`], and [`Error::MarkNotRenewed`] if the standbys do not acknowledge it in time.
pub fn share_settled<V: Server>(server: &V, patience: &mut Patience) -> Result<(), V::Error> {
    load(server)?;
    if !server.standbys_must_acknowledge() {
        return Ok(());
    }
    let (settled, acknowledged, mut written) =
        server.with_mark(|mark| (mark.settled(), mark.limit(true), mark.written(true)));
    if settled <= acknowledged {
        return Ok(());
    }
    if written.tick < settled {
        // This is the floor. Write it once more, because a standby that has it reports so only when it receives
        // something new.
        written = write(server, settled);
        let boot_ms = server.boot_ms();
        server.with_mark(|mark| mark.wrote(written, true, boot_ms));
    }
    let late = patience.except(server, || flush(server, written.lsn));
    until_acknowledged(server, written, late, patience, |_, _| ())?;
    Ok(())
}

/// Makes `tick` issuable, and the ticks up to `wanted`, or brings the caller closer to that. Ask the slot again
/// afterwards.
///
/// # Errors
/// [`Error::Recovery`], [`Error::ClockLeapt`], [`Error::MarkNotRenewed`], and the server's.
pub fn reserve<V: Server>(
    server: &V,
    tick: Tick,
    wanted: Tick,
    patience: &mut Patience,
) -> Result<(), V::Error> {
    if load(server)? {
        // The slot must see the new floor, with which the tick may be too far ahead of the clock.
        return Ok(());
    }
    if patience.renewal_counts() {
        time_left_us(server, patience, || server.limit() > tick)?;
    }
    while server.limit() <= tick {
        if let Some(claim) = Claim::take(server, |limit| limit <= tick) {
            return renew(&claim, tick, wanted, true, patience);
        }
        // What another backend waits for counts as if it were the caller itself: standbys, but not the flush.
        let awaited = server.awaited();
        if awaited != 0 && server.flushed(awaited) && server.standbys_must_acknowledge()
            || patience.counts_flushes()
        {
            let is_there = || server.limit() > tick;
            let ms = (time_left_us(server, patience, is_there)? / 1000).clamp(1, CLAIM_MS);
            server.wait_for_mark(ms, is_there);
        } else {
            patience.except(server, || server.wait_for_mark(POLL_TO_US / 1000, || server.limit() > tick));
        }
    }
    Ok(())
}

/// Renews the mark if the window runs low after `tick` and no other backend is renewing it. The caller already has
/// its ids, so a failure here is left to the call that will need the mark.
///
/// As long as there is time, the caller does not wait for the disk either. At half of the window it writes a mark,
/// which the WAL writer or the next commit of any transaction flushes. The first caller that finds it durable
/// publishes it. Only if it is not durable at a quarter of the window does a caller flush it.
pub fn renew_early(server: &impl Server, tick: Tick, patience: &mut Patience) {
    let awaited = is_awaited(server);
    let margin = margin(server, awaited);
    if runs_low(tick, server.limit(), margin)
        && let Some(claim) = Claim::take(server, |limit| runs_low(tick, limit, margin))
    {
        let _ = renew(&claim, tick, tick, awaited, patience);
    }
}

/// The number of ticks left of the window at which a renewal has something to do: half of it, or a quarter while a
/// mark is awaited.
#[inline]
pub(crate) fn margin(server: &impl Server, awaited: bool) -> u64 {
    server.reserve_ahead_ms() / if awaited { 4 } else { 2 }
}

/// Whether a mark has been written but is not durable yet.
#[inline]
pub(crate) fn is_awaited(server: &impl Server) -> bool {
    let lsn = server.awaited();
    lsn != 0 && !is_durable(server, lsn)
}

/// Whether the WAL up to `lsn` is on disk here, and on the synchronous standbys if there are any.
fn is_durable(server: &impl Server, lsn: u64) -> bool {
    server.flushed(lsn) && (!server.standbys_must_acknowledge() || server.acknowledged(lsn))
}

/// Writes the mark, flushes it, waits until it is acknowledged, and publishes it. Only in this order does a crash
/// between any two steps leave every issued id below the stored mark. A caller that does not `wait` leaves the
/// flush to others, and the steps after it to a caller that finds the mark durable.
fn renew<V: Server>(
    claim: &Claim<V>,
    tick: Tick,
    wanted: Tick,
    wait: bool,
    patience: &mut Patience,
) -> Result<(), V::Error> {
    let server = claim.0;
    let clocks = clocks(server)?;
    let rules = Rules {
        // Calls that queue for a full shard may be that much further ahead.
        max_ahead: server.max_ahead_ms() + QUEUE_MS,
        // `wanted` makes a mark reach further, but is no reason to write one while another is awaited.
        reserve_ahead: server.reserve_ahead_ms() + (wanted - tick),
        max_jump: server.max_clock_jump_ms(),
        standbys: server.standbys_must_acknowledge(),
    };
    let plan = match server.with_mark(|mark| mark.plan(clocks, tick, rules)) {
        Ok(plan) => plan,
        Err(Unplanned::Stale) => return Ok(()),
        Err(Unplanned::Leap { by_ms }) => return Err(Error::ClockLeapt { by_ms }.into()),
    };

    let written = match plan {
        Plan::Await(written) => written,
        Plan::Write(tick) => {
            server.point(Point::BeforeWal);
            let written = write(server, tick);
            let boot_ms = server.boot_ms();
            server.with_mark(|mark| mark.wrote(written, rules.standbys, boot_ms));
            written
        }
    };
    server.point(Point::AfterInsert);
    // A mark that this call has just written and waits for is not looked at: it takes the whole time.
    let found_durable = (!wait || matches!(plan, Plan::Await(_))) && is_durable(server, written.lsn);
    if !wait && !found_durable {
        server.flush_soon(written.lsn);
        return Ok(());
    }
    let late = patience.except(server, || flush(server, written.lsn));
    server.point(Point::AfterFlush);
    let acknowledged = until_acknowledged(server, written, late, patience, Mark::keep_claim)?;
    server.point(Point::BeforePublish);
    assert!(server.flushed(written.lsn), "a mark is to be published that is not on disk");
    let us = server.monotonic_us().saturating_sub(written.at_us);
    let us = if found_durable { us.min(MOST_UNSEEN_US) } else { us };
    server.with_mark(|mark| mark.publish(written.tick, acknowledged, clocks, us));
    Ok(())
}

fn write(server: &impl Server, tick: Tick) -> Written {
    let at_us = server.monotonic_us();
    Written { tick, lsn: server.write_mark(tick), at_us }
}

/// Flushes a mark, and returns whether that took long. Standbys receive the mark only then.
fn flush(server: &impl Server, lsn: u64) -> bool {
    let start = server.boot_ms();
    server.flush(lsn);
    server.boot_ms().saturating_sub(start) >= SLOW_FLUSH_MS
}

/// Waits until synchronous standbys have a mark; returns false if none have to. `flushed_late` says that they could not
/// receive it before now. The configuration is read again each time, because synchronous replication may begin or end
/// during the wait. If it begins after the last check, nobody takes ids below a limit that was published
/// unacknowledged.
///
/// `at_work` is told the mark and the time since boot, in milliseconds, at each look.
fn until_acknowledged<V: Server>(
    server: &V,
    written: Written,
    mut flushed_late: bool,
    patience: &mut Patience,
    at_work: impl Fn(&mut Mark, u64),
) -> Result<bool, V::Error> {
    let mut poll_us = POLL_FROM_US;
    while server.standbys_must_acknowledge() {
        if server.acknowledged(written.lsn) {
            return Ok(true);
        }
        server.point(Point::BeforeAcknowledge);
        let boot_ms = server.boot_ms();
        let again = server.with_mark(|mark| {
            at_work(mark, boot_ms);
            if flushed_late {
                // The flush is no reason to write the mark again.
                mark.sent(boot_ms);
            }
            mark.write_again(boot_ms)
        });
        // This comes before the check of the time, so that a call that may hardly wait does it, too. It is part of the
        // wait, which may thus begin here: otherwise the call could go on as long as nobody acknowledges the mark.
        patience.left_us(server);
        flushed_late = again && flush(server, server.write_mark(written.tick));
        let left_us = time_left_us(server, patience, || server.acknowledged(written.lsn))?;
        server.sleep(poll_us.min(left_us), Wait::Standby);
        poll_us = (poll_us * 2).min(POLL_TO_US);
    }
    Ok(false)
}

/// The remaining time that a call may wait for the mark, in microseconds, and at least 1 if the mark `is_there`: time
/// may have passed since the caller looked.
///
/// # Errors
/// [`Error::MarkNotRenewed`] if no time is left.
fn time_left_us<V: Server>(
    server: &V,
    patience: &mut Patience,
    is_there: impl FnOnce() -> bool,
) -> Result<u64, V::Error> {
    match patience.left_us(server) {
        Some(left_us) => Ok(left_us),
        None if is_there() => Ok(1),
        None => Err(Error::MarkNotRenewed { waited_ms: patience.waited_ms(server) }.into()),
    }
}

/// The claim to renew the mark. However the renewal ends, the claim is given up and the waiting backends are woken.
struct Claim<'a, V: Server>(&'a V);

impl<V: Server> Claim<'_, V> {
    /// Claims the task if nobody holds it and it is still `needed` at the current limit. Otherwise backends that
    /// queue for the lock during a renewal would each renew once more, one after the other.
    fn take(server: &V, needed: impl Fn(Tick) -> bool) -> Option<Claim<'_, V>> {
        let (boot_ms, standbys) = (server.boot_ms(), server.standbys_must_acknowledge());
        // Construct a `Claim` only on success: dropping it would give up the claim of another backend.
        server.with_mark(|mark| needed(mark.limit(standbys)) && mark.claim(boot_ms)).then(|| Claim(server))
    }
}

impl<V: Server> Drop for Claim<'_, V> {
    fn drop(&mut self) {
        self.0.with_mark(|mark| mark.release());
        self.0.wake_waiting();
    }
}
