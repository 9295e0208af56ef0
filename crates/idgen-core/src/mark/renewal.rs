//! Keeps the durable high-water mark ahead of the ids. These are the steps around [`MarkState`], in the order that its
//! guarantee requires.

use std::ops::RangeInclusive;

use idgen_ids::id::MAX_TICK;
use idgen_ids::{Epoch, Tick};

use crate::deadline::Deadline;
use crate::error::Error;
use crate::host::{Host, Point, Wait};
use crate::settings::Settings;
use crate::shared::Guarded;

use super::state::{CLAIM_MS, Clocks, MarkState, Plan, Unplanned, Written, runs_low};
use super::stored::{self, Progress};

/// First interval at which a backend checks whether the standbys have acknowledged, in microseconds.
const POLL_FROM_US: u64 = 500;
/// Longest such interval, in microseconds.
const POLL_TO_US: u64 = 20_000;
/// After a flush that takes this long, in milliseconds, the time until the mark is written again starts anew.
const SLOW_FLUSH_MS: u64 = 1000;

/// The longest time that is recorded for a mark that was found durable, in microseconds. It is half of what the alert
/// on slow marks allows. Where calls are frequent, one of them finds the mark sooner or waits for it.
const MOST_UNSEEN_US: u64 = 250_000;
/// The limit on readings of both clocks, for a machine so slow that two readings are never close.
const READINGS: usize = 10;

/// Reads both clocks for one moment. If the process is suspended between the two readings, they show a step that did
/// not happen; so it reads them again, and in the end uses the two that were closest.
///
/// # Errors
/// That of [`Host::now`].
pub fn clocks<H: Host>(host: &H) -> Result<Clocks, H::Error> {
    let mut closest = (u64::MAX, Clocks::default());
    for _ in 0..READINGS {
        let boot_ms = host.boot_ms();
        let now = host.now()?;
        let apart_ms = host.boot_ms().saturating_sub(boot_ms);
        if apart_ms < closest.0 {
            closest = (apart_ms, Clocks { now, boot_ms });
        }
        if apart_ms <= 1 {
            break;
        }
    }
    Ok(closest.1)
}

/// Loads the stored mark, once per incarnation of the server. Returns whether this call loaded it.
///
/// # Errors
/// [`Error::Recovery`], and [`Error::OtherEpoch`].
pub fn load<H: Host>(host: &H, settings: &Settings) -> Result<bool, H::Error> {
    if host.with_mark(|mark| mark.loaded()) {
        return Ok(false);
    }
    if host.in_recovery() {
        return Err(Error::Recovery.into());
    }
    // Recovery is over, so from here on only this incarnation moves the stored mark.
    let stored = stored::tick_of(host.load_mark(), settings.epoch)?;
    host.with_mark(|mark| mark.load(stored));
    Ok(true)
}

/// Waits until synchronous standbys, if there are any, have the marks on which the horizon rests: what it has reached,
/// and what it may reach before they have acknowledged a limit. When the server has just started, the mark may be only
/// on this server's disk, and so may a mark that was published before the standbys were configured. A promoted standby
/// would then begin below it.
///
/// # Errors
/// [`Error::Recovery`], and [`Error::MarkNotRenewed`] if the standbys do not acknowledge the mark in time.
pub fn share_settled<H: Host>(
    host: &H,
    settings: &Settings,
    deadline: &mut Deadline,
) -> Result<(), H::Error> {
    load(host, settings)?;
    if !host.standbys_must_acknowledge() {
        return Ok(());
    }
    let (settled, acknowledged, mut written) =
        host.with_mark(|mark| (mark.settled().max(mark.recovered()), mark.limit(true), mark.written(true)));
    if settled <= acknowledged {
        return Ok(());
    }
    if written.tick < settled {
        // This is the floor. It is written once more because a standby that already has it reports so only when it
        // receives something new.
        written = write(host, settings, settled, true);
    }
    let late = deadline.except(host, || flush(host, written.lsn));
    until_acknowledged(host, settings, written, late, deadline, |_, _| ())?;
    Ok(())
}

