//! The blocks of code on pages that people paste into a shell, which goes on after an error. No command of theirs may
//! run after one that fails, and those for administrators must do no harm on servers of others.

use crate::markdown::code_blocks;
use crate::{assert_none, files, read};

/// The fault in a pasted block of the shell. A correct block is a subshell that ends at an error, the definition of a
/// function, a single command, or several commands with `&&` between them.
fn goes_on(block: &[&str]) -> Option<&'static str> {
    let block: Vec<&str> = block.iter().filter(|line| !line.starts_with('#')).copied().collect();
    let (first, last) = (*block.first()?, *block.last()?);
    if last == ")" && (first.starts_with("(set -eu") || first == "sql() (") {
        let pipes = block.iter().any(|line| line.replace("||", "").contains('|'));
        return (pipes && !first.contains("pipefail")).then_some("goes on after an error before a pipe");
    }
    if block.iter().any(|line| line.trim_start().starts_with("export ")) {
        return Some("leaves a variable in the person's shell");
    }
    if last == "END" && first.ends_with("<<'END'") && block.iter().filter(|line| **line == "END").count() == 1
    {
        return None;
    }
    // A command for each schema, in a transaction: the next schema may follow a failed one.
    let is_each = first.starts_with("for ") && last == "done" && block[1].contains(" -1 ");
    let lines = if is_each { &block[1..block.len() - 1] } else { &block[..] };
    let codes: Vec<&str> =
        lines.iter().filter_map(|line| Some(line.split("    #").next()?.trim_end())).collect();
    // Only outside of quotes.
    let several = codes.iter().any(|code| code.split('"').step_by(2).any(|part| part.contains(';')));
    let of_one = |code: &&str| ["&&", "\\"].iter().any(|end| code.ends_with(end));
    (several || !codes[..codes.len() - 1].iter().all(of_one)).then_some("goes on after an error")
}

#[test]
fn no_block_goes_on_after_an_error() {
    let pages = ["README.md", "CONTRIBUTING.md"].map(String::from).into_iter();
    let pages =
        pages.chain(["docs", "portable", "crates"].into_iter().flat_map(|folder| files(folder, ".md")));
    let mut complaints = Vec::new();
    for page in pages {
        let text = read(&page);
        for (line, _, block) in code_blocks(&text).iter().filter(|(_, language, _)| *language == "sh") {
            complaints.extend(goes_on(block).map(|what| format!("{page}:{line}: the block {what}")));
        }
    }
    // This is a plain text, whose blocks are indented.
    let text = read("packaging/debian/README.Debian");
    for block in text.split("\n\n").filter(|paragraph| paragraph.contains("    sudo ")) {
        let block: Vec<&str> = block.lines().map(str::trim).collect();
        complaints.extend(goes_on(&block).map(|what| format!("README.Debian: {}: {what}", block[0])));
    }
    assert_none(&complaints);
}

#[test]
fn a_block_that_would_go_on_is_found() {
    for (block, what) in [
        ("(set -eu\npg_rewind || exit\npg_ctl start\n)", ""),
        ("sql <<'END'\nSELECT 1;\nSELECT 2;\nEND", ""),
        ("pg_ctl stop &&    # so\n    mv a \\\n        b", ""),
        ("psql <<<\"SELECT 1; SELECT 2\"", ""),
        ("for shard in 1 2; do\n    psql -1 -f a.sql \\\n        -f b.sql\ndone", ""),
        ("pg_rewind\npg_ctl start", "after an error"),
        ("a &&\npg_rewind; pg_ctl start", "after an error"),
        // The shell ignores set -e before `&&`.
        ("(set -eu\npg_rewind\npg_ctl start\n) && unset one", "after an error"),
        ("(set -eu\na | b\nc\n)", "before a pipe"),
        ("sql <<'END'\nSELECT 1\nEND\nsql <<'END'\nSELECT 2\nEND", "after an error"),
        ("for part in a b; do\n    psql -1 -f a\n    psql -1 -f b\ndone", "after an error"),
        ("export A=b &&\npsql", "leaves a variable"),
    ] {
        let found = goes_on(&block.lines().collect::<Vec<_>>()).unwrap_or_default();
        assert!(found.contains(what) && found.is_empty() == what.is_empty(), "{block}: {found}");
    }
}

/// The runbooks, and the other pages with blocks that an administrator pastes.
const RUNBOOKS: &str = "docs/operations.md";
const OTHERS: [&str; 4] = ["README.md", "docs/install.md", "docs/kubernetes.md", "docs/scaling.md"];

/// The faults in blocks for administrators on a page.
fn blocks_that_do_harm(path: &str, page: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, language, block) in code_blocks(page) {
        let text = block.join("\n");
        let has = |part: &str| text.contains(part);
        let variable = |rest: &str| rest.starts_with(|c: char| c.is_ascii_alphabetic());
        let faults = [
            // With a plain psql, names without a schema may find objects that the owner of a database has planted.
            (
                has("cnpg psql") && !has("options=-csearch_path=pg_catalog"),
                "psql has the search_path of the database",
            ),
            (
                has("psql ") && !has("export PGOPTIONS='-c search_path=pg_catalog'") && !has(" -f docs/"),
                "psql has the search_path of the database",
            ),
            // The page's own function checks that it is given a server.
            (
                language == "sh"
                    && !has("(set -eu")
                    && text.replace("sql \"$", "").split("\"$").skip(1).any(variable),
                "a variable may be unset",
            ),
            (!matches!(language, "sh" | "text" | "toml"), "a block for psql goes on after an error"),
            // The scripts of docs/examples find the schema of idgen, and check whether it can be trusted.
            (has("snowflake_") || has("idgen_") || has("shard_of("), "idgen's functions are for scripts"),
        ];
        let checked = if path == RUNBOOKS { &faults[1..] } else { &faults[..1] };
        let found = checked.iter().filter(|(is_there, _)| *is_there);
        complaints.extend(found.map(|(_, fault)| format!("{path}:{number}: {fault}")));
    }
    complaints
}

#[test]
fn blocks_for_administrators_do_no_harm() {
    let pages = OTHERS.into_iter().chain([RUNBOOKS]);
    assert_none(&pages.flat_map(|path| blocks_that_do_harm(path, &read(path))).collect::<Vec<_>>());
}

#[test]
fn a_block_that_does_harm_is_found() {
    for (block, complaint) in [
        ("sh\nsql \"$one\" <<<\"ALTER SYSTEM SET a = 1; SELECT pg_reload_conf()\"", ""),
        ("sh\npsql -X -f docs/examples/a.sql", ""),
        ("sh\npsql -c 'SELECT 1'", "search_path"),
        ("sh\npg_isready -d \"$one\"", "unset"),
        ("sh\nsql <<<'TABLE idgen.idgen_status'", "for scripts"),
        ("sql\nSELECT 1", "for psql"),
    ] {
        let found = blocks_that_do_harm(RUNBOOKS, &format!("```{block}\n```")).join("\n");
        assert!(found.contains(complaint) && found.is_empty() == complaint.is_empty(), "{block}: {found}");
    }
    assert_eq!(blocks_that_do_harm(OTHERS[2], "```sh\nkubectl cnpg psql one -- app\n```").len(), 1);
}
