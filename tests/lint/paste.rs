//! Pastes the shell blocks of the pages into a shell that goes on after an error, as an interactive shell does. After a
//! command that fails, no other may run. In the blocks that install idgen, each command fails once.

use std::collections::BTreeSet;
use std::process::Command;

use crate::markdown::code_blocks;
use crate::{assert_none, files, read};

/// The pages whose blocks are run. In these blocks, `&&` or the end of a line follows each command.
const PAGES: [&str; 2] = ["README.md", "docs/install.md"];

/// The names of the commands of a block, in order.
fn commands(block: &str) -> Vec<String> {
    let lines = block.lines().map(|line| match line.split_once('#') {
        Some((code, _)) if code.is_empty() || code.ends_with(' ') => code,
        _ => line,
    });
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ").replace("&&", "\n");
    let names = code.lines().filter_map(|line| {
        // Assignments of variables may precede the name.
        line.split_whitespace().find(|word| word.starts_with(['.', '/', '"']) || !word.contains('='))
    });
    names.map(str::to_owned).collect()
}

/// Runs a block in which only the given command fails. Returns whether the block succeeds, and how many commands it
/// runs.
fn paste(block: &str, failing: usize) -> (bool, usize) {
    // The shell finds no other program.
    let mut script =
        "PATH=/nowhere\nstep() { echo; calls=$((calls + 1)); [ $calls != \"$FAILING\" ]; }\n".to_owned();
    for name in commands(block).into_iter().collect::<BTreeSet<_>>() {
        script += &format!("function {name} {{ step; }}\n");
    }
    script += block;
    let output = Command::new("bash")
        .args(["--norc", "-c", &script])
        .env("FAILING", failing.to_string())
        .output()
        .expect("bash");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.is_empty(), "{block}\n{said}");
    (output.status.success(), output.stdout.len())
}

#[test]
fn after_a_command_that_fails_nothing_runs() {
    for page in PAGES {
        let text = read(page);
        let blocks = code_blocks(&text).into_iter().filter(|(_, language, _)| *language == "sh");
        let mut several = 0;
        for (line, _, block) in blocks {
            let block = block.join("\n");
            let count = commands(&block).len();
            several += usize::from(count > 1);
            assert_eq!(paste(&block, 0), (true, count), "{page}:{line}");
            for failing in 1..=count {
                assert_eq!(
                    paste(&block, failing),
                    (false, failing),
                    "{page}:{line}: command {failing} fails"
                );
            }
        }
        assert!(several > 0, "{page} has no block of several commands");
    }
}

/// The test above detects a block that goes on, and accepts a correct one.
#[test]
fn a_block_that_goes_on_is_found() {
    let harmless = "sudo a b &&    # c && d\n/e/f#g h && cd i &&\nX=y ./j \\\n    k";
    assert_eq!(commands(harmless), ["sudo", "/e/f#g", "cd", "./j"]);
    assert_eq!(paste(harmless, 0), (true, 4));
    assert_eq!(paste(harmless, 3), (false, 3));
    assert_eq!(paste("a &&\nb\nc", 1), (true, 2));
    assert_eq!(paste("a\nb", 1), (true, 2));
}

/// The fault in a pasted block. A correct block is a subshell that ends at an error, the definition of a function, a
/// single command, or several commands with `&&` between them.
fn complaint(block: &[&str]) -> Option<&'static str> {
    let block: Vec<&str> = block.iter().filter(|line| !line.starts_with('#')).copied().collect();
    let [first, inner @ .., last] = &block[..] else {
        // Only outside of quotes.
        let several = block.iter().any(|line| line.split('"').step_by(2).any(|part| part.contains(';')));
        return several.then_some("goes on after an error");
    };
    if *last == ")" && (first.starts_with("(set -eu") || *first == "sql() (") {
        let pipes = inner.iter().any(|line| line.replace("||", "").contains('|'));
        return (pipes && !first.contains("pipefail")).then_some("goes on after an error before a pipe");
    }
    if block.iter().any(|line| line.trim_start().starts_with("export ")) {
        return Some("leaves a variable in the person's shell");
    }
    let of_one = |line: &&str| {
        let code = line.split("    #").next().unwrap_or_default().trim_end();
        code.ends_with("&&") || code.ends_with('\\') || code.ends_with('|')
    };
    let is_text = *last == "END" && first.ends_with("<<'END'") && !inner.contains(&"END");
    // A command for each schema, in a transaction: the next schema may follow a failed one.
    let is_each = first.starts_with("for ") && *last == "done" && inner[0].contains(" -1 ");
    let is_one =
        if is_each { &inner[..inner.len() - 1] } else { &block[..block.len() - 1] }.iter().all(of_one);
    (!is_text && !is_one).then_some("goes on after an error")
}

#[test]
fn no_block_goes_on_after_an_error() {
    let pages = ["README.md", "CONTRIBUTING.md"].map(String::from).into_iter();
    let pages =
        pages.chain(["docs", "portable", "crates"].into_iter().flat_map(|folder| files(folder, ".md")));
    let complaints = pages.flat_map(|page| {
        let text = read(&page);
        let blocks = code_blocks(&text).into_iter().filter(|(_, language, _)| *language == "sh");
        let wrong = blocks.filter_map(|(line, _, block)| Some((line, complaint(&block)?)));
        wrong.map(|(line, what)| format!("{page}:{line}: the block {what}")).collect::<Vec<_>>()
    });
    // This is a plain text, whose blocks are indented.
    let text = read("packaging/debian/README.Debian");
    let blocks = text.split("\n\n").filter(|paragraph| paragraph.contains("    sudo "));
    let blocks: Vec<Vec<&str>> = blocks.map(|block| block.lines().map(str::trim).collect()).collect();
    let wrong =
        blocks.iter().filter_map(|block| Some(format!("README.Debian: {}: {}", block[0], complaint(block)?)));
    assert!(!blocks.is_empty());
    assert_none(&complaints.chain(wrong).collect::<Vec<_>>());
}

#[test]
fn a_block_that_would_go_on_is_found() {
    for block in [
        "(set -eu\npg_rewind || exit\npg_ctl start\n)",
        "(set -euo pipefail\na | b\nexport A=b\nc\n)",
        "sql <<'END'\nSELECT 1;\nSELECT 2;\nEND",
        "pg_ctl stop &&    # so\n    mv a \\\n        b",
        "psql <<<\"SELECT 1; SELECT 2\"",
        "for shard in 1 2; do\n    psql -1 -f a.sql \\\n        -f b.sql\ndone",
    ] {
        assert_eq!(complaint(&block.lines().collect::<Vec<_>>()), None, "{block}");
    }
    for (block, what) in [
        ("pg_rewind\npg_ctl start", "after an error"),
        ("pg_rewind; pg_ctl start", "after an error"),
        ("(set -eu\npg_rewind\n)\npg_ctl start", "after an error"),
        // The shell ignores set -e before `&&`.
        ("(set -eu\npg_rewind\npg_ctl start\n) && unset one", "after an error"),
        ("(set -eu\na | b\nc\n)", "before a pipe"),
        ("sql <<'END'\nSELECT 1\nEND\nsql <<'END'\nSELECT 2\nEND", "after an error"),
        ("for part in a b; do\n    psql -f $part\ndone", "after an error"),
        ("for part in a b; do\n    psql -1 -f a\n    psql -1 -f b\ndone", "after an error"),
        ("export A=b &&\npsql", "leaves a variable"),
    ] {
        let found = complaint(&block.lines().collect::<Vec<_>>());
        assert!(found.is_some_and(|found| found.contains(what)), "{block}: {found:?}");
    }
}
