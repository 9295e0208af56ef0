//! Everything that GitHub's workflows call exists, and is pinned. They run only on GitHub, so a renamed target or a
//! hijacked action would show up only on the day of a release.

use std::collections::BTreeSet;

use crate::{assert_none, files, read, top};

/// The error in a call of `make` or of a script, judged by its first two words.
fn wrong_call(program: &str, argument: &str) -> Option<String> {
    let defines = |function: String| read(program).contains(&format!("\n{function}() {{"));
    let is_there = match program {
        "make" => read("Makefile").lines().any(|line| {
            line.strip_prefix(argument).is_some_and(|rest| rest.starts_with(':') && !argument.is_empty())
        }),
        "scripts/test" | "scripts/test-package" => defines(format!("test_{argument}")),
        "scripts/ci" | "scripts/release" => defines(argument.to_owned()),
        script if script.starts_with("scripts/") => top().join(script).is_file(),
        _ => true,
    };
    (!is_there).then(|| format!("there is no {program} {argument}"))
}

/// Whether an action is in this checkout, or pinned by a full commit hash, with its version in a comment.
fn is_pinned(action: &str) -> bool {
    if let Some(path) = action.strip_prefix("./") {
        return top().join(path).exists();
    }
    let Some((_, pin)) = action.split_once('@') else { return false };
    let Some((commit, version)) = pin.split_once(" # v") else { return false };
    commit.len() == 40
        && commit.chars().all(|c| c.is_ascii_hexdigit())
        && version.starts_with(|c: char| c.is_ascii_digit())
}

fn complaints(path: &str, workflow: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut is_jobs = false;
    let mut unlimited: Option<(usize, &str)> = None; // the job at hand, until its time is limited
    let endless = |(line, job)| format!("{path}:{line}: the job {job} has no timeout-minutes");
    for (line, text) in workflow.lines().enumerate() {
        let line = line + 1;
        let indent = text.len() - text.trim_start().len();
        let text = text.trim().trim_start_matches("- ");
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        is_jobs |= indent == 0 && text == "jobs:";
        if is_jobs && indent == 2 {
            complaints.extend(unlimited.replace((line, text.trim_end_matches(':'))).map(endless));
        }
        // If a job calls another workflow, that workflow limits it.
        if indent == 4 && (text.starts_with("timeout-minutes: ") || text.starts_with("uses: ./")) {
            unlimited = None;
        }
        if let Some(action) = text.strip_prefix("uses: ")
            && !is_pinned(action)
        {
            complaints.push(format!("{path}:{line}: {action} is not pinned, or not there"));
        }
        let code = text.split(" # ").next().unwrap_or_default();
        let words: Vec<&str> = code.split_whitespace().chain([""]).collect();
        let wrong = words.windows(2).filter_map(|call| wrong_call(call[0], call[1]));
        complaints.extend(wrong.map(|wrong| format!("{path}:{line}: {wrong}")));
    }
    complaints.extend(unlimited.map(endless));
    complaints
}

#[test]
fn workflows_call_what_there_is() {
    let paths = files(".github/workflows", ".yml");
    assert!(paths.len() > 1, "{paths:?}");
    let found: Vec<String> = paths.iter().flat_map(|path| complaints(path, &read(path))).collect();
    assert_none(&found);
}

/// The test above detects each error in a workflow, and accepts a correct one.
#[test]
fn a_workflow_that_is_wrong_is_found() {
    let workflow = "\
on: push
jobs:
  first:
    timeout-minutes: 5
    steps:
      - uses: actions/checkout@v7
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1
      - uses: actions/checkout@3d3c42e5 # v7
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - run: make test
      - run: make tests
      - run: |
          # make nothing
          scripts/build && scripts/built
          scripts/test lints
          scripts/test nothing
          scripts/ci rust && scripts/ci rest
  second:
    steps:
      - run: make
  third:
    uses: ./.github/workflows/none.yml
  fourth:
    steps:
      - timeout-minutes: 5
";
    let found = complaints("w", workflow);
    let lines: BTreeSet<usize> =
        found.iter().filter_map(|complaint| complaint.split(':').nth(1)?.parse().ok()).collect();
    assert_eq!(lines, BTreeSet::from([6, 7, 8, 11, 14, 16, 17, 18, 20, 22, 23]), "{found:#?}");
}
