//! Everything that GitHub's workflows call exists, and is pinned. They run only on GitHub, so a renamed target or a
//! hijacked action would show up only on the day of a release.

use yaml_rust2::Yaml;

use crate::kubernetes::parse;
use crate::{assert_none, files, read, regex, top};

/// Whether a call of `make` or of a script, judged by its first two words, calls something that exists.
fn is_there(program: &str, argument: &str) -> bool {
    let defines = |function: &str| read(program).contains(&format!("\n{function}() {{"));
    match program {
        "make" => {
            !argument.is_empty() && format!("\n{}", read("Makefile")).contains(&format!("\n{argument}:"))
        }
        "scripts/test" | "scripts/test-package" => defines(&format!("test_{argument}")),
        "scripts/ci" | "scripts/release" => defines(argument),
        _ => !program.starts_with("scripts/") || top().join(program).is_file(),
    }
}

fn complaints(path: &str, workflow: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, job) in parse(path, workflow)["jobs"].as_hash().expect("jobs") {
        let name = name.as_str().expect("a name");
        // If a job calls another workflow, that workflow limits it.
        if job["uses"].is_badvalue() && job["timeout-minutes"].is_badvalue() {
            complaints.push(format!("{path}: the job {name} has no timeout-minutes"));
        }
        let steps: &[Yaml] = job["steps"].as_vec().map_or(&[], |steps| steps);
        for action in steps.iter().chain([job]).filter_map(|step| step["uses"].as_str()) {
            let own = action.strip_prefix("./").is_some_and(|path| top().join(path).exists());
            if !own && !regex("^[^.@][^@]*@[0-9a-f]{40}$").is_match(action) {
                complaints.push(format!("{path}: {name}: {action} is not pinned, or not there"));
            }
        }
        let lines = steps.iter().filter_map(|step| step["run"].as_str()).flat_map(str::lines);
        for line in lines.filter(|line| !line.trim_start().starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().chain([""]).collect();
            let wrong = words.windows(2).filter(|call| !is_there(call[0], call[1]));
            complaints.extend(wrong.map(|call| format!("{path}: {name}: there is no {}", call.join(" "))));
        }
    }
    complaints
}

#[test]
fn workflows_call_what_there_is() {
    let paths = files(".github/workflows", ".yml");
    assert!(paths.len() > 1, "{paths:?}");
    assert_none(&paths.iter().flat_map(|path| complaints(path, &read(path))).collect::<Vec<_>>());
}

#[test]
fn a_workflow_that_is_wrong_is_found() {
    let workflow = "\
jobs:
  first:
    timeout-minutes: 5
    steps:
      - uses: actions/checkout@v7
      - uses: actions/checkout@3d3c42e5
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
      - run: make test
      - run: make tests
      - run: |
          # make nothing
          scripts/build && scripts/built
          scripts/test lints && scripts/test nothing
          scripts/ci rust && scripts/ci rest
  second:
    steps: [{ run: make, timeout-minutes: 5 }]
  third:
    uses: ./.github/workflows/none.yml
";
    let found = complaints("w", workflow).join("\n");
    let wrong =
        ["checkout@v7", "checkout@3d3c42e5 ", "make tests", "scripts/built", "test nothing", "ci rest"];
    for part in wrong.into_iter().chain(["second: there is no make", "job second has no", "none.yml"]) {
        assert!(found.contains(part), "{part}:\n{found}");
    }
    assert_eq!(found.lines().count(), 9, "{found}");
}
