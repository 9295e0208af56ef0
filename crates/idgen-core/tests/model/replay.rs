//! Calls that stop between two steps. A call is a program, not a value that could be copied with the state of the
//! world. So the state has the answers that the server has given to the call so far: to continue, the call starts
//! again, receives the same answers, and takes one more step.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use idgen_core::batch::Batch;
use idgen_core::horizon;
use idgen_core::mark::Mark;
use idgen_core::mint::{self, Session};
use idgen_core::server::{Point, Server, Slots, Wait};
use idgen_core::shared::Published;
use idgen_core::slot::Slot;
use idgen_ids::{Shard, Tick};

use crate::world::{Broken, Essence, Node, Party, World};

/// An answer of the server to a call.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub enum Answer {
    Number(u64),
    Flag(bool),
    /// A limit, and whether commits waited for standbys when it was read.
    Limit(Tick, bool),
    /// The slot as the call found it.
    Slot(Slot<Shard>),
    /// The mark as the call found it.
    Mark(Essence),
    /// Nothing: the call went on.
    Done,
}

/// The request of a party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// An id of a shard.
    Id(usize),
    /// The horizon.
    Horizon,
}

/// A call on its way.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct Call {
    pub request: Request,
    pub answers: Vec<Answer>,
}

/// What has become of a call after a step.
pub enum Outcome {
    /// It waits for something that has not come.
    Blocked,
    /// It is between two steps.
    Stopped,
    /// It has ended with an id or a horizon, or an error; and, if it has taken a run, whether commits waited for
    /// standbys when it read the limit of that run.
    Ended(Result<i64, mint::Error>, Option<bool>),
}

pub fn shard(index: usize) -> Shard {
    Shard::try_from(index as i32).unwrap()
}

/// Lets a call make a step.
pub fn step(
    world: &World,
    node: &mut Node,
    standby: Option<Tick>,
    party: Party,
    call: &mut Call,
    session: &Session,
) -> Outcome {
    let request = call.request;
    let replay = Replay {
        world,
        node: RefCell::new(node),
        standby,
        party,
        answers: RefCell::new(&mut call.answers),
        asked: Cell::new(0),
        moved: Cell::new(false),
        blocked: Cell::new(false),
        ended: Cell::new(false),
        now: Cell::new(0),
        lsn: Cell::new(0),
        limit_waited: Cell::new(false),
        run_waited: Cell::new(None),
        late_start: Cell::new(None),
    };
    let result = catch_unwind(AssertUnwindSafe(|| match request {
        Request::Id(index) => match mint::at_once(&replay, session, shard(index)) {
            Some(id) => Ok(id),
            None => mint::next_id(&replay, session, shard(index)),
        },
        Request::Horizon => horizon::safe_horizon(&replay),
    }));
    match result {
        Ok(result) => {
            replay.start_late();
            Outcome::Ended(result, replay.run_waited.get())
        }
        Err(stop) if stop.is::<Stop>() => {
            if replay.blocked.get() {
                Outcome::Blocked
            } else {
                Outcome::Stopped
            }
        }
        Err(panic) => resume_unwind(panic),
    }
}

/// Unwinds a call that has made its step.
struct Stop;

/// The server, to one call.
struct Replay<'a> {
    world: &'a World,
    node: RefCell<&'a mut Node>,
    /// How far the standby has flushed; `None` if there is no standby.
    standby: Option<Tick>,
    party: Party,
    answers: RefCell<&'a mut Vec<Answer>>,
    /// How many questions the call has asked.
    asked: Cell<usize>,
    /// Whether one of them was new.
    moved: Cell<bool>,
    blocked: Cell<bool>,
    /// Whether the call is being unwound; destructors then get no answers.
    ended: Cell<bool>,
    /// The last answers: of the clock, and of how far the WAL must be acknowledged.
    now: Cell<Tick>,
    lsn: Cell<u64>,
    /// Whether commits waited for standbys when it read its last limit, and that of its run.
    limit_waited: Cell<bool>,
    run_waited: Cell<Option<bool>>,
    /// A start that it should have published.
    late_start: Cell<Option<Tick>>,
}

