//! Processes that are stopped for a while, and whole machines.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Fault, NOT_DURABLE, Struck, always, has_fault_points, is_synchronous};
use crate::campaign::sessions::Work;
use crate::campaign::world::World;
use crate::moment::within_seconds;
use crate::server::processes::Process;

const PROCESS: &str = "process stopped";
const MINTING: &str = "minting backend stopped";
const RENEWING: &str = "renewing backend stopped";

pub const FAULTS: &[Fault] = &[
    Fault { name: PROCESS, weight: 2, can: always, strike: stop_process, allows: &[NOT_DURABLE] },
    Fault { name: MINTING, weight: 2, can: always, strike: stop_minting, allows: &[NOT_DURABLE] },
    Fault {
        name: RENEWING,
        weight: 2,
        can: |world| has_fault_points(world) && !world.lasts(RENEWING),
        strike: stop_renewing,
        // Nobody else waits for it.
        allows: &[],
    },
    Fault {
        name: "machine paused",
        weight: 2,
        // Otherwise another process of the machine would continue in the meantime.
        can: |world| [PROCESS, MINTING, RENEWING].iter().all(|name| !world.lasts(name)),
        strike: pause_machine,
        allows: &[NOT_DURABLE],
    },
];

/// Stops one of PostgreSQL's own processes.
fn stop_process(world: &mut World) -> Struck {
    const OF_PRIMARY: &[&str] = &["checkpointer", "walwriter", "background writer"];
    const OF_STANDBY: &[&str] = &["walsender", "walreceiver", "startup", "checkpointer"];
    let standby = world.rng.usize(0..world.standbys.len() + 1);
    let place = world.rng.usize(0..12);
    let ms = draw_ms(world);
    let (server, kind) = match standby.checked_sub(1).map(|one| &world.standbys[one].server) {
        None => (&world.primary, OF_PRIMARY[place % OF_PRIMARY.len()]),
        Some(server) => match OF_STANDBY[place % OF_STANDBY.len()] {
            "walsender" => (&world.primary, "walsender"),
            kind => (server, kind),
        },
    };
    let of_kind = format!("SELECT min(pid) FROM pg_stat_activity WHERE backend_type = '{kind}'");
    let stopped = within_seconds(20, || {
        let process = Process::find(server.answer::<Option<i32>>(&of_kind)?)?;
        // Another fault may have stopped it, for a while.
        (!process.is_stopped() && process.stop()).then_some(process)
    });
    match stopped {
        Some(process) => lasting(format!("{kind}, {ms} ms"), go_on_after(ms, process)),
        None => Struck::Skipped("there was no such process"),
    }
}

/// Stops a session in the midst of a statement that mints from its lease.
fn stop_minting(world: &mut World) -> Struck {
    let ms = draw_ms(world);
    world.start_busy();
    let busy = "SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity
                WHERE state = 'active' AND query LIKE '%busily%' AND pid <> pg_backend_pid()";
    let primary = &world.primary;
    let stopped = within_seconds(20, || {
        let busy = primary.answer::<Vec<i32>>(busy).into_iter().filter_map(Process::find);
        // Another fault may have stopped one, for a while.
        let process = busy.into_iter().find(|process| !process.is_stopped())?;
        let pid = process.pid();
        if !process.stop() {
            return None;
        }
        // From here on it continues by itself, because it may hold what the next session needs.
        let going_on = go_on_after(ms, process);
        // It may have ended its statement before it was stopped, and cannot now.
        let active =
            format!("SELECT count(*) = 1 FROM pg_stat_activity WHERE state = 'active' AND pid = {pid}");
        if primary.answer(&active) {
            return Some(lasting(format!("{ms} ms"), going_on));
        }
        going_on.join().expect("a process that goes on");
        None
    });
    stopped.unwrap_or(Struck::Skipped("no statement lasted long enough"))
}

/// Stops a backend on its way through a renewal of the mark.
fn stop_renewing(world: &mut World) -> Struck {
    let points = ["before-wal", "after-insert", "after-flush", "before-publish", "before-acknowledge"];
    let points = &points[..if is_synchronous(world) { 5 } else { 4 }];
    let point = points[world.rng.usize(0..points.len())];
    // Now and then for longer than any call waits.
    let ms = if world.rng.u8(0..4) == 0 { 7000 } else { draw_ms(world) };
    let minting = world.start_apart(Work::StopAt(point));
    let own = "SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'stops'";
    let primary = &world.primary;
    let find = || Process::find(primary.answer::<Option<i32>>(own)?);
    let stopped = within_seconds(20, || find().filter(Process::is_stopped));
    // It ends with this call, wherever that is cut off.
    minting.stop();
    let Some(process) = stopped else {
        while !minting.have_ended() {
            find().iter().for_each(Process::go_on);
        }
        minting.finish();
        return Struck::Skipped("it renewed nothing");
    };
    let going_on = thread::spawn(move || {
        thread::sleep(Duration::from_millis(ms));
        // It stops each time that it comes by.
        while !minting.have_ended() {
            process.go_on();
            thread::sleep(Duration::from_millis(5));
        }
        minting.finish();
    });
    lasting(format!("{point}, {ms} ms"), going_on)
}

/// Pauses a whole server. When it continues, its clock has either stood still and is corrected a moment later, or
/// has advanced.
fn pause_machine(world: &mut World) -> Struck {
    let which = world.rng.usize(0..world.standbys.len() + 1);
    let (stands_still, both) = (world.rng.bool(), world.rng.u8(0..4) == 0);
    let (ms, late_ms) = (draw_ms(world), world.rng.u64(0..300));
    let servers = || [&world.primary].into_iter().chain(world.standbys.iter().map(|standby| &standby.server));
    let servers: Vec<_> = servers().enumerate().filter(|(place, _)| both || *place == which).collect();
    let begun = Instant::now();
    let stopped: Vec<_> = servers.iter().flat_map(|(_, server)| server.stop_all()).collect();
    thread::sleep(Duration::from_millis(ms));
    let awake: Vec<_> = stopped.iter().filter(|process| !process.is_stopped()).collect();
    let awake = format!("{awake:?}");
    let clocks: Vec<_> = servers.iter().map(|(_, server)| server.clock_ahead()).collect();
    if stands_still {
        let stood = begun.elapsed().as_secs_f64();
        servers.iter().zip(&clocks).for_each(|((_, server), ahead)| server.set_clock(ahead - stood));
    }
    stopped.iter().for_each(Process::go_on);
    assert!(!stopped.is_empty() && awake == "[]", "{awake} of {stopped:?} are not stopped");
    if stands_still {
        thread::sleep(Duration::from_millis(late_ms));
        servers.iter().zip(&clocks).for_each(|((_, server), ahead)| server.set_clock(*ahead));
    }
    let clock =
        if stands_still { format!("stood still, right {late_ms} ms later") } else { "went on".into() };
    Struck::Done(format!("{} of {}, {ms} ms, clock {clock}", servers.len(), world.standbys.len() + 1))
}

fn draw_ms(world: &mut World) -> u64 {
    // Mostly short, so that many come in an hour.
    let most = if world.rng.u8(0..3) == 0 { 2000 } else { 400 };
    world.rng.u64(50..most)
}

/// Lets a stopped process continue after a while.
fn go_on_after(ms: u64, process: Process) -> JoinHandle<()> {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(ms));
        process.go_on();
    })
}

/// A stop that ends by itself; others may strike until then.
fn lasting(told: String, going_on: JoinHandle<()>) -> Struck {
    Struck::Lasting(told, Box::new(|_| going_on.join().expect("a process that goes on")))
}