/// Makes `tick`, and the ticks up to `wanted`, issuable, or brings the caller closer to that. Ask the slot again
/// afterwards.
///
/// # Errors
/// [`Error::Recovery`], [`Error::ClockJumped`], [`Error::MarkNotRenewed`], and the host's.
pub fn reserve<H: Host>(
    host: &H,
    settings: &Settings,
    tick: Tick,
    wanted: Tick,
    deadline: &mut Deadline,
) -> Result<(), H::Error> {
    if load(host, settings)? {
        // The slot must see the new floor first: from there, the tick may be too far ahead of the clock.
        return Ok(());
    }
    if deadline.renewal_counts() {
        time_left_us(host, deadline, || host.limit() > tick)?;
    }
    let mut idle_since_us = None;
    while host.limit() <= tick {
        if let Some(claim) = Claim::take(host, |limit| limit <= tick) {
            return renew(&claim, settings, tick..=wanted, true, deadline);
        }
        // A wait of another backend counts as if it were the caller's own: waits for standbys do, but not the flush.
        let awaited = host.awaited();
        let flushing = awaited != 0 && !host.flushed(awaited);
        let for_standbys = awaited != 0 && !flushing && host.standbys_must_acknowledge();
        // The other steps of a renewal are part of any call, as long as they end before its claim has expired twice.
        // Otherwise a claim that is never given up would make the call wait forever.
        let now_us = host.monotonic_us();
        idle_since_us = (!flushing).then(|| idle_since_us.unwrap_or(now_us));
        let idle = idle_since_us.is_some_and(|since| now_us.saturating_sub(since) > 2 * CLAIM_MS * 1000);
        if for_standbys || idle || deadline.counts_flushes() {
            let is_there = || host.limit() > tick;
            let ms = (time_left_us(host, deadline, is_there)? / 1000).clamp(1, CLAIM_MS);
            host.wait_for_mark(ms, is_there);
        } else {
            deadline.except(host, || host.wait_for_mark(POLL_TO_US / 1000, || host.limit() > tick));
        }
    }
    Ok(())
}

/// Renews the mark if the window runs low after `tick` and no other backend is renewing it. The caller already has its
/// ids, so a failure here is left to the call that will need the mark.
///
/// As long as there is time, the caller does not wait for the disk either. At half of the window it writes a mark,
/// which the WAL writer or the next commit of any transaction flushes. The first caller that finds it durable publishes
/// it. A caller flushes it only if it is not durable at a quarter of the window.
pub fn renew_early(host: &impl Host, settings: &Settings, tick: Tick, deadline: &mut Deadline) {
    let awaited = is_awaited(host);
    let margin = margin(settings, awaited);
    if runs_low(tick, host.limit(), margin)
        && let Some(claim) = Claim::take(host, |limit| runs_low(tick, limit, margin))
    {
        let _ = renew(&claim, settings, tick..=tick, awaited, deadline);
    }
}

/// The number of ticks left in the window at which a renewal is due: half of it, or a quarter while a mark is awaited.
#[inline]
pub(crate) fn margin(settings: &Settings, awaited: bool) -> u64 {
    settings.reserve_ahead_ms / if awaited { 4 } else { 2 }
}

/// Whether a mark has been written but is not durable yet.
#[inline]
pub(crate) fn is_awaited(host: &impl Host) -> bool {
    let lsn = host.awaited();
    lsn != 0 && !is_durable(host, lsn)
}

/// Whether the WAL up to `lsn` is on disk here, and on the synchronous standbys if there are any.
fn is_durable(host: &impl Host, lsn: u64) -> bool {
    host.flushed(lsn) && (!host.standbys_must_acknowledge() || host.acknowledged(lsn))
}

