//! Measurements: in rounds in which the subjects take turns, and with many backends at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::{connect, sql, value};

/// A median, with the least and the greatest value.
#[derive(Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub greatest: f64,
}

impl Spread {
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        let (half, last) = (values.len() / 2, values.len() - 1);
        let median = (values[half] + values[last - half]) / 2.0;
        Spread { median, least: values[0], greatest: values[last] }
    }

    /// Converts the values to another unit, or subtracts a part that is common to all.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Spread {
        Spread { median: f(self.median), least: f(self.least), greatest: f(self.greatest) }
    }
}

/// `N` figures of each subject, with its name.
pub struct Taken<const N: usize>(pub Vec<(String, [Spread; N])>);

impl<const N: usize> Taken<N> {
    pub fn of(&self, name: &str) -> &[Spread; N] {
        &self.0.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("no figures of {name}")).1
    }

    /// The median of the first figure.
    pub fn median(&self, name: &str) -> f64 {
        self.of(name)[0].median
    }

    pub fn ratio(&self, name: &str, of: &str) -> f64 {
        self.median(name) / self.median(of)
    }
}

/// Measures the subjects, each a name and an action, in turns. Each round begins with another subject, and the first
/// round only warms up.
pub fn turns<T, const N: usize>(
    title: &str,
    rounds: usize,
    subjects: &[(impl ToString, T)],
    mut measure: impl FnMut(&T) -> [f64; N],
) -> Taken<N> {
    println!("\n== {title}");
    let mut taken = vec![[const { Vec::new() }; N]; subjects.len()];
    for round in 0..=rounds {
        for turn in 0..subjects.len() {
            let subject = (turn + round) % subjects.len();
            let figures = measure(&subjects[subject].1);
            if round > 0 {
                taken[subject].iter_mut().zip(figures).for_each(|(all, figure)| all.push(figure));
            }
        }
    }
    let names = subjects.iter().map(|(name, _)| name.to_string());
    Taken(names.zip(taken.into_iter().map(|figures| figures.map(Spread::of))).collect())
}

pub fn seconds(task: impl FnOnce()) -> f64 {
    let start = Instant::now();
    task();
    start.elapsed().as_secs_f64()
}

/// Runs a statement once the clock has caught up with the ids of the previous one. Returns its seconds and the bytes of
/// WAL that the server wrote in that time.
pub fn timed(client: &mut Client, statement: &str) -> [f64; 2] {
    while value::<i64>(client, "SELECT ahead_ms FROM idgen_status") > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let place = "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8";
    let before: f64 = value(client, place);
    let seconds = seconds(|| sql(client, statement));
    [seconds, value::<f64>(client, place) - before]
}

/// The figures of concurrent backends.
pub struct Load {
    /// The total of all backends.
    pub ids_per_s: f64,
    /// CPU seconds per second of all backends together: at most the number of cores.
    pub cores: f64,
    /// The time of each statement, in milliseconds.
    pub latencies: Vec<f64>,
}

/// Runs a backend for each statement, all at once, and measures them for `seconds` after a warm-up. Each backend repeats
/// its statement, which makes a number of ids. A statement that crosses an end of that time counts in proportion to the
/// part within. All backends continue until the last such statement has ended, so that the load stays the same.
pub fn at_once(server: &str, statements: &[String], ids: f64, seconds: f64) -> Load {
    let start = |statement: &String| {
        let mut client = connect(server);
        let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
        let statement = client.prepare(statement).expect("a statement");
        (client, pid, statement)
    };
    let mut backends: Vec<_> = statements.iter().map(start).collect();
    let pids: Vec<_> = backends.iter().map(|(_, pid, _)| *pid).collect();
    let from = Instant::now() + Duration::from_secs_f64(0.1 + seconds / 10.0);
    let upto = from + Duration::from_secs_f64(seconds);
    let busy = AtomicUsize::new(statements.len());
    thread::scope(|scope| {
        let threads = backends.iter_mut().map(|(client, _, statement)| {
            scope.spawn(|| {
                let mut ends = vec![Instant::now()];
                let mut is_busy = true;
                while busy.load(Ordering::Relaxed) > 0 {
                    client.query(statement, &[]).expect("rows");
                    let end = Instant::now();
                    ends.push(end);
                    if is_busy && end >= upto {
                        is_busy = false;
                        busy.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                ends
            })
        });
        let threads: Vec<_> = threads.collect();
        let [(before, cpu_before), (after, cpu_after)] = [from, upto].map(|time| {
            thread::sleep(time.saturating_duration_since(Instant::now()));
            (Instant::now(), pids.iter().map(|pid| cpu_time(*pid)).sum::<Duration>())
        });
        let cores = (cpu_after - cpu_before).as_secs_f64() / (after - before).as_secs_f64();
        let mut load = Load { ids_per_s: 0.0, cores, latencies: Vec::new() };
        for thread in threads {
            for [start, end] in thread.join().expect("a client").array_windows() {
                let time = (*end - *start).as_secs_f64();
                let within = (*end).min(upto).saturating_duration_since((*start).max(from)).as_secs_f64();
                load.ids_per_s += ids * within / time / seconds;
                if (from..upto).contains(start) {
                    load.latencies.push(time * 1e3);
                }
            }
        }
        load
    })
}

/// The CPU time of a process, as Linux counts it.
pub fn cpu_time(pid: i32) -> Duration {
    let path = format!("/proc/{pid}/schedstat");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let ns = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ns.unwrap_or_else(|| panic!("{path}: {text}")))
}
