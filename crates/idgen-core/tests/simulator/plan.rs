//! The plan of a world: everything that a seed determines before the world begins, including all events. So a world can
//! be run again with fewer events.

use std::fmt;

use fastrand::Rng;
use idgen_core::settings::Settings;
use idgen_ids::Epoch;

/// Virtual time, in nanoseconds from the beginning of a world.
pub type Time = u64;

/// The epoch of all hosts.
pub const EPOCH: Epoch = match Epoch::from_unix_ms(0) {
    Ok(epoch) => epoch,
    Err(_) => unreachable!(),
};

pub const US: Time = 1000;
pub const MS: Time = 1000 * US;

/// Deliberate violations of the conditions of the promises. They are in the simulated server, not in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Backends use the standbys that were configured when their statement began.
    StandbysRemembered,
    /// An existing limit stays valid, whether or not standbys have to acknowledge it by now.
    LimitNotLookedAt,
    /// The server claims acknowledgments that standbys have not given.
    NotAwaited,
    /// A mark is published that is not on disk.
    NotFlushed,
    /// The clock stands still for a backend with a lease, which therefore outlives its millisecond.
    LeaseOutlives,
    /// An incarnation of the server does not begin at the stored mark.
    FloorOfZero,
    /// A backend that finds the claim taken gives it up nevertheless.
    ClaimGivenUp,
    /// The floor is read before the limit.
    FloorReadFirst,
    /// A transaction publishes its start after it has read the floor.
    StartPublishedLate,
    /// A transaction does not publish its start again if the clock has been set back since.
    StartNotPublishedAnew,
    /// The reader of the horizon does not raise the floor.
    FloorNotRaised,
    /// The reader raises the floor after it has read the starts of the transactions.
    StartsReadFirst,
    /// The reader relies on a floor that standbys may not have.
    FloorNotShared,
    /// Batches do not know of each other.
    BatchesCompete,
    /// Calls count the time of their waits twice.
    WaitsCountedTwice,
    /// The bound of a closed shard leaves out what backends have taken and not yet handed out.
    LeaseOutlivesClosing,
    /// The bound of a shard is taken before it is closed.
    BoundTakenFirst,
    /// A shard is not closed for the JavaScript-safe ids.
    JsNotClosed,
    /// A server that takes a shard over does not go past the JavaScript-safe ids.
    JsNotAdvanced,
    /// A statement goes by the list of shards with which it began.
    ListRemembered,
    /// A raised mark is durable, but not the floor of this incarnation.
    FloorNotRaisedWithMark,
}

/// A place at which an event can meet a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Clock,
    Boot,
    Limit,
    Flag,
    Floor,
    Start,
    Starts,
    Slot,
    Mark,
    Load,
    Write,
    Flush,
    Acknowledge,
    Sleep,
    BeforeWal,
    AfterInsert,
    AfterFlush,
    BeforeAcknowledge,
    BeforePublish,
    Commit,
    Prepare,
    Ask,
}

const PLACES: [Place; 21] = [
    Place::Clock,
    Place::Boot,
    Place::Limit,
    Place::Flag,
    Place::Floor,
    Place::Start,
    Place::Starts,
    Place::Slot,
    Place::Mark,
    Place::Load,
    Place::Write,
    Place::Flush,
    Place::Acknowledge,
    Place::Sleep,
    Place::BeforeWal,
    Place::AfterInsert,
    Place::AfterFlush,
    Place::BeforeAcknowledge,
    Place::BeforePublish,
    Place::Commit,
    Place::Prepare,
];

/// A server: 0 is the primary, and the others are counted on from it.
pub type Who = usize;

/// The server of another cluster, which takes shards over and gives them back.
pub const OTHER: Who = Who::MAX;

/// The standbys for one of which commits wait.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Names {
    #[default]
    None,
    First(Vec<usize>),
    Any(Vec<usize>),
}

impl Names {
    pub fn listed(&self) -> &[usize] {
        match self {
            Names::None => &[],
            Names::First(hosts) | Names::Any(hosts) => hosts,
        }
    }
}

