//! Standbys that take over, and old primaries that return.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{CUT, Fault, NOT_DURABLE, Struck, always, has_standby, is_synchronous, names};
use crate::campaign::world::{Standby, World};
use crate::server::Server;

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "failover after synchronous names are set",
        weight: 3,
        can: has_standby,
        strike: change_and_fail_over,
        allows: &[CUT, NOT_DURABLE],
    },
    Fault {
        name: "failover",
        weight: 4,
        can: is_synchronous,
        strike: fail_over,
        allows: &[CUT, NOT_DURABLE],
    },
    Fault {
        name: "asynchronous failover",
        weight: 1,
        can: is_asynchronous,
        strike: fail_over_asynchronously,
        allows: &[CUT, NOT_DURABLE],
    },
    Fault {
        name: "base backup restored",
        weight: 1,
        can: always,
        strike: restore,
        allows: &[CUT, NOT_DURABLE],
    },
];

const MINTS: &str = "a session from before the promotion mints after it";

fn is_asynchronous(world: &World) -> bool {
    has_standby(world) && !is_synchronous(world)
}

fn change_and_fail_over(world: &mut World) -> Struck {
    let changed = names::change(world);
    match fail_over(world) {
        Struck::Done(how) => Struck::Done(format!("{changed}, {how}")),
        other => other,
    }
}

/// Promotes the most advanced standby, whatever the clocks show, and lets the old primary return.
fn fail_over(world: &mut World) -> Struck {
    let step = [0.0, -0.3, -1.0, 0.5][world.rng.usize(0..4)];
    let old = ["alive", "dead", "stopped in order"][world.rng.usize(0..3)];
    let killed_after = draw_killed_after(world);
    // Killed at the wrong moment, it starts as a primary on the old timeline, on which pg_rewind finds nothing to do.
    let returns = if killed_after.is_some() { Return::Copied } else { Return::draw(world) };
    match old {
        "dead" => world.primary.kill(),
        "stopped in order" => stop_in_order(&world.primary),
        _ => {}
    }
    let place = cut_off_all(world);
    let standby = promote(world, place, step, killed_after);
    // If alive, the old primary continues within its window until it is shut off.
    if old == "alive" {
        world.start_beside(2, &standby.server);
    }
    // Now and then for longer than a call waits: a client that waits for the standby keeps the others from renewing.
    let ms = if world.rng.u8(0..4) == 0 { 6500..7500 } else { 0..1500 };
    world.pause(ms);
    if old == "alive" {
        world.primary.stop("immediate");
    }
    let names = world.names.take();
    succeed(world, place, standby, true, returns);
    world.primary.set_clock(0.0);
    if let Some(names) = names {
        world.make_synchronous(names);
    }
    let killed = killed_after.map_or(String::new(), |time| format!(", killed after {} ms", time.as_millis()));
    Struck::Done(format!("old primary {old}, clock {step:+} s, {returns:?}{killed}"))
}

/// Promotes a standby for which no commit has waited, once the clock has passed the ids that it may lack.
fn fail_over_asynchronously(world: &mut World) -> Struck {
    let returns = Return::draw(world);
    let passed = Passed::by(&world.primary);
    world.primary.kill();
    let place = cut_off_all(world);
    passed.wait();
    let standby = promote(world, place, 0.0, None);
    begin_anew(&standby.server);
    succeed(world, place, standby, false, returns);
    Struck::Done(format!("{returns:?}"))
}

/// Replaces the primary with a backup: once the clock has passed the ids minted after the backup began, or with the
/// clock set back to before that if nothing has been minted since.
fn restore(world: &mut World) -> Struck {
    world.primary.reconnect();
    let earlier = [0.1, 0.5][world.rng.usize(0..2)];
    let quiet = world.rng.bool() && world.hold_clients();
    let start = Instant::now();
    let backup = world.primary.base_backup();
    world.pause(0..800);
    let passed = Passed::by(&world.primary);
    world.primary.stop("immediate");
    backup.configure(&["synchronous_standby_names = ''"]);
    if quiet {
        backup.set_clock(-start.elapsed().as_secs_f64() - earlier);
        backup.up();
    } else {
        passed.wait();
        backup.up();
        begin_anew(&backup);
    }
    world.move_clients(&backup);
    drop(world.hand_over(backup, quiet));
    if quiet {
        world.release_clients();
        world.pause(50..600);
        world.primary.set_clock(0.0);
    }
    world.copy_anew();
    if let Some(names) = world.names.take() {
        world.make_synchronous(names);
    }
    let how = if quiet { format!("{earlier} s before its beginning") } else { "as time goes on".into() };
    Struck::Done(format!("{how}, standbys {}", world.standbys.len()))
}

