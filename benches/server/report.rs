//! The parts of the README and of pages of docs/ that the benchmarks write.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Instant;

use postgres::Client;

use crate::measure::Spread;
use crate::value;

/// The pages. The benchmarks replace their parts between `<!-- NAME: ... -->` and `<!-- end of NAME -->`.
pub struct Report {
    quick: bool,
    /// The folder to write the pages to. It is not the repository if the run is quick, or if the repository is
    /// read-only, as under scripts/server-root.
    folder: &'static Path,
    pages: [(&'static str, String); 4],
    machine: String,
    start: Instant,
    /// The requirements on the figures, as rows of a table.
    demands: Vec<[String; 5]>,
}

impl Report {
    pub fn new(quick: bool, client: &mut Client) -> Report {
        let is_read_only = OpenOptions::new().append(true).open("docs/performance.md").is_err();
        let folder = Path::new(if quick || is_read_only { ".build/bench" } else { "." });
        for made in ["docs/plots", "docs/contributing"] {
            fs::create_dir_all(folder.join(made)).expect(made);
        }
        let pages = ["docs/performance.md", "docs/contributing/costs.md", "docs/choosing.md", "README.md"]
            .map(|page| (page, fs::read_to_string(page).expect(page)));
        let machine = machine(client);
        Report { quick, folder, pages, machine, start: Instant::now(), demands: Vec::new() }
    }

    pub fn plot(&self, name: &str) -> PathBuf {
        self.folder.join("docs/plots").join(name)
    }

    pub fn put(&mut self, name: &str, text: &str) {
        println!("\n{text}");
        let [begin, end] = [format!("<!-- {name}: "), format!("<!-- end of {name} -->")];
        let (page, begin) = self
            .pages
            .iter_mut()
            .find_map(|(_, page)| page.find(&begin).map(|place| (page, place)))
            .unwrap_or_else(|| panic!("no page has {begin}"));
        let begin = begin + page[begin..].find('\n').expect("the end of a line") + 1;
        let end = page.find(&end).unwrap_or_else(|| panic!("no page has {end}"));
        page.replace_range(begin..end, text);
    }

    /// Demands that figures are "at most" or "at least" a bound, which a unit may follow. The name of a ratio is that
    /// of a metric and, after a bar, its baseline.
    pub fn demand(&mut self, what: &str, target: &str, figures: &[f64]) {
        let words: Vec<_> = target.splitn(4, ' ').collect();
        let bound: f64 = words[2].parse().expect(target);
        let holds = figures.iter().all(|figure| match words[1] {
            "least" => *figure >= bound,
            // A figure below 0 is noise: the empty scan took longer.
            _ => (0.0..=bound).contains(figure),
        });
        let text = |figure: &f64| match words.get(3) {
            None => ratio(*figure),
            Some(unit) => format!("{} {unit}", number(*figure)),
        };
        let figures = figures.iter().map(text).collect::<Vec<_>>().join(", ");
        let holds = if holds { "holds" } else { "**does not hold**" };
        let (metric, baseline) = what.split_once(" | ").unwrap_or((what, ""));
        self.demands.push([metric, baseline, target, &figures, holds].map(str::to_owned));
    }

    /// Writes the part about the machine, and about the run so far.
    pub fn machine(&self) -> String {
        let minutes = self.start.elapsed().as_secs().div_ceil(60);
        let warning = "**A quick run with few rounds and few rows. Do not rely on its figures.**\n";
        let warning = if self.quick { warning } else { "" };
        format!("{}; the run took {minutes} min.\n{warning}", self.machine)
    }

    /// Writes the pages, with the requirements, if there are any, and the part about the machine.
    pub fn finish(&mut self, name: &str) {
        if !self.demands.is_empty() {
            let demands = table("metric | baseline | target | ratio or figure |", &self.demands);
            self.put(&format!("{name} requirements"), &demands);
        }
        self.put(&format!("{name} machine"), &self.machine());
        for (page, text) in &self.pages {
            fs::write(self.folder.join(page), text).expect(page);
        }
        println!("== {}/docs after {} s", self.folder.display(), self.start.elapsed().as_secs());
    }
}
/// The versions and the machine, determined before the benchmark loads it.
fn machine(client: &mut Client) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let cpu = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let text = "SELECT 'idgen ' || extversion || ', PostgreSQL ' || current_setting('server_version')
                FROM pg_extension WHERE extname = 'idgen'";
    format!(
        "{}, {} cores of {},\nLinux {}, on {}; the load average was {} before",
        value::<String>(client, text),
        cores(),
        cpu.map_or("an unknown CPU", |(_, name)| name),
        read("/proc/sys/kernel/osrelease").trim(),
        value::<String>(client, "SELECT now()::date::text"),
        read("/proc/loadavg").split(' ').next().unwrap_or("unknown"),
    )
}

/// The number of this machine's cores that backends can use.
pub fn cores() -> usize {
    available_parallelism().map_or(1, |cores| cores.get())
}

/// A Markdown table. Bars separate the heads.
pub fn table(heads: &str, rows: impl IntoIterator<Item = impl AsRef<[String]>>) -> String {
    let mut text = format!("| {heads} |\n{}|\n", "|---".repeat(heads.split('|').count()));
    for cells in rows {
        text += &format!("| {} |\n", cells.as_ref().join(" | "));
    }
    text
}

/// A ratio or a number of cores.
pub fn ratio(value: f64) -> String {
    if value < 10.0 { format!("{value:.3}") } else { format!("{value:.1}") }
}

/// A number with at least three digits, in groups of three.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    let mut text = format!("{value:.digits$}");
    let mut place = text.find('.').unwrap_or(text.len());
    while place > 3 && text.as_bytes()[place - 4].is_ascii_digit() {
        place -= 3;
        text.insert(place, ',');
    }
    text
}

pub fn spread(spread: Spread) -> String {
    let [median, least, greatest] = [spread.median, spread.least, spread.greatest].map(number);
    format!("{median} ({least}–{greatest})")
}
