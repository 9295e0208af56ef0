//! `idgenctl check`: shows a line for each server, and everything that could stop minting or repeat ids.

// From top to bottom; none uses one above it.
mod fleet_rules;
mod server_rules;
mod look;
mod finding;
mod facts;
mod table;

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::cli::{Check, Cli};
use crate::terminal::error::Result;
use crate::terminal::output::{self, plain, span};
use crate::topology::fleet::Fleet;

use facts::Facts;
use finding::Finding;
use table::{Severity, TWO_PRIMARIES};

/// The check cannot see these, so it does not claim that all is well.
const NOT_SEEN: &str = "nothing found. Not seen: servers that are not in the fleet, ids passed over since a backup, time \
                        daemons, and whether a disk keeps what it has flushed. Nothing was minted: test that by \
                        snowflake_check() in a database of your own.";

pub fn run(cli: &Cli, arguments: &Check) -> Result<u8> {
    // A look at a server that is too slow goes on until the program ends.
    let fleet: &Fleet = Box::leak(Box::new(Fleet::load(cli)?));
    let names: Vec<&str> = fleet.servers.iter().map(|server| server.name.as_str()).collect();
    let (mut all, mut findings) = (Vec::new(), Vec::new());
    for look in fleet.each(look::at) {
        match look {
            Ok(facts) => all.push(facts),
            Err(finding) => findings.push(*finding),
        }
    }
    let ignored: Vec<&String> = arguments.ignore.iter().chain(&fleet.ignore).collect();
    let counts = |Finding { id, server, .. }: &Finding| {
        !ignored.iter().any(|text| *text == id || **text == format!("{id}:{server}"))
    };
    let whole = !findings.iter().any(counts);
    let lines: Vec<Value> = names.iter().map(|name| line(name, &all)).collect();
    findings.extend(fleet_rules::judge(&all, &names, whole, counts));
    let number = findings.iter().filter(|finding| !counts(finding)).count();
    findings.retain(counts);
    // All other hints assume that only one of the primaries has clients.
    if findings.iter().any(|finding| finding.id == TWO_PRIMARIES.id) {
        let others = findings.iter_mut().filter(|finding| finding.id != TWO_PRIMARIES.id);
        others.for_each(|finding| finding.hint.clear());
    }
    let order = |name: &str| names.iter().position(|other| *other == name);
    findings.sort_by_key(|finding| (finding.severity, order(&finding.server)));
    show(arguments.json, &lines, &findings, number)?;
    Ok(match findings.first().map(|finding| finding.severity) {
        Some(Severity::Error) => 3,
        Some(Severity::Warning) => 5,
        Some(Severity::Note) | None => 0,
    })
}

fn show(json: bool, lines: &[Value], findings: &[Finding], ignored: usize) -> Result {
    if json {
        let value = json!({ "servers": lines, "findings": findings, "ignored": ignored });
        return output::print(output::json(&value));
    }
    let mut table = Table::new();
    let header = ["server", "role", "PostgreSQL", "idgen", "shards", "mark", "ids/s"];
    table.load_style(presets::NOTHING).set_header(header);
    for line in lines {
        let text = |key: &str| plain(line[key].as_str().unwrap_or_default());
        let mark = match line["mark_ahead_s"].as_f64() {
            Some(ahead) if ahead < 0.0 => format!("{} behind", span(-ahead)),
            Some(ahead) => format!("{} ahead", span(ahead)),
            None => String::new(),
        };
        let rate = line["ids_per_second"].as_f64().map(|rate| format!("{rate:.0}")).unwrap_or_default();
        let texts = ["server", "role", "postgresql", "idgen", "shards"].map(text);
        table.add_row(texts.into_iter().chain([mark, rate]));
    }
    output::print(table.trim_fmt())?;
    for finding in findings {
        output::print(finding.line())?;
    }
    if ignored > 0 {
        output::print(format!("{ignored} ignored"))?;
    }
    if findings.is_empty() { output::print(NOT_SEEN) } else { Ok(()) }
}

/// A server's line of the table.
fn line(name: &str, all: &[Facts]) -> Value {
    let Some(facts) = all.iter().find(|facts| facts.name == name) else {
        return json!({ "server": name, "role": "not seen" });
    };
    let state = facts.state.as_ref();
    json!({
        "server": name,
        "role": if facts.node.is_standby { "standby" } else { "primary" },
        "postgresql": format!("{}.{}", facts.version / 10_000, facts.version % 10_000),
        "idgen": state.map(|state| &state.version),
        "shards": facts.shards.map(|shards| shards.to_string()),
        "closed": state.and_then(|state| state.closed_shards.as_ref()),
        "mark_ahead_s": facts.mark_ahead_s,
        "ids_per_second": facts.ids_per_second,
    })
}