/// What happens when a paused host continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The machine was suspended: all of its clocks have advanced, except the one for waits.
    Suspended,
    /// A virtual machine whose system clock is corrected at once.
    Set,
    /// All clocks of the virtual machine continue from where they stood.
    Behind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Power is lost, and the clock may be set before the restart.
    Crash {
        who: Who,
        down: Time,
        clock: Option<i64>,
    },
    /// The server is shut down and started again.
    Restart {
        who: Who,
        down: Time,
        clock: Option<i64>,
    },
    /// SIGKILL. The other processes of the server end too, and it reinitializes its shared memory.
    Kill {
        who: Who,
        backend: usize,
        down: Time,
    },
    Terminate {
        who: Who,
        backend: usize,
    },
    Cancel {
        who: Who,
        backend: usize,
    },
    /// Raises an error wherever the backend is, if one is possible there.
    Stop {
        who: Who,
        backend: usize,
        time: Time,
    },
    Pause {
        who: Who,
        time: Time,
        wake: Wake,
    },
    Clock {
        who: Who,
        ms: i64,
    },
    ClockRight {
        who: Who,
    },
    Names(Names),
    Settings {
        who: Who,
        settings: Settings,
    },
    Cut {
        who: Who,
        data: bool,
        acks: bool,
        time: Time,
    },
    Slow {
        who: Who,
        delay: Time,
    },
    Stall {
        who: Who,
        time: Time,
    },
    Promote {
        who: Who,
        alive: bool,
        back: Time,
        clock: Option<i64>,
    },
    Backup,
    Restore {
        down: Time,
        clock: Option<i64>,
    },
    Finish,
    /// Moves a shard to the other cluster: the server that has it closes it, and the other one opens it.
    Move {
        shard: usize,
        listed_late: bool,
    },
}

pub const KINDS: usize = 19;

impl Fault {
    pub fn kind(&self) -> usize {
        match self {
            Fault::Crash { .. } => 0,
            Fault::Restart { .. } => 1,
            Fault::Kill { .. } => 2,
            Fault::Terminate { .. } => 3,
            Fault::Cancel { .. } => 4,
            Fault::Stop { .. } => 5,
            Fault::Pause { .. } => 6,
            Fault::Clock { .. } => 7,
            Fault::ClockRight { .. } => 8,
            Fault::Names(_) => 9,
            Fault::Settings { .. } => 10,
            Fault::Cut { .. } => 11,
            Fault::Slow { .. } => 12,
            Fault::Stall { .. } => 13,
            Fault::Promote { .. } => 14,
            Fault::Backup => 15,
            Fault::Restore { .. } => 16,
            Fault::Finish => 17,
            Fault::Move { .. } => 18,
        }
    }
}

/// The names of the faults, for the tally.
pub const NAMES: [&str; KINDS] = [
    "host crashed",
    "server restarted",
    "backend killed",
    "backend terminated",
    "call cancelled",
    "backend stopped",
    "host paused",
    "clock set",
    "clock set right",
    "synchronous names",
    "settings",
    "network cut",
    "network slow",
    "disk stalled",
    "standby promoted",
    "backup taken",
    "backup restored",
    "prepared ended",
    "shard moved",
];

impl Fault {
    /// Whether the fault names a host by its number.
    pub fn names_host(&self, index: usize) -> bool {
        matches!(self, Fault::Names(names) if names.listed().contains(&index))
    }
}

/// A fault and its time.
#[derive(Clone, Debug)]
pub struct Event {
    pub at: Time,
    /// The fault then waits until a backend of the primary reaches this place, and strikes that one.
    pub place: Option<Place>,
    pub fault: Fault,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", Plan { events: Vec::new(), ..self.clone() })?;
        for Event { at, place, fault } in &self.events {
            let place = place.map(|place| format!(" at the next {place:?}")).unwrap_or_default();
            writeln!(f, "{:>8}.{:03} ms{place}: {fault:?}", at / MS, at % MS / US)?;
        }
        Ok(())
    }
}

/// A world.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// The seed for everything that the plan does not determine.
    pub schedule: u64,
    pub hosts: usize,
    /// Whether there is also the server of another cluster.
    pub other: bool,
    pub backends: usize,
    pub shards: usize,
    pub settings: Settings,
    pub names: Names,
    pub drift_ppm: Vec<i64>,
    /// The duration of a backend's step, and the average number of steps before another process intervenes.
    pub step: Time,
    pub stretch: u64,
    /// Out of a thousand times that others intervene, the number of times that they take milliseconds.
    pub lulls: u16,
    /// The duration of a flush, and of a message.
    pub disk: Time,
    pub network: Time,
    /// The longest time that a backend is idle between statements.
    pub think: Time,
    pub end: Time,
    pub horizons: bool,
    pub prepares: bool,
    /// Whether the mark is raised now and then.
    pub raises: bool,
    /// If not 0, backends request nothing but batches of this many ids.
    pub batches: u64,
    /// In such a world, the number of backends that request single ids instead.
    pub singles: usize,
    /// In the end everything is repaired, and every backend must get ids.
    pub heals: bool,
    pub events: Vec<Event>,
    pub broken: Option<Broken>,
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

