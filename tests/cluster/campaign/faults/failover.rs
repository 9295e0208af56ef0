//! Standbys that take over, and old primaries that return.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{CUT, Fault, NOT_DURABLE, Struck, always, fault, has_standby, is_synchronous, standbys, stop};
use crate::campaign::fleet::{Fleet, Standby};
use crate::server::Server;

pub const FAULTS: &[Fault] = &[
    fault(
        "failover after synchronous names are set",
        3,
        has_standby,
        change_and_fail_over,
        &[CUT, NOT_DURABLE],
    ),
    fault("failover", 4, is_synchronous, fail_over, &[CUT, NOT_DURABLE]),
    fault("asynchronous failover", 1, is_asynchronous, fail_over_asynchronously, &[CUT, NOT_DURABLE]),
    fault("base backup restored", 1, always, restore, &[CUT, NOT_DURABLE]),
];

const MINTS: &str = "a session from before the promotion mints after it";

fn is_asynchronous(fleet: &Fleet) -> bool {
    has_standby(fleet) && !is_synchronous(fleet)
}

fn change_and_fail_over(fleet: &mut Fleet) -> Struck {
    let changed = standbys::change(fleet);
    match fail_over(fleet) {
        Struck::Done(how) => Struck::Done(format!("{changed}, {how}")),
        other => other,
    }
}

/// Promotes the most advanced standby, whatever the clocks show. The old primary then returns as a standby.
fn fail_over(fleet: &mut Fleet) -> Struck {
    let step = [0.0, -0.3, -1.0, 0.5][fleet.rng.usize(0..4)];
    let old = ["alive", "dead", "stopped in order"][fleet.rng.usize(0..3)];
    let killed_after = draw_killed_after(fleet);
    // A standby that is killed at the wrong moment starts as a primary on the old timeline, where pg_rewind does
    // nothing.
    let returns = if killed_after.is_some() { Return::Copied } else { Return::draw(fleet) };
    match old {
        "dead" => fleet.primary.kill(),
        "stopped in order" => stop(&fleet.primary, "fast"),
        _ => {}
    }
    let place = cut_off_all(fleet);
    let standby = promote(fleet, place, step, killed_after);
    // If it is alive, the old primary mints within its window until it is shut down.
    if old == "alive" {
        fleet.start_beside(2, &standby.server);
    }
    // Sometimes the pause exceeds the longest wait, because a client that waits for the standby keeps others from
    // renewing.
    let ms = if fleet.rng.u8(0..4) == 0 { 6500..7500 } else { 0..1500 };
    fleet.pause(ms);
    if old == "alive" {
        fleet.primary.stop("immediate");
    }
    let names = fleet.names.take();
    succeed(fleet, place, standby, true, returns);
    fleet.primary.set_clock(0.0);
    if let Some(names) = names {
        fleet.make_synchronous(names);
    }
    let killed = killed_after.map_or(String::new(), |time| format!(", killed after {} ms", time.as_millis()));
    Struck::Done(format!("old primary {old}, clock {step:+} s, {returns:?}{killed}"))
}

/// Promotes an asynchronous standby, once the clock has passed the ids that the standby may lack.
fn fail_over_asynchronously(fleet: &mut Fleet) -> Struck {
    let returns = Return::draw(fleet);
    let passed = Passed::by(&fleet.primary);
    fleet.primary.kill();
    let place = cut_off_all(fleet);
    passed.wait();
    let standby = promote(fleet, place, 0.0, None);
    begin_anew(&standby.server);
    succeed(fleet, place, standby, false, returns);
    Struck::Done(format!("{returns:?}"))
}

/// Replaces the primary with a backup: once the clock has passed the ids minted after the backup began, or with the
/// clock set back to before that if nothing has been minted since.
fn restore(fleet: &mut Fleet) -> Struck {
    fleet.primary.reconnect();
    let earlier = [0.1, 0.5][fleet.rng.usize(0..2)];
    let quiet = fleet.rng.bool() && fleet.hold_clients();
    let start = Instant::now();
    let backup = fleet.primary.base_backup();
    fleet.pause(0..800);
    let passed = Passed::by(&fleet.primary);
    fleet.primary.stop("immediate");
    backup.configure(&["synchronous_standby_names = ''"]);
    if quiet {
        backup.set_clock(-start.elapsed().as_secs_f64() - earlier);
        backup.up();
    } else {
        passed.wait();
        backup.up();
        begin_anew(&backup);
    }
    fleet.move_clients(&backup);
    drop(fleet.hand_over(backup, quiet));
    if quiet {
        fleet.clients.release();
        fleet.pause(50..600);
        fleet.primary.set_clock(0.0);
    }
    fleet.copy_anew();
    if let Some(names) = fleet.names.take() {
        fleet.make_synchronous(names);
    }
    let how = if quiet { format!("{earlier} s before its beginning") } else { "as time goes on".into() };
    Struck::Done(format!("{how}, standbys {}", fleet.standbys.len()))
}