/// Writes the mark, flushes it, waits until it is acknowledged, and publishes it. Only this order ensures that a crash
/// between any two steps leaves every issued id below the stored mark. A caller that does not `wait` leaves the flush
/// to others, and the later steps to a caller that finds the mark durable.
fn renew<H: Host>(
    claim: &Claim<H>,
    settings: &Settings,
    ticks: RangeInclusive<Tick>,
    wait: bool,
    deadline: &mut Deadline,
) -> Result<(), H::Error> {
    let host = claim.0;
    let clocks = clocks(host)?;
    let (tick, wanted) = ticks.into_inner();
    let standbys = host.standbys_must_acknowledge();
    let plan = match host.with_mark(|mark| mark.plan(clocks, tick, wanted, standbys, settings)) {
        Ok(plan) => plan,
        Err(Unplanned::Stale) => return Ok(()),
        Err(Unplanned::Jump { by_ms }) => return Err(Error::ClockJumped { by_ms }.into()),
    };

    let written = match plan {
        Plan::Await(written) => written,
        Plan::Write(tick) => {
            host.point(Point::BeforeWal);
            write(host, settings, tick, standbys)
        }
    };
    host.point(Point::AfterInsert);
    // A mark that this call has just written and waits for is not checked here: its whole time is recorded.
    let found_durable = (!wait || matches!(plan, Plan::Await(_))) && is_durable(host, written.lsn);
    if !wait && !found_durable {
        host.flush_soon(written.lsn);
        return Ok(());
    }
    let late = deadline.except(host, || flush(host, written.lsn));
    host.point(Point::AfterFlush);
    let acknowledged = until_acknowledged(host, settings, written, late, deadline, MarkState::keep_claim)?;
    host.point(Point::BeforePublish);
    assert!(host.flushed(written.lsn), "a mark that is not on disk would be published");
    let us = host.monotonic_us().saturating_sub(written.at_us);
    let us = if found_durable { us.min(MOST_UNSEEN_US) } else { us };
    host.with_mark(|mark| mark.publish(written.tick, acknowledged, clocks, us));
    Ok(())
}

/// Writes and records a mark. `standbys` says whether they have to acknowledge it.
fn write(host: &impl Host, settings: &Settings, tick: Tick, standbys: bool) -> Written {
    let awaited = awaits_standbys(host, &host.shared().mark.copy());
    let at_us = host.monotonic_us();
    let written = Written { tick, lsn: host.write_mark(Progress::new(tick, settings.epoch)), at_us };
    let boot_ms = host.boot_ms();
    host.with_mark(|mark| mark.wrote(written, standbys, boot_ms, awaited));
    written
}

/// Whether standbys still have to acknowledge the last mark that was written.
fn awaits_standbys(host: &impl Host, mark: &MarkState) -> bool {
    let standbys = host.standbys_must_acknowledge();
    let written = mark.written(standbys);
    standbys && mark.limit(standbys) < written.tick && !host.acknowledged(written.lsn)
}

/// How long a mark has been waiting for the acknowledgment of standbys, in milliseconds; `None` if none is waiting.
pub fn awaited_ms(host: &impl Host, mark: &MarkState) -> Option<u64> {
    awaits_standbys(host, mark).then(|| host.boot_ms().saturating_sub(mark.awaited_since_ms()))
}

/// Makes the stored mark count from `epoch`, durably. Returns whether it counted from another epoch before. The tick of
/// the mark does not decrease, so no id is repeated, whichever way the epoch has moved.
///
/// # Errors
/// [`Error::Exhausted`] if the clock is past the range of ids, or the mark at its end, and that of [`Host::now`].
pub fn accept_epoch<H: Host>(host: &H, epoch: Epoch) -> Result<bool, H::Error> {
    let Some(progress) = host.load_mark().filter(|progress| !progress.is_of(epoch)) else {
        return Ok(false);
    };
    // The progress moves only forward, and the check of the new epoch may be less than that of the old one.
    let mark = progress.mark() + 1;
    if mark.max(host.now()?) > MAX_TICK {
        return Err(Error::Exhausted.into());
    }
    host.flush(host.write_mark(Progress::new(mark, epoch)));
    Ok(true)
}