fn settings(rng: &mut Rng) -> Settings {
    Settings {
        epoch: EPOCH,
        max_ahead_ms: pick(rng, &[0, 1, 5, 20, 100, 1000]),
        max_wait_ms: pick(rng, &[0, 5, 50, 400, 2000]),
        max_lease: pick(rng, &[1, 2, 8, 64, 64, 1024]),
        reserve_ahead_ms: pick(rng, &[10, 10, 15, 30, 100, 1000]),
        max_clock_jump_ms: pick(rng, &[None, Some(30), Some(300), Some(3_600_000)]),
    }
}

fn names(rng: &mut Rng, hosts: usize) -> Names {
    let mut all: Vec<usize> = (0..hosts).collect();
    rng.shuffle(&mut all);
    if rng.u8(..3) == 0 && hosts < 3 {
        all.truncate(hosts.min(2));
    }
    match rng.u8(..5) {
        0 => Names::None,
        1 | 2 => Names::First(all),
        _ => Names::Any(all),
    }
}

/// A step of a clock, in milliseconds: mostly small, of the size of the protocol's intervals.
fn clock_step(rng: &mut Rng, settings: &Settings) -> i64 {
    let length = match rng.u8(..6) {
        0 | 1 => rng.u64(1..=3),
        2 => rng.u64(1..=30),
        3 => settings.reserve_ahead_ms + rng.u64(..20),
        4 => settings.max_ahead_ms + rng.u64(..10),
        _ => rng.u64(1..=2000),
    }
    .cast_signed();
    if rng.u8(..3) == 0 { length } else { -length }
}

fn set_meanwhile(rng: &mut Rng, settings: &Settings) -> Option<i64> {
    rng.bool().then(|| clock_step(rng, settings))
}

fn fault(rng: &mut Rng, kind: usize, plan: &Plan) -> Fault {
    let settings = &plan.settings;
    let who = if rng.u8(..4) > 0 { 0 } else { rng.usize(..plan.hosts) };
    let backend = rng.usize(..plan.backends);
    let short = rng.u64(MS / 10..=20 * MS);
    let long = rng.u64(MS..=300 * MS);
    let time = if rng.u8(..4) == 0 { long } else { short };
    let down = short;
    match kind {
        0 => Fault::Crash { who, down, clock: set_meanwhile(rng, settings) },
        1 => Fault::Restart { who, down, clock: set_meanwhile(rng, settings) },
        2 => Fault::Kill { who, backend, down },
        3 => Fault::Terminate { who, backend },
        4 => Fault::Cancel { who, backend },
        5 => Fault::Stop { who, backend, time },
        6 => Fault::Pause { who, time, wake: pick(rng, &[Wake::Suspended, Wake::Set, Wake::Behind]) },
        7 => Fault::Clock { who, ms: clock_step(rng, settings) },
        8 => Fault::ClockRight { who },
        9 => Fault::Names(names(rng, plan.hosts)),
        10 => {
            let mut new = self::settings(rng);
            if settings.max_lease == 1 {
                new.max_lease = 1;
            }
            Fault::Settings { who, settings: new }
        }
        11 => {
            let which = rng.u8(1..=3);
            let who = rng.usize(1..plan.hosts.max(2));
            Fault::Cut { who, data: which & 1 > 0, acks: which & 2 > 0, time }
        }
        12 => Fault::Slow { who: rng.usize(1..plan.hosts.max(2)), delay: rng.u64(..20 * MS) },
        13 => Fault::Stall { who, time },
        14 => Fault::Promote {
            who: rng.usize(1..plan.hosts.max(2)),
            alive: rng.bool(),
            back: long,
            clock: set_meanwhile(rng, settings),
        },
        15 => Fault::Backup,
        16 => Fault::Restore { down, clock: set_meanwhile(rng, settings) },
        17 => Fault::Finish,
        _ => Fault::Move { shard: rng.usize(..plan.shards), listed_late: rng.bool() },
    }
}

impl Fault {
    /// Redirects the fault to the other server, if possible.
    fn elsewhere(mut self) -> Fault {
        match &mut self {
            Fault::Crash { who, .. }
            | Fault::Restart { who, .. }
            | Fault::Kill { who, .. }
            | Fault::Terminate { who, .. }
            | Fault::Cancel { who, .. }
            | Fault::Stop { who, .. }
            | Fault::Pause { who, .. }
            | Fault::Clock { who, .. }
            | Fault::ClockRight { who }
            | Fault::Settings { who, .. }
            | Fault::Stall { who, .. } => *who = OTHER,
            _ => {}
        }
        self
    }
}

