//! The parts that the benchmarks write into docs/performance.md and the README.

use std::fs;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Instant;

use postgres::Client;

use crate::measure::Spread;
use crate::value;

const PAGE: &str = "docs/performance.md";

/// A page whose parts are replaced, each between `<!-- NAME: ... -->` and `<!-- end of NAME -->`.
pub struct Report {
    quick: bool,
    page: String,
    machine: String,
    start: Instant,
    /// The requirements on the figures, as rows of a table.
    demands: Vec<[String; 4]>,
}

impl Report {
    pub fn new(quick: bool, client: &mut Client) -> Report {
        let page = fs::read_to_string(PAGE).expect(PAGE);
        Report { quick, page, machine: machine(client), start: Instant::now(), demands: Vec::new() }
    }

    /// The folder for the page and the folder of its plots. That of a quick run is not the one in the repository.
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(if self.quick { ".build/bench" } else { "docs" })
    }

    pub fn plot(&self, name: &str) -> PathBuf {
        let plots = self.folder().join("plots");
        fs::create_dir_all(&plots).expect("a folder for plots");
        plots.join(name)
    }

    pub fn put(&mut self, name: &str, text: &str) {
        println!("\n{text}");
        replace(&mut self.page, name, text);
    }

    /// Demands ratios that are not above the bound.
    pub fn at_most(&mut self, what: &str, bound: f64, ratios: &[f64]) {
        self.within(what, bound, "", ratios);
    }

    /// Demands figures that are not above the bound. A figure below 0 is noise, because the empty scan took longer.
    pub fn within(&mut self, what: &str, bound: f64, unit: &str, figures: &[f64]) {
        let holds = figures.iter().all(|figure| (0.0..=bound).contains(figure));
        self.demand(what, format!("at most {bound}{unit}"), unit, figures, holds);
    }

    /// Demands ratios that are not below the bound.
    pub fn at_least(&mut self, what: &str, bound: f64, figures: &[f64]) {
        let holds = figures.iter().all(|figure| *figure >= bound);
        self.demand(what, format!("at least {bound}"), "", figures, holds);
    }

    fn demand(&mut self, what: &str, target: String, unit: &str, figures: &[f64], holds: bool) {
        let text = |figure: &f64| match unit {
            "" => ratio(*figure),
            _ => number(*figure) + unit,
        };
        let figures = figures.iter().map(text).collect::<Vec<_>>().join(", ");
        let holds = if holds { "holds" } else { "**does not hold**" };
        self.demands.push([what.to_owned(), target, figures, holds.to_owned()]);
    }

    /// Writes the page with the requirements and a part on the machine. Returns this part.
    pub fn finish(mut self, name: &str) -> String {
        let demands = table("what | target | measured | ", std::mem::take(&mut self.demands));
        self.put(&format!("{name} requirements"), &demands);
        let minutes = self.start.elapsed().as_secs().div_ceil(60);
        let mut machine = format!("{}; the run took {minutes} min.\n", self.machine);
        if self.quick {
            machine += "**A quick run with few rounds and few rows. Do not rely on its figures.**\n";
        }
        self.put(&format!("{name} machine"), &machine);
        let path = self.folder().join("performance.md");
        fs::write(&path, self.page).expect(PAGE);
        println!("== {} after {} s", path.display(), self.start.elapsed().as_secs());
        machine
    }
}

pub fn replace(page: &mut String, name: &str, text: &str) {
    let [begin, end] = [format!("<!-- {name}: "), format!("<!-- end of {name} -->")]
        .map(|mark| page.find(&mark).unwrap_or_else(|| panic!("the page has no {mark}")));
    let begin = begin + page[begin..].find('\n').expect("the end of a line") + 1;
    page.replace_range(begin..end, text);
}

/// The versions and the machine, before the benchmark loads it.
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

/// The cores of this machine that backends can have.
pub fn cores() -> usize {
    available_parallelism().map_or(1, |cores| cores.get())
}

/// A Markdown table. The heads are separated by bars.
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

/// A number with three digits at least, in groups of three.
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