/// How an old primary becomes a standby.
#[derive(Clone, Copy, Debug)]
enum Return {
    /// As a copy of the new one.
    Copied,
    /// With its own data, by pg_rewind, which changes nothing if the server was shut down cleanly.
    Rewound,
}

impl Return {
    fn draw(world: &mut World) -> Return {
        // A copy costs more.
        if world.rng.u8(0..4) == 0 { Return::Copied } else { Return::Rewound }
    }
}

/// A time that the clock must pass.
struct Passed(f64);

impl Passed {
    /// All that a server, which is shut off right after this, may have minted. For whole seconds: ids for JavaScript
    /// have no smaller part.
    fn by(server: &Server) -> Passed {
        let asked = SystemTime::now();
        let bound: f64 = server.answer(
            "SELECT extract(epoch FROM greatest(mark_at, clock_timestamp())
                    + current_setting('idgen.max_ahead')::interval
                    + current_setting('idgen.reserve_ahead')::interval)::double precision FROM idgen_status",
        );
        // For queued calls, and until it is shut off.
        let late = asked.elapsed().unwrap_or_default().as_secs_f64() + 0.5;
        Passed((bound + late).floor() + 1.0)
    }

    fn wait(self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64();
        thread::sleep(Duration::from_secs_f64((self.0 - now).max(0.0)));
    }
}

/// Has a server's mark, and the beginning of its ids, be after the clock: it may be set back again.
fn begin_anew(server: &Server) {
    // Its clock may be behind the mark for a while.
    while server.reconnect().batch_execute("SELECT snowflake_next_id(901)").is_err() {
        thread::sleep(Duration::from_millis(50));
    }
    stop_in_order(server);
    server.up();
}

fn stop_in_order(server: &Server) {
    // A fast shutdown that comes while PostgreSQL restarts after the death of a backend never ends: it waits for the
    // checkpointer of the recovery, and does not tell it.
    thread::sleep(Duration::from_millis(100));
    server.reconnect();
    server.stop("fast");
}

/// Cuts all standbys off from the primary, and finds the most advanced one, which has everything that any of them
/// has acknowledged.
fn cut_off_all(world: &World) -> usize {
    world.standbys.iter().for_each(|standby| standby.link.cut_off());
    let got = |standby: &Standby| -> i64 {
        // It has replayed its local WAL when it requests more, and then the position is known.
        standby.server.wait_until(
            "SELECT pg_last_wal_receive_lsn() IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_wal_receiver)",
        );
        standby
            .server
            .answer("SELECT (greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0')::bigint")
    };
    let got: Vec<_> = world.standbys.iter().map(got).collect();
    (0..got.len()).max_by_key(|place| got[*place]).expect("a standby")
}

/// After how long a promotion is killed; none where it is not.
fn draw_killed_after(world: &mut World) -> Option<Duration> {
    (world.rng.u8(0..4) == 0).then(|| Duration::from_millis(world.rng.u64(0..40)))
}

/// Promotes a standby with its clock set, and lets the clients find it when the old primary is gone. The promotion
/// may be killed before it completes.
fn promote(world: &mut World, place: usize, step: f64, killed_after: Option<Duration>) -> Standby {
    let standby = world.standbys.remove(place);
    // A session that continues through it.
    let session = killed_after.is_none().then(|| standby.server.refuses());
    standby.server.set_clock(step);
    if let Some(time) = killed_after {
        standby.server.begin_promotion();
        thread::sleep(time);
        standby.server.kill_all();
        standby.server.up();
    }
    // One that was killed late enough starts as a primary.
    if standby.server.follows() {
        standby.server.promote();
    }
    standby.server.make_asynchronous();
    let mint = "SET idgen.max_wait = '1min'; SELECT snowflake_next_id(900)";
    session.unwrap_or_else(|| standby.server.connect()).batch_execute(mint).expect(MINTS);
    world.move_clients(&standby.server);
    standby
}

/// Makes the old primary, which is down, take the place of the promoted standby. The other standbys follow.
fn succeed(world: &mut World, place: usize, standby: Standby, keeps_all: bool, returns: Return) {
    let Standby { server, name, link } = standby;
    let old = world.hand_over(server, keeps_all);
    world.standbys.iter().for_each(|standby| standby.link.lead_to(&world.primary));
    link.lead_to(&world.primary);
    let server = match returns {
        Return::Copied => {
            drop(old);
            world.primary.standby_by(&link.host(), &name)
        }
        Return::Rewound => {
            old.set_clock(0.0);
            old.rewind_to(&world.primary);
            old.follow_by(&link.host(), &name);
            old.up();
            old
        }
    };
    world.standbys.insert(place, Standby { server, name, link });
}
