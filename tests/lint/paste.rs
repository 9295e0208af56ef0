//! The blocks of the shell that install idgen, pasted into a shell that goes on after an error, as an interactive one does.
//! Each command of a block fails once, and then none runs after it.

use std::collections::BTreeSet;
use std::process::Command;

use crate::markdown::code_blocks;
use crate::read;

/// The pages whose blocks are pasted. In their blocks, `&&` or the end of a line comes after each command.
const PAGES: [&str; 2] = ["README.md", "docs/install.md"];

/// The names of the commands of a block, in their order.
fn commands(block: &str) -> Vec<String> {
    let lines = block.lines().map(|line| match line.split_once('#') {
        Some((code, _)) if code.is_empty() || code.ends_with(' ') => code,
        _ => line,
    });
    let code = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ").replace("&&", "\n");
    let names = code.lines().filter_map(|line| {
        // Before the name there may be variables.
        line.split_whitespace().find(|word| word.starts_with(['.', '/', '"']) || !word.contains('='))
    });
    names.map(str::to_owned).collect()
}

/// Whether a block succeeds, and how many commands it runs, if every command succeeds but for this one, which fails.
fn paste(block: &str, failing: usize) -> (bool, usize) {
    // No other program is found.
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

/// The test above detects a block that goes on, and none that is right.
#[test]
fn a_block_that_goes_on_is_found() {
    let harmless = "sudo a b &&    # c && d\n/e/f#g h && cd i &&\nX=y ./j \\\n    k";
    assert_eq!(commands(harmless), ["sudo", "/e/f#g", "cd", "./j"]);
    assert_eq!(paste(harmless, 0), (true, 4));
    assert_eq!(paste(harmless, 3), (false, 3));
    assert_eq!(paste("a &&\nb\nc", 1), (true, 2));
    assert_eq!(paste("a\nb", 1), (true, 2));
}
