//! How things are measured: in rounds that interleave the subjects, and with many backends at once.

use std::io::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

/// A median with the least and the greatest.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let (half, last) = (values.len() / 2, values.len() - 1);
        let median = (values[half] + values[last - half]) / 2.0;
        Spread { median, least: values[0], greatest: values[last] }
    }

    /// The same in another unit, or less a part that is common to all.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Spread {
        Spread { median: f(self.median), least: f(self.least), greatest: f(self.greatest) }
    }
}

/// Takes `N` figures of every subject, and shows the first one as progress. The subjects take turns, each round
/// begins with another one, and the first round only warms up.
pub fn interleaved<const N: usize>(
    title: &str,
    rounds: usize,
    subjects: &[String],
    mut take: impl FnMut(usize) -> [f64; N],
) -> Vec<[Spread; N]> {
    println!("\n== {title}");
    let mut taken = vec![[const { Vec::new() }; N]; subjects.len()];
    for round in 0..=rounds {
        print!("{}", if round == 0 { "warm-up:".into() } else { format!("round {round} of {rounds}:") });
        for turn in 0..subjects.len() {
            let subject = (turn + round) % subjects.len();
            let figures = take(subject);
            print!(" {} {:.4};", subjects[subject], figures[0]);
            std::io::stdout().flush().expect("stdout");
            if round > 0 {
                for (all, figure) in taken[subject].iter_mut().zip(figures) {
                    all.push(figure);
                }
            }
        }
        println!();
    }
    taken.into_iter().map(|figures| figures.map(Spread::of)).collect()
}

/// What backends at work got done.
pub struct Done {
    /// Rows a second, of all backends.
    pub rows_per_s: f64,
    /// Seconds of CPU time a second that all backends took: at most the number of cores.
    pub cores: f64,
}

/// What one backend repeats, and how many rows it makes each time.
#[derive(Clone)]
pub struct Work {
    pub statement: String,
    pub rows: u64,
}

/// Runs a backend for each work, all at once, and measures them for `seconds` in the middle. A statement that
/// crosses an end of that time counts in proportion to the part within. All backends continue until the last such
/// statement has ended, so that the load stays the same.
pub fn at_once(server: &str, works: &[Work], seconds: f64) -> Done {
    let (ready, over, ended) = (Barrier::new(works.len() + 1), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let threads: Vec<_> = works
            .iter()
            .map(|work| {
                let (ready, over, ended) = (&ready, &over, &ended);
                let mut client = Client::connect(server, NoTls).expect("a connection");
                let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).expect("its process").get(0);
                let thread = scope.spawn(move || {
                    client.batch_execute(SESSION).expect("settings of the session");
                    let statement = client.prepare(&work.statement).expect("a statement");
                    ready.wait();
                    let mut ends = vec![Instant::now()];
                    let mut counted = false;
                    while ended.load(Ordering::Relaxed) < works.len() {
                        client.query(&statement, &[]).expect("rows");
                        ends.push(Instant::now());
                        if over.load(Ordering::Relaxed) && !counted {
                            counted = true;
                            ended.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    ends
                });
                (pid, thread)
            })
            .collect();
        let on_cpu = || threads.iter().map(|(pid, _)| cpu_time(*pid)).sum::<Duration>();
        ready.wait();
        thread::sleep(Duration::from_secs_f64(0.1 + seconds / 10.0));
        let (from, cpu_before) = (Instant::now(), on_cpu());
        thread::sleep(Duration::from_secs_f64(seconds));
        let (upto, cpu_after) = (Instant::now(), on_cpu());
        over.store(true, Ordering::Relaxed);
        let wall = (upto - from).as_secs_f64();
        let rows: f64 = threads
            .into_iter()
            .zip(works)
            .map(|((_, thread), work)| {
                work.rows as f64 * within(&thread.join().expect("a client"), from, upto)
            })
            .sum();
        Done { rows_per_s: rows / wall, cores: (cpu_after - cpu_before).as_secs_f64() / wall }
    })
}

/// How many of the statements, each of which began when the one before ended, lie within a span of time.
fn within(ends: &[Instant], from: Instant, upto: Instant) -> f64 {
    ends.array_windows()
        .map(|[start, end]| {
            let part = (*end.min(&upto)).saturating_duration_since(*start.max(&from));
            part.as_secs_f64() / (*end - *start).as_secs_f64()
        })
        .sum()
}

/// What Linux has counted for a process.
pub fn cpu_time(pid: i32) -> Duration {
    let path = format!("/proc/{pid}/schedstat");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or_else(|| panic!("{path}: {text}")))
}

/// Every session's: a call for each row by one backend, and rows in the order in which they were made.
pub const SESSION: &str =
    "SET jit = off; SET max_parallel_workers_per_gather = 0; SET synchronize_seqscans = off";
