//! The tally of a campaign, and the page that adds up all campaigns.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use promises::Counts;
use serde::{Deserialize, Serialize};

use crate::process::{output_of_run, preloads, said_by_pg_config, top};

/// The counts of a run of the campaign. Each line of the data file next to the page is such a tally.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    date: String,
    postgresql: String,
    idgen: String,
    commit: String,
    first_seed: u64,
    last_seed: u64,
    minutes: u64,
    rounds: u64,
    ids: u64,
    calls: u64,
    horizons: u64,
    violations: u64,
    /// Fleets that ended early, by a violation or by unexpected behavior of a fault or a server.
    failed: u64,
    /// How often each fault struck, and how often it was not possible.
    faults: BTreeMap<String, (u64, u64)>,
    /// The number of refusals, by SQLSTATE and the beginning of the message.
    refusals: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds a round of a fleet by the fleet's counts before and after it.
    pub fn add(
        &mut self,
        outcomes: &[(&'static str, bool)],
        before: &Counts,
        after: &Counts,
        violations: u64,
    ) {
        for (name, has_struck) in outcomes {
            let (struck, skipped) = self.faults.entry((*name).into()).or_default();
            *(if *has_struck { struck } else { skipped }) += 1;
        }
        self.rounds += 1;
        self.ids += after.ids - before.ids;
        self.calls += after.calls - before.calls;
        self.horizons += after.horizons - before.horizons;
        self.violations += violations;
        for (why, count) in &after.refusals {
            let more = count - before.refusals.get(why).unwrap_or(&0);
            if more > 0 {
                *self.refusals.entry(why.clone()).or_default() += more;
            }
        }
    }

    pub fn fail(&mut self) {
        self.failed += 1;
    }

    /// Adds date, versions and seeds at the end of a run.
    pub fn close(&mut self, first_seed: u64, fleets: u64, took: Duration) {
        self.date = output_of("date", &["-u", "+%F"]);
        self.postgresql = said_by_pg_config("--version").trim_start_matches("PostgreSQL ").to_owned();
        let manifest = fs::read_to_string(top().join("Cargo.toml")).expect("Cargo.toml");
        self.idgen = manifest
            .split('"')
            .skip_while(|part| !part.contains("\nversion ="))
            .nth(1)
            .unwrap_or_default()
            .into();
        if !preloads() {
            self.idgen += " without a preload";
        }
        (self.first_seed, self.last_seed) = (first_seed, first_seed + fleets.saturating_sub(1));
        self.minutes = took.as_secs().div_ceil(60);
    }

    fn merge(&mut self, other: &Tally) {
        self.minutes += other.minutes;
        self.rounds += other.rounds;
        self.ids += other.ids;
        self.calls += other.calls;
        self.horizons += other.horizons;
        self.violations += other.violations;
        self.failed += other.failed;
        for (name, (struck, skipped)) in &other.faults {
            let sum = self.faults.entry(name.clone()).or_default();
            *sum = (sum.0 + struck, sum.1 + skipped);
        }
        for (why, count) in &other.refusals {
            *self.refusals.entry(why.clone()).or_default() += count;
        }
    }

    fn struck(&self) -> u64 {
        self.faults.values().map(|(struck, _)| struck).sum()
    }

    fn refused(&self) -> u64 {
        self.refusals.values().sum()
    }

    fn fleets(&self) -> u64 {
        self.last_seed - self.first_seed + 1
    }

    pub fn brief(&self) -> String {
        format!(
            "{} rounds, {} faults, {} ids, {} refusals, {} violations, {} failed fleets",
            self.rounds,
            grouped(self.struck()),
            grouped(self.ids),
            grouped(self.refused()),
            self.violations,
            self.failed
        )
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds {} to {}: {}", self.first_seed, self.last_seed, self.brief())?;
        for (name, (struck, skipped)) in &self.faults {
            writeln!(
                f,
                "  {struck:6} {name}{}",
                if *skipped > 0 { format!(", {skipped} skipped") } else { String::new() }
            )?;
        }
        writeln!(f, "refused:")?;
        self.refusals.iter().try_for_each(|(why, count)| writeln!(f, "  {count:6} {why}"))
    }
}

/// The page with the tally of all runs, and its data file with a line for each run. In a Debian of scripts/server-root,
/// where the page is read-only, runs go to another file.
pub struct Page {
    page: PathBuf,
    data: PathBuf,
    collected: Option<PathBuf>,
    commit: String,
}

/// The campaign writes the part of the page between these marks.
const MARKS: [&str; 2] = ["<!-- The campaign writes from here -->\n", "<!-- to here -->\n"];

impl Page {
    /// Opens a page of the project. No file may have changed since the last commit, because a run counts for a
    /// commit.
    pub fn open(name: &str) -> Page {
        let changed =
            output_of("git", &["status", "--porcelain", "--", ".", ":!docs/contributing/campaign.*"]);
        assert!(changed.is_empty(), "a run counts for a commit, and there are changes:\n{changed}");
        let page = top().join(name);
        let commit = output_of("git", &["rev-parse", "--short=10", "HEAD"]);
        let is_read_only = fs::OpenOptions::new().append(true).open(&page).is_err();
        let collected = is_read_only.then(|| top().join(".build/campaign.jsonl"));
        Page { data: page.with_extension("jsonl"), page, collected, commit }
    }

    pub fn add(&self, tally: Tally) {
        let tally = Tally { commit: self.commit.clone(), ..tally };
        let to = self.collected.as_ref().unwrap_or(&self.data);
        let mut data = fs::read_to_string(to).unwrap_or_default();
        writeln!(data, "{}", serde_json::to_string(&tally).expect("JSON")).expect("a line");
        fs::write(to, &data).expect("the data of the page");
        match self.collected {
            None => fs::write(&self.page, shown(&self.page, &data)).expect("the page"),
            Some(_) => println!(
                "The page is read-only. Add the last line of {} to {}, and run IDGEN_DRAW=1 cargo test -p idgen-tests \
                 --test cluster the_page_shows_its_data.",
                to.display(),
                self.data.display()
            ),
        }
    }
}

fn shown(page: &Path, data: &str) -> String {
    let runs: Vec<Tally> = data.lines().map(|line| serde_json::from_str(line).expect("a run")).collect();
    with_text(&fs::read_to_string(page).expect("the page"), MARKS, &tables(&runs))
}

/// The page with this text between two marks.
pub fn with_text(page: &str, [from, to]: [&str; 2], text: &str) -> String {
    let (before, rest) = page.split_once(from).expect("where the text begins");
    let (_, after) = rest.split_once(to).expect("where it ends");
    format!("{before}{from}\n{text}\n{to}{after}")
}

fn tables(runs: &[Tally]) -> String {
    let mut all = Tally::default();
    runs.iter().for_each(|run| all.merge(run));
    let fleets: u64 = runs.iter().map(Tally::fleets).sum();
    let mut text = format!(
        "**{} faults, {} ids, {} violations**, in {} rounds of {} fleets and {}:{:02} hours.\n{} calls were \
         answered, of them {} with a horizon; {} were refused.\n\n\
         | PostgreSQL | idgen | campaigns | fleets | hours | rounds | faults | ids | violations | failed fleets |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        grouped(all.struck()),
        grouped(all.ids),
        all.violations,
        grouped(all.rounds),
        grouped(fleets),
        all.minutes / 60,
        all.minutes % 60,
        grouped(all.calls - all.refused()),
        grouped(all.horizons),
        grouped(all.refused()),
    );
    // The version without the name of the package.
    let versions = |run: &Tally| {
        let postgresql = run.postgresql.split(' ').next().unwrap_or_default();
        format!("{postgresql} | {}", run.idgen)
    };
    let mut sums: BTreeMap<String, (Tally, u64, u64)> = BTreeMap::new();
    for run in runs {
        let (sum, campaigns, fleets) = sums.entry(versions(run)).or_default();
        sum.merge(run);
        *campaigns += 1;
        *fleets += run.fleets();
    }
    for (versions, (sum, campaigns, fleets)) in sums {
        let [rounds, faults, ids] = [sum.rounds, sum.struck(), sum.ids].map(grouped);
        text += &format!(
            "| {versions} | {campaigns} | {fleets} | {}:{:02} | {rounds} | {faults} | {ids} | {} | {} |\n",
            sum.minutes / 60,
            sum.minutes % 60,
            sum.violations,
            sum.failed
        );
    }
    let faults = all.faults.iter().map(|(name, (struck, skipped))| {
        let but = if *skipped > 0 { format!(" ({} skipped)", grouped(*skipped)) } else { String::new() };
        format!("{name} {}{but}", grouped(*struck))
    });
    text + "\n" + &paragraph("How often each fault struck:", &faults.collect::<Vec<_>>())
}

/// Items in lines of at most 120 characters.
fn paragraph(beginning: &str, items: &[String]) -> String {
    let mut text = beginning.to_owned();
    let mut length = text.len();
    for (place, item) in (1..).zip(items) {
        let end = if place == items.len() { ".\n" } else { ";" };
        let breaks = length + item.len() + 2 > 120;
        text += if breaks { "\n" } else { " " };
        text += &format!("{item}{end}");
        length = if breaks { 0 } else { length + 1 } + item.len() + 1;
    }
    text
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).expect("digits")).collect();
    groups.join(",")
}

fn output_of(program: &str, args: &[&str]) -> String {
    output_of_run(Command::new(program).args(args).current_dir(top())).trim().to_owned()
}

#[test]
fn the_page_shows_its_data() {
    let page = top().join("docs/contributing/campaign.md");
    let data = fs::read_to_string(page.with_extension("jsonl")).expect("its data");
    let shown = shown(&page, &data);
    if std::env::var_os("IDGEN_DRAW").is_some() {
        fs::write(&page, &shown).expect("the page");
    }
    assert_eq!(fs::read_to_string(&page).expect("the page"), shown);
}