impl Replay<'_> {
    /// Returns the previous answer or a new one, and whether it is new. A call stops before a question at which
    /// others can come `between`, unless it is the first new one of its step, and if there is no answer yet.
    fn ask(&self, between: bool, answer: impl FnOnce(&mut Node) -> Option<Answer>) -> (Answer, bool) {
        let place = self.asked.replace(self.asked.get() + 1);
        if let Some(answer) = self.answers.borrow().get(place) {
            return (*answer, false);
        }
        if between && self.moved.get() {
            self.stop();
        }
        let Some(answer) = answer(&mut self.node.borrow_mut()) else {
            self.blocked.set(true);
            self.stop();
        };
        self.moved.set(true);
        self.answers.borrow_mut().push(answer);
        (answer, true)
    }

    fn stop(&self) -> ! {
        self.ended.set(true);
        resume_unwind(Box::new(Stop))
    }

    fn number(&self, between: bool, number: impl FnOnce(&Node) -> u64) -> u64 {
        match self.ask(between, |node| Some(Answer::Number(number(node)))) {
            (Answer::Number(number), _) => number,
            other => unreachable!("{other:?}"),
        }
    }

    fn flag(&self, between: bool, flag: impl FnOnce(&Node) -> bool) -> bool {
        match self.ask(between, |node| Some(Answer::Flag(flag(node)))) {
            (Answer::Flag(flag), _) => flag,
            other => unreachable!("{other:?}"),
        }
    }

    fn wait(&self, is_over: impl FnOnce(&Node) -> bool) {
        self.ask(true, |node| is_over(node).then_some(Answer::Done));
    }

    /// Publishes a start that should have been published before.
    fn start_late(&self) {
        if let (Some(tick), Party::Backend(b)) = (self.late_start.take(), self.party) {
            let mut node = self.node.borrow_mut();
            node.starts[b] = node.starts[b].min(tick);
        }
    }

    fn is_waited_for(&self, lsn: u64) -> bool {
        self.standby.is_some_and(|flushed| flushed >= lsn)
    }

    fn standbys(&self, node: &Node) -> bool {
        match self.world.broken {
            Some(Broken::StandbysRemembered) => false,
            Some(Broken::FloorNotShared) if self.party == Party::Reader => false,
            _ => node.standbys,
        }
    }
}

