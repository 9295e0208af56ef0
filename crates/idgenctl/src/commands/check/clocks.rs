//! The clocks of servers against each other.

use std::time::Duration;

use super::{Finding, Severity};
use crate::topology::clock::Ahead;

/// Differences up to this are no finding: an ordinary time daemon may be at work. Ids may run ahead by as much.
const LIMIT_S: f64 = 1.0;

/// Whether two clocks differ by more than the limit, wherever in their intervals they are.
fn differ(one: Ahead, other: Ahead) -> bool {
    one.least - other.most > LIMIT_S || other.least - one.most > LIMIT_S
}

/// The clocks that certainly differ from most others. This machine's counts too, and decides if there is a draw.
pub fn judge(clocks: &[(&str, Ahead)]) -> Vec<Finding> {
    let here = ("this machine", Ahead::ZERO);
    let all: Vec<(&str, Ahead)> = [here].into_iter().chain(clocks.iter().copied()).collect();
    let agreeing = |clock: Ahead| all.iter().filter(|(_, other)| !differ(clock, *other)).count();
    // The first of the greatest is taken, and this machine is the first.
    let mut best = here;
    for clock in &all {
        if agreeing(clock.1) > agreeing(best.1) {
            best = *clock;
        }
    }
    let side: Vec<&str> =
        all.iter().filter(|(_, other)| !differ(best.1, *other)).map(|(name, _)| *name).collect();
    let finding = |(name, clock): &(&str, Ahead)| {
        let (by, way) = if clock.least > best.1.most {
            (clock.least - best.1.most, "ahead of")
        } else {
            (best.1.least - clock.most, "behind")
        };
        Finding::error(
            "clock-differs",
            name,
            format!("the clock is at least {} {way} that of {}", span(by), side.join(", ")),
            "Compare each clock with one that you trust, and set the wrong one right before you restart or promote \
             anything.",
        )
    };
    let mut findings: Vec<_> =
        all.iter().skip(1).filter(|(_, clock)| differ(*clock, best.1)).map(finding).collect();
    if differ(here.1, best.1) {
        findings.push(Finding { severity: Severity::Note, id: "clock-of-this-machine", ..finding(&here) });
    }
    findings
}

/// A span of time, rounded down: the difference is at least that.
fn span(seconds: f64) -> String {
    let whole = Duration::from_secs_f64(seconds.max(0.0)).as_secs();
    match whole {
        0..60 => format!("{:.1} s", (seconds * 10.0).floor() / 10.0),
        60..3600 => format!("{} min", whole / 60),
        3600..86400 => format!("{} h", whole / 3600),
        _ => format!("{} days", whole / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(clocks: &[(&'static str, f64, f64)]) -> Vec<String> {
        let clocks: Vec<_> =
            clocks.iter().map(|(name, least, most)| (*name, Ahead { least: *least, most: *most })).collect();
        judge(&clocks).into_iter().map(|finding| format!("{} {}", finding.server, finding.message)).collect()
    }

    /// Promise: a difference that a slow round trip may have made is no finding.
    #[test]
    fn only_certain_differences_count() {
        assert!(
            found(&[("one", -0.9, -0.5), ("two", 0.1, 0.9)]).is_empty(),
            "each within a second of another"
        );
        assert!(found(&[("one", -0.5, 60.0)]).is_empty(), "nobody knows");
        assert!(found(&[("one", 0.9, 5.0)]).is_empty());
        assert_eq!(
            found(&[("one", 1.2, 1.3)]),
            ["one the clock is at least 1.2 s ahead of that of this machine"]
        );
    }

    /// Promise: most clocks are right, and this machine's decides where there is no majority.
    #[test]
    fn most_clocks_are_right() {
        assert_eq!(
            found(&[("one", 3600.0, 3600.1), ("two", 3600.0, 3600.1)]),
            ["this machine the clock is at least 1 h behind that of one, two"]
        );
        assert_eq!(
            found(&[("one", 0.0, 0.1), ("two", -7300.0, -7299.0), ("three", 0.0, 0.1)]),
            ["two the clock is at least 2 h behind that of this machine, one, three"]
        );
        assert_eq!(
            found(&[("one", 0.0, 0.1), ("two", 90.0, 90.1), ("three", 90.0, 90.1)]).len(),
            2,
            "a draw"
        );
    }
}