#[derive(Clone, Copy, Debug)]
enum Return {
    Copied,
    /// The server keeps its data. pg_rewind changes nothing if the server was shut down cleanly.
    Rewound,
}

impl Return {
    fn draw(fleet: &mut Fleet) -> Return {
        // A copy takes longer.
        if fleet.rng.u8(0..4) == 0 { Return::Copied } else { Return::Rewound }
    }
}

struct Passed(f64);

impl Passed {
    /// The time of the last id of a server that is shut down right after this call, in whole seconds, the unit of ids
    /// for JavaScript.
    fn by(server: &Server) -> Passed {
        let asked = SystemTime::now();
        let bound: f64 = server.answer(
            "SELECT extract(epoch FROM greatest(mark_at, clock_timestamp())
                    + current_setting('idgen.max_ahead')::interval
                    + current_setting('idgen.reserve_ahead')::interval)::double precision FROM idgen_status",
        );
        // This covers queued calls, and the time until the shutdown.
        let late = asked.elapsed().unwrap_or_default().as_secs_f64() + 0.5;
        Passed((bound + late).floor() + 1.0)
    }

    fn wait(self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
        thread::sleep(Duration::from_secs_f64((self.0 - now).max(0.0)));
    }
}

/// Waits until a server's mark, and so its first id, is later than its clock, so that the clock may be set back again.
fn begin_anew(server: &Server) {
    // Its clock may be behind the mark for a while.
    while server.reconnect().batch_execute("SELECT snowflake_next_id(901)").is_err() {
        thread::sleep(Duration::from_millis(50));
    }
    stop(server, "fast");
    server.up();
}

/// Cuts all standbys off from the primary, and finds the most advanced one, which has everything that any standby has
/// acknowledged.
fn cut_off_all(fleet: &Fleet) -> usize {
    fleet.standbys.iter().for_each(|standby| standby.link.cut_off());
    let got = |standby: &Standby| -> i64 {
        // A standby that requests more WAL has replayed its own, so that its position is known.
        standby.server.wait_until(
            "SELECT pg_last_wal_receive_lsn() IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_wal_receiver)",
        );
        standby
            .server
            .answer("SELECT (greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0')::bigint")
    };
    let got: Vec<_> = fleet.standbys.iter().map(got).collect();
    (0..got.len()).max_by_key(|place| got[*place]).expect("a standby")
}

/// Draws the time after which a promotion is killed, if it is.
fn draw_killed_after(fleet: &mut Fleet) -> Option<Duration> {
    (fleet.rng.u8(0..4) == 0).then(|| Duration::from_millis(fleet.rng.u64(0..40)))
}

/// Promotes a standby with its clock set, and leads the clients there once the old primary is gone. The promotion may
/// be killed before it completes.
fn promote(fleet: &mut Fleet, place: usize, step: f64, killed_after: Option<Duration>) -> Standby {
    let standby = fleet.standbys.remove(place);
    // This session survives the promotion.
    let session = killed_after.is_none().then(|| standby.server.refuses());
    standby.server.set_clock(step);
    if let Some(time) = killed_after {
        standby.server.begin_promotion();
        thread::sleep(time);
        standby.server.kill_all();
        standby.server.up();
    }
    // A standby that was killed late enough starts as a primary.
    if standby.server.follows() {
        standby.server.promote();
    }
    standby.server.make_asynchronous();
    let mint = "SET idgen.max_wait = '1min'; SELECT snowflake_next_id(900)";
    session.unwrap_or_else(|| standby.server.connect()).batch_execute(mint).expect(MINTS);
    fleet.move_clients(&standby.server);
    standby
}

/// Lets the old primary, which is down, take the place of the promoted standby, which the other standbys then follow.
fn succeed(fleet: &mut Fleet, place: usize, standby: Standby, keeps_all: bool, returns: Return) {
    let Standby { server, name, link } = standby;
    let old = fleet.hand_over(server, keeps_all);
    fleet.standbys.iter().for_each(|standby| standby.link.lead_to(&fleet.primary));
    link.lead_to(&fleet.primary);
    let server = match returns {
        Return::Copied => {
            drop(old);
            fleet.primary.standby_by(&link.host(), &name)
        }
        Return::Rewound => {
            old.set_clock(0.0);
            old.rewind_to(&fleet.primary);
            old.follow_by(&link.host(), &name);
            old.up();
            old
        }
    };
    fleet.standbys.insert(place, Standby { server, name, link });
}