impl Server for Replay<'_> {
    type Error = mint::Error;

    fn now(&self) -> Result<Tick, mint::Error> {
        let now = self.number(false, |node| node.clock);
        self.now.set(now);
        Ok(now)
    }

    fn boot_ms(&self) -> u64 {
        0
    }

    fn monotonic_us(&self) -> u64 {
        0
    }

    fn us_until(&self, _tick: Tick) -> Result<u64, mint::Error> {
        Ok(1)
    }

    fn allows(&self, _shard: Shard) -> bool {
        true
    }

    fn check_allowed(&self, _shard: Shard) -> Result<(), mint::Error> {
        Ok(())
    }

    fn check_any_allowed(&self) -> Result<(), mint::Error> {
        Ok(())
    }

    fn max_ahead_ms(&self) -> u64 {
        self.world.max_ahead
    }

    fn max_wait_ms(&self) -> u64 {
        self.world.max_wait
    }

    fn max_lease(&self) -> u64 {
        self.world.max_lease
    }

    fn reserve_ahead_ms(&self) -> u64 {
        self.world.reserve_ahead
    }

    fn max_clock_jump_ms(&self) -> Option<u64> {
        None
    }

    fn with_mark<T>(&self, f: impl Fn(&mut Mark) -> T) -> T {
        if self.ended.get() {
            return f(&mut Mark::default());
        }
        let (answer, is_new) = self.ask(self.party == Party::Reader, |node| Some(Answer::Mark(node.mark)));
        let Answer::Mark(Essence(mut mark)) = answer else { unreachable!("{answer:?}") };
        let result = f(&mut mark);
        if is_new {
            // Nobody keeps others from renewing, and counters would only multiply the states.
            mark.release();
            (mark.renewals, mark.flush_us, mark.steps_back, mark.steps_forward) = (0, 0, 0, 0);
            if self.world.broken != Some(Broken::FloorNotRaised) || self.party != Party::Reader {
                self.node.borrow_mut().mark = Essence(mark);
            }
        }
        result
    }

    fn floor(&self) -> Tick {
        self.number(self.world.fine, |node| node.mark.0.floor())
    }

    fn run_floor(&self) -> Tick {
        self.number(false, |node| node.mark.0.run_floor())
    }

    fn limit(&self) -> Tick {
        let (answer, _) = self.ask(self.world.fine, |node| {
            let published: Published = Published::default();
            published.publish(&node.mark.0);
            let looks = self.world.broken != Some(Broken::LimitNotLookedAt) && self.standbys(node);
            Some(Answer::Limit(published.limit(|| looks), node.standbys))
        });
        let Answer::Limit(limit, waited) = answer else { unreachable!("{answer:?}") };
        self.limit_waited.set(waited);
        limit
    }

    fn awaited(&self) -> u64 {
        self.number(self.world.fine, |node| node.mark.0.awaited())
    }

    fn publish_start(&self, tick: Tick) {
        let Party::Backend(b) = self.party else { unreachable!("a reader mints nothing") };
        if self.world.broken == Some(Broken::StartPublishedLate) {
            self.late_start.set(Some(tick));
            return;
        }
        self.ask(self.world.fine, |node| {
            match self.world.broken {
                Some(Broken::StartNotPublishedAnew) if node.starts[b] != Tick::MAX => {}
                _ => node.starts[b] = node.starts[b].min(tick),
            }
            Some(Answer::Done)
        });
    }

    fn oldest_start(&self) -> Tick {
        // They are read one by one.
        (0..2).map(|b| self.number(true, |node| node.starts[b])).min().unwrap()
    }

    fn batches(&self) -> &[Batch] {
        &[]
    }

    fn own_batch(&self) -> Option<&Batch> {
        None
    }

    fn in_recovery(&self) -> bool {
        false
    }

    fn load_mark(&self) -> Result<Tick, Self::Error> {
        Ok(self.number(self.world.fine || self.party == Party::Reader, |node| node.written))
    }

    fn write_mark(&self, mark: Tick) -> u64 {
        // A later record has a greater position in the WAL, for which the mark stands here.
        let (answer, _) = self.ask(self.party == Party::Reader, |node| {
            node.written = node.written.max(mark);
            Some(Answer::Number(node.written))
        });
        let Answer::Number(lsn) = answer else { unreachable!("{answer:?}") };
        lsn
    }

    fn flush(&self, lsn: u64) {
        self.ask(self.party == Party::Reader, |node| {
            if self.world.broken != Some(Broken::NotFlushed) {
                node.flushed = node.flushed.max(lsn);
            }
            Some(Answer::Done)
        });
    }

    // The delayed flush is an action of its own, which may happen or not.
    fn flush_soon(&self, _lsn: u64) {}

    fn flushed(&self, lsn: u64) -> bool {
        let broken = self.world.broken == Some(Broken::NotFlushed);
        self.flag(false, |node| broken || node.flushed >= lsn)
    }

    fn standbys_must_acknowledge(&self) -> bool {
        self.flag(false, |node| self.standbys(node))
    }

    fn acknowledged(&self, lsn: u64) -> bool {
        self.lsn.set(lsn);
        self.flag(self.party == Party::Reader, |_| self.is_waited_for(lsn))
    }

    fn prepared_transactions(&self) -> usize {
        0
    }

    fn sleep(&self, _us: u64, wait: Wait) {
        match wait {
            Wait::Clock => self.wait(|node| node.clock != self.now.get()),
            _ => self.wait(|node| !self.standbys(node) || self.is_waited_for(self.lsn.get())),
        }
    }

    fn wait_for_mark(&self, _ms: u64, _done: impl FnOnce() -> bool) {
        unreachable!("a claim is always to be had");
    }

    fn wake_waiting(&self) {}

    fn check_for_interrupts(&self) {}

    fn point(&self, point: Point) {
        // The sleep that follows is between two steps.
        if point != Point::BeforeAcknowledge {
            self.wait(|_| true);
        }
    }
}

impl Slots<Shard> for Replay<'_> {
    fn with_slot<T>(&self, shard: Shard, f: impl FnOnce(&mut Slot<Shard>) -> T) -> T {
        if self.ended.get() {
            return f(&mut Slot::default());
        }
        let (answer, is_new) = self.ask(true, |node| Some(Answer::Slot(node.slots[shard.index()])));
        let Answer::Slot(before) = answer else { unreachable!("{answer:?}") };
        let mut slot = before;
        let result = f(&mut slot);
        if slot.next != before.next {
            self.run_waited.set(Some(self.limit_waited.get()));
        }
        if is_new {
            self.start_late();
            (slot.counters.leases, slot.counters.waits, slot.counters.waited_us) = (0, 0, 0);
            self.node.borrow_mut().slots[shard.index()] = slot;
        }
        result
    }

    fn slot(&self, _shard: Shard) -> Slot<Shard> {
        unreachable!("no batches");
    }
}