impl Plan {
    /// The number of servers; the other one comes last.
    pub fn servers(&self) -> usize {
        self.hosts + usize::from(self.other)
    }

    /// Draws a world.
    pub fn draw(seed: u64, broken: Option<Broken>) -> Plan {
        let mut rng = Rng::with_seed(seed);
        // Draws for later additions, so that a seed still draws the same world.
        let mut later = Rng::with_seed(!seed);
        let hosts = pick(&mut rng, &[1, 2, 2, 3, 3]);
        let mut plan = Plan {
            seed,
            schedule: seed,
            hosts,
            other: later.u8(..3) == 0,
            backends: rng.usize(2..=5),
            shards: rng.usize(1..=3),
            settings: settings(&mut rng),
            names: if hosts > 1 && rng.bool() { names(&mut rng, hosts) } else { Names::None },
            drift_ppm: (0..hosts).map(|_| rng.i64(-200..=200)).collect(),
            step: pick(&mut rng, &[50, 100, 300, 2000]),
            stretch: pick(&mut rng, &[1, 3, 10, 40, 200]),
            lulls: pick(&mut rng, &[0, 2, 20, 200]),
            disk: pick(&mut rng, &[50 * US, 300 * US, 2 * MS]),
            network: pick(&mut rng, &[20 * US, 200 * US, 2 * MS]),
            think: pick(&mut rng, &[10 * US, 200 * US, 2 * MS, 10 * MS]),
            end: 0,
            horizons: rng.bool(),
            prepares: rng.u8(..4) == 0,
            raises: later.u8(..4) == 0,
            batches: 0,
            singles: 0,
            heals: rng.u8(..4) == 0,
            events: Vec::new(),
            broken,
        };
        // A world has only some kinds of faults, so that every combination occurs.
        let mut weights: Vec<u32> = (0..KINDS)
            .map(|kind| match kind {
                9 | 11 | 12 | 14 if hosts == 1 => 0,
                17 if !plan.prepares => 0,
                18 if plan.other => pick(&mut later, &[1, 6, 12]),
                18 => 0,
                _ if rng.bool() => pick(&mut rng, &[1, 2, 6]),
                _ => 0,
            })
            .collect();
        plan.steer(&mut weights);
        if plan.other {
            // All shards of a backend may be with the other server.
            plan.heals = false;
            plan.drift_ppm.push(later.i64(-200..=200));
        }
        let total: u32 = weights.iter().sum();
        let gap = pick(&mut rng, &[MS, 3 * MS, 8 * MS, 25 * MS]);
        let aimed = pick(&mut rng, &[0, 2, 5]);
        let mut at = rng.u64(..5 * MS);
        let count = if rng.u8(..30) == 0 || total == 0 { 0 } else { rng.usize(5..=80) };
        for _ in 0..count {
            let mut left = rng.u32(..total);
            let kind = weights.iter().position(|weight| {
                let found = left < *weight;
                left = left.wrapping_sub(*weight);
                found
            });
            let fault = fault(&mut rng, kind.unwrap_or(0), &plan);
            let fault = if plan.other && later.u8(..3) == 0 { fault.elsewhere() } else { fault };
            let place = (rng.u8(..8) < aimed).then(|| pick(&mut rng, &PLACES));
            plan.events.push(Event { at, place, fault });
            at += rng.u64(..=2 * gap);
        }
        plan.end = at + 30 * MS;
        plan
    }

    /// Steers the world to where its violation is possible, if it shows in only one of ten thousand worlds.
    fn steer(&mut self, weights: &mut [u32]) {
        let kinds: &[usize] = match self.broken {
            Some(Broken::StartNotPublishedAnew | Broken::StartsReadFirst) => &[7, 8],
            Some(Broken::FloorReadFirst) => &[0, 1, 2, 5],
            Some(
                Broken::LeaseOutlivesClosing
                | Broken::BoundTakenFirst
                | Broken::JsNotClosed
                | Broken::JsNotAdvanced
                | Broken::ListRemembered,
            ) => {
                self.other = true;
                weights[18] = 12;
                return;
            }
            Some(Broken::FloorNotRaisedWithMark) => {
                self.raises = true;
                return;
            }
            _ => return,
        };
        self.other = false;
        (self.hosts, self.names, self.horizons, self.lulls) = (1, Names::None, true, 200);
        for (kind, weight) in weights.iter_mut().enumerate() {
            *weight = u32::from(kinds.contains(&kind));
        }
    }
}
