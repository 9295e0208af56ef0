//! Processes that are stopped for a while, and whole machines.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Fault, NOT_DURABLE, Struck, always, fault, has_fault_points, is_synchronous};
use crate::campaign::fleet::Fleet;
use crate::campaign::sessions::Work;
use crate::moment::within_seconds;
use crate::server::Server;
use crate::server::processes::Process;

const PROCESS: &str = "process stopped";
const MINTING: &str = "minting backend stopped";
const RENEWING: &str = "renewing backend stopped";

pub const FAULTS: &[Fault] = &[
    fault(PROCESS, 2, always, stop_process, &[NOT_DURABLE]),
    fault(MINTING, 2, always, stop_minting, &[NOT_DURABLE]),
    // No other process waits for this one.
    fault(RENEWING, 2, |fleet| has_fault_points(fleet) && !fleet.lasts(RENEWING), stop_renewing, &[]),
    // Otherwise another process of the machine would continue in the meantime.
    fault(
        "machine paused",
        2,
        |fleet| [PROCESS, MINTING, RENEWING].iter().all(|name| !fleet.lasts(name)),
        pause_machine,
        &[NOT_DURABLE],
    ),
];

fn stop_process(fleet: &mut Fleet) -> Struck {
    const OF_PRIMARY: &[&str] = &["checkpointer", "walwriter", "background writer"];
    const OF_STANDBY: &[&str] = &["walsender", "walreceiver", "startup", "checkpointer"];
    let standby = fleet.rng.usize(0..fleet.standbys.len() + 1);
    let place = fleet.rng.usize(0..12);
    let ms = draw_ms(fleet);
    let (server, kind) = match standby.checked_sub(1).map(|one| &fleet.standbys[one].server) {
        None => (&fleet.primary, OF_PRIMARY[place % OF_PRIMARY.len()]),
        Some(server) => match OF_STANDBY[place % OF_STANDBY.len()] {
            "walsender" => (&fleet.primary, "walsender"),
            kind => (server, kind),
        },
    };
    let of_kind = format!("SELECT min(pid) FROM pg_stat_activity WHERE backend_type = '{kind}'");
    let stopped = within_seconds(20, || {
        let process = Process::find(server.answer::<Option<i32>>(&of_kind)?)?;
        // Another fault may have stopped the process for a while.
        (!process.is_stopped() && process.stop()).then_some(process)
    });
    match stopped {
        Some(process) => lasting(format!("{kind}, {ms} ms"), go_on_after(ms, process)),
        None => Struck::Skipped("there was no such process"),
    }
}

/// Stops a session that runs such a statement. It may hold a lock that others need.
pub(super) fn stop_session(server: &Server, statement: &str) -> Option<Process> {
    let running = format!(
        "SELECT coalesce(array_agg(pid), '{{}}') FROM pg_stat_activity
         WHERE state = 'active' AND query LIKE '%{statement}%' AND pid <> pg_backend_pid()"
    );
    let running = server.answer::<Vec<i32>>(&running).into_iter().filter_map(Process::find);
    // Another fault may have stopped a session for a while.
    running.into_iter().find(|process| !process.is_stopped() && process.stop())
}

/// Stops a session in the middle of a statement that mints from its lease.
fn stop_minting(fleet: &mut Fleet) -> Struck {
    let ms = draw_ms(fleet);
    fleet.start_busy();
    let primary = &fleet.primary;
    let stopped = within_seconds(20, || {
        let process = stop_session(primary, "busily")?;
        let pid = process.pid();
        // The process continues by itself, because it may hold a lock that the next session needs.
        let going_on = go_on_after(ms, process);
        // The session may have ended its statement just before it was stopped.
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

fn stop_renewing(fleet: &mut Fleet) -> Struck {
    let points = ["before-wal", "after-insert", "after-flush", "before-publish", "before-acknowledge"];
    let points = &points[..if is_synchronous(fleet) { 5 } else { 4 }];
    let point = points[fleet.rng.usize(0..points.len())];
    // Sometimes the pause exceeds the longest wait of a call.
    let ms = if fleet.rng.u8(0..4) == 0 { 7000 } else { draw_ms(fleet) };
    let minting = fleet.start_apart(Work::StopAt(point));
    let own = "SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'stops'";
    let primary = &fleet.primary;
    let find = || Process::find(primary.answer::<Option<i32>>(own)?);
    let stopped = within_seconds(20, || find().filter(Process::is_stopped));
    // The client ends with this call.
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
        // The backend stops each time it reaches the point.
        while !minting.have_ended() {
            process.go_on();
            thread::sleep(Duration::from_millis(5));
        }
        minting.finish();
    });
    lasting(format!("{point}, {ms} ms"), going_on)
}

/// Pauses a whole server. When it continues, its clock has either advanced or stood still, and is then corrected.
fn pause_machine(fleet: &mut Fleet) -> Struck {
    let which = fleet.rng.usize(0..fleet.standbys.len() + 1);
    let (stands_still, both) = (fleet.rng.bool(), fleet.rng.u8(0..4) == 0);
    let (ms, late_ms) = (draw_ms(fleet), fleet.rng.u64(0..300));
    let servers = || [&fleet.primary].into_iter().chain(fleet.standbys.iter().map(|standby| &standby.server));
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
    Struck::Done(format!("{} of {}, {ms} ms, clock {clock}", servers.len(), fleet.standbys.len() + 1))
}

fn draw_ms(fleet: &mut Fleet) -> u64 {
    // Most pauses are short, so that an hour has many.
    let most = if fleet.rng.u8(0..3) == 0 { 2000 } else { 400 };
    fleet.rng.u64(50..most)
}

pub(super) fn go_on_after(ms: u64, process: Process) -> JoinHandle<()> {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(ms));
        process.go_on();
    })
}

/// A fault whose process continues by itself. Other faults may strike in the meantime.
fn lasting(told: String, going_on: JoinHandle<()>) -> Struck {
    Struck::Lasting(told, Box::new(|_| going_on.join().expect("a process that goes on")))
}