/// Accepts the system clock as it is if it has jumped forward. Returns how far, in milliseconds; 0 if it has not
/// jumped.
///
/// # Errors
/// [`Error::Exhausted`] if the clock is past the range of ids, and that of [`Host::now`].
pub fn accept_clock<H: Host>(host: &H) -> Result<u64, H::Error> {
    let clocks = clocks(host)?;
    if clocks.now > MAX_TICK {
        return Err(Error::Exhausted.into());
    }
    Ok(host.with_mark(|mark| mark.accept(clocks)))
}

/// Flushes a mark, and returns whether that took long. Standbys receive the mark only after the flush.
fn flush(host: &impl Host, lsn: u64) -> bool {
    let start = host.boot_ms();
    host.flush(lsn);
    host.boot_ms().saturating_sub(start) >= SLOW_FLUSH_MS
}

/// Waits until synchronous standbys have a mark; returns false if none have to acknowledge it. `flushed_late` says that
/// they could not receive it before now. The configuration is read again each time, because synchronous replication may
/// begin or end during the wait. If it begins after the last check, the limit is published as unacknowledged, and no
/// ids are taken below it.
///
/// `at_work` receives the mark and the time since boot, in milliseconds, each time.
fn until_acknowledged<H: Host>(
    host: &H,
    settings: &Settings,
    written: Written,
    mut flushed_late: bool,
    deadline: &mut Deadline,
    at_work: impl Fn(&mut MarkState, u64),
) -> Result<bool, H::Error> {
    let mut poll_us = POLL_FROM_US;
    while host.standbys_must_acknowledge() {
        if host.acknowledged(written.lsn) {
            return Ok(true);
        }
        host.point(Point::BeforeAcknowledge);
        let boot_ms = host.boot_ms();
        let again = host.with_mark(|mark| {
            at_work(mark, boot_ms);
            if flushed_late {
                // The time of the flush does not count toward writing the mark again.
                mark.sent(boot_ms);
            }
            mark.write_again(boot_ms)
        });
        // This comes before the check of the time, so that a call that may hardly wait does it too. It counts as
        // waiting, and may be what the call first waits for: otherwise the call could go on until the mark is
        // acknowledged.
        deadline.left_us(host);
        flushed_late = again && flush(host, host.write_mark(Progress::new(written.tick, settings.epoch)));
        let left_us = time_left_us(host, deadline, || host.acknowledged(written.lsn))?;
        host.sleep(poll_us.min(left_us), Wait::Standby);
        poll_us = (poll_us * 2).min(POLL_TO_US);
    }
    Ok(false)
}

/// The remaining time that a call may wait for the mark, in microseconds, and at least 1 if the mark `is_there`: time
/// may have passed since the caller looked.
///
/// # Errors
/// [`Error::MarkNotRenewed`] if no time is left.
fn time_left_us<H: Host>(
    host: &H,
    deadline: &mut Deadline,
    is_there: impl FnOnce() -> bool,
) -> Result<u64, H::Error> {
    match deadline.left_us(host) {
        Some(left_us) => Ok(left_us),
        None if is_there() => Ok(1),
        None => Err(Error::MarkNotRenewed { waited_ms: deadline.waited_ms(host) }.into()),
    }
}

/// The claim to renew the mark. However the renewal ends, the claim is given up and the waiting backends are woken.
struct Claim<'a, H: Host>(&'a H);

impl<H: Host> Claim<'_, H> {
    /// Claims the renewal if no backend holds it and it is still `needed` at the current limit. Otherwise backends that
    /// queue for the lock during a renewal would each renew once more, one after the other.
    fn take(host: &H, needed: impl Fn(Tick) -> bool) -> Option<Claim<'_, H>> {
        let (boot_ms, standbys) = (host.boot_ms(), host.standbys_must_acknowledge());
        // Construct a `Claim` only on success: dropping it would give up the claim of another backend.
        host.with_mark(|mark| needed(mark.limit(standbys)) && mark.claim(boot_ms)).then(|| Claim(host))
    }
}

impl<H: Host> Drop for Claim<'_, H> {
    fn drop(&mut self) {
        self.0.with_mark(|mark| mark.release());
        self.0.wake_waiting();
    }
}
