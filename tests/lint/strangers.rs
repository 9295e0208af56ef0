//! A superuser's statements on objects of others must not run anything of theirs. This checks as much of the rule in
//! CONTRIBUTING.md as is visible in a line of a script.

use std::collections::BTreeMap;

use crate::markdown::code_blocks;
use crate::{assert_none, files, read};

/// Known or harmless findings, by file and kind.
const KNOWN: [(&str, &str, usize); 2] = [
    // Tables of the session's own role, according to the catalogs.
    ("docs/examples/convert.sql", READS, 15),
    // Tables and a function, whose owners have at least the rights of the session.
    ("docs/examples/from-plpgsql.sql", READS, 2),
];

const PATH: &str = "reads a catalog before it has set the search_path to pg_catalog";
const READS: &str =
    "reads a table by its name, and so runs its view, its indexes or its policies; COPY does not";
const CONNECTS: &str = "connects to a database by its name, which may say another server";
const EVALUATES: &str = "evaluates a text";
const SPLITS: &str = "splits a line, in which names may contain the separator";
const BODY: &str = "a function whose body is parsed when it is called has no search_path of its own";
const DECLARES: &str =
    "a procedure declares or evaluates by a name without a schema before it sets the search_path";
const COMPUTES: &str = "computes statements before it has set the search_path to pg_catalog";
const SENDS: &str = "sends a text to other servers with a name or an operator without a schema";

/// The files that administrators run, with their texts. The parts of the install script count as one file.
fn scripts() -> Vec<(String, String)> {
    let paths = files("docs/examples", ".sql").into_iter().chain(files("docs/examples", ".sh"));
    let paths = paths
        .chain(["portable/idgen.sql", "portable/take.sql"].map(String::from))
        .chain(files("sql", ".sql"));
    // The install script and the update script have three parts each.
    let folders = ["sql/takeover/", "sql/update/"];
    let is_part =
        |path: &str| path == "sql/idgen.sql" || folders.iter().any(|folder| path.starts_with(folder));
    let whole = paths.filter(|path| !is_part(path)).map(|path| (path.clone(), read(&path)));
    let parts = folders.map(|folder| {
        let part = |name: &str| read(&format!("{folder}{name}"));
        (folder.to_owned(), part("before.sql") + &read("sql/idgen.sql") + &part("after.sql"))
    });
    whole.chain(parts).collect()
}

/// The text after each occurrence of a text in a line.
fn after<'a>(line: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(text).map(move |(place, _)| &line[place + text.len()..])
}

/// The faults in a line of any file.
fn of_line(line: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    // The views of idgen, in its schema, are not tables of others.
    let inserted = |rest: &str| {
        let name = rest.trim_start_matches("ONLY ").split(' ').next().unwrap_or_default();
        name.starts_with('%') && !name.contains(".idgen_")
    };
    if !line.contains("REVOKE") && after(line, "FROM ").any(inserted) {
        found.push(READS);
    }
    let connects = ["\\connect ", "\\c "].iter().flat_map(|command| after(line, command));
    if connects.into_iter().any(|to| to.contains([':', '$']) && !to.starts_with("-reuse-previous=on ")) {
        found.push(CONNECTS);
    }
    if line.split_whitespace().any(|word| word == "eval") {
        found.push(EVALUATES);
    }
    if after(line, "IFS=").any(|separators| !separators.starts_with(' ')) {
        found.push(SPLITS);
    }
    found
}

/// Whether a line reads a catalog by a name without a schema.
fn reads_catalog(line: &str) -> bool {
    let names = ["FROM ", "JOIN ", "UPDATE ", "TABLE "];
    names.iter().flat_map(|word| after(line, word)).any(|name| {
        let name: String =
            name.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '(')).collect();
        name.starts_with("pg_") && !name.starts_with("pg_catalog.") && !name.starts_with("pg_temp.")
    })
}

/// The literals of a script in single quotes or between tags. Between `$$`, only queries count, because bodies are
/// there too.
fn literals(code: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), code);
    while let Some(start) = rest.find(['\'', '$']) {
        rest = &rest[start..];
        let tag = rest[1..].chars().take_while(char::is_ascii_lowercase).count();
        let quote = match rest.as_bytes()[0] {
            b'$' if rest[tag + 1..].starts_with('$')
                && (tag > 0 || rest[2..].trim_start().starts_with("SELECT ")) =>
            {
                &rest[..tag + 2]
            }
            b'$' => {
                rest = &rest[1..];
                continue;
            }
            _ => "'",
        };
        rest = &rest[quote.len()..];
        let Some((literal, after)) = rest.split_once(quote) else { break };
        found.push(literal);
        rest = after;
    }
    found
}

/// Whether a query depends on the search_path of its session: through a table, a function, a type, an operator, or a
/// syntax that stands for an operator. Keywords are in upper case.
fn depends_on_path(query: &str) -> bool {
    let literals = literals(query);
    let bare =
        literals.iter().fold(query.to_owned(), |bare, literal| bare.replace(&format!("'{literal}'"), ""));
    let bare = bare.split("OPERATOR(pg_catalog.").enumerate().map(|(n, part)| match part.split_once(')') {
        Some((_, after)) if n > 0 => after,
        _ => part,
    });
    let bare = bare.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ");
    let operators = [" IN (", "BETWEEN ", "LIKE ", "SIMILAR ", "USING ", "NULLIF", "nullif", "DISTINCT FROM"];
    let called = bare.split('(').map(|before| before.rsplit([' ', ',']).next().unwrap_or_default());
    let mut called: Vec<_> = called.collect();
    called.pop();
    bare.contains(['=', '<', '>', '+', '-', '/', '|', '~', '!', '@', '#', '^', '&', '?'])
        || operators.iter().any(|operator| bare.contains(operator))
        || after(&bare, "CASE ").any(|rest| !rest.starts_with("WHEN "))
        || after(&bare, "::").any(|name| !name.starts_with("pg_catalog."))
        || ["FROM ", "JOIN "]
            .iter()
            .flat_map(|word| after(&bare, word))
            .any(|name| !name.starts_with('(') && !name.split(' ').next().unwrap_or_default().contains('.'))
        || called.iter().any(|name| name.contains(|c: char| c.is_ascii_lowercase()) && !name.contains('.'))
}

/// Whether a procedure that sets the search_path in its body uses names before that.
fn declares_by_path(create: &str) -> bool {
    let declared = create.split_once("DECLARE").and_then(|(_, rest)| rest.split_once("BEGIN"));
    declared.map_or("", |(declared, _)| declared).lines().filter_map(|line| line.strip_suffix(';')).any(
        |line| {
            let (of_type, first) = line.split_once(" := ").unwrap_or((line, "0"));
            let name = of_type.trim_end_matches("[]").rsplit(' ').next().unwrap_or_default();
            let is_known = ["bigint", "boolean", "integer", "numeric"].contains(&name);
            !(is_known || name.starts_with("pg_catalog.")) || first.contains(['(', ' '])
        },
    )
}

fn is_comment(line: &str) -> bool {
    ["--", "#"].iter().any(|mark| line.trim_start().starts_with(mark))
}

fn findings(path: &str, text: &str) -> Vec<&'static str> {
    let lines = || text.lines().filter(|line| !is_comment(line));
    let mut found: Vec<_> = lines().flat_map(of_line).collect();
    if !path.ends_with(".md") {
        let sets = |line: &str| line.replace(' ', "").contains("search_path=pg_catalog");
        found.extend(lines().take_while(|line| !sets(line)).any(reads_catalog).then_some(PATH));
        let computes = |line: &str| line.contains("\\gexec");
        found.extend(lines().take_while(|line| !sets(line)).any(computes).then_some(COMPUTES));
    }
    // A statement is assumed to end where the next one of these begins, which keeps bodies whole.
    let code = lines().flat_map(|line| ["\n", line]).collect::<String>().replace("\nDO $", "\nCREATE DO $");
    for create in
        code.split("\nCREATE ").filter(|create| create.contains("FUNCTION ") || create.contains("PROCEDURE "))
    {
        let late = create.contains("LANGUAGE plpgsql") || create.contains("SECURITY DEFINER");
        let sets = create.contains("SET search_path = pg_catalog, pg_temp")
            // In a procedure that commits, the setting lasts only until then.
            || create.matches("SET LOCAL search_path = pg_catalog, pg_temp").count()
                > create.matches("COMMIT;").count();
        if late && !create.starts_with("DO $") && !sets {
            found.push(BODY);
        }
        if create.contains("SET LOCAL search_path") && declares_by_path(create) {
            found.push(DECLARES);
        }
    }
    if code.contains("run_command_on_") || code.contains("run_on_worker(") {
        let sent = literals(&code).into_iter().filter(|literal| literal.trim_start().starts_with("SELECT "));
        found.extend(sent.filter(|query| depends_on_path(query)).map(|_| SENDS));
    }
    found
}

#[test]
fn nothing_of_others_runs() {
    let mut counts: BTreeMap<(String, &str), usize> = BTreeMap::new();
    let page = read("docs/operations.md");
    let runbooks =
        code_blocks(&page).into_iter().flat_map(|(.., lines)| lines).collect::<Vec<_>>().join("\n");
    for (path, text) in scripts().into_iter().chain([("docs/operations.md".into(), runbooks)]) {
        for found in findings(&path, &text) {
            *counts.entry((path.clone(), found)).or_default() += 1;
        }
    }
    for (path, what, count) in KNOWN {
        let left = counts.remove(&(path.into(), what)).unwrap_or(0);
        counts.extend((left != count).then_some(((format!("{path} (KNOWN says {count})"), what), left)));
    }
    let complaints: Vec<_> =
        counts.iter().map(|((path, what), count)| format!("{path}: {what}, {count} times")).collect();
    assert_none(&complaints);
}

/// Each kind of fault is found, and its safe form is not.
#[test]
fn what_would_run_is_found() {
    for (line, found, safe) in [
        ("FROM pg_class", PATH, "FROM pg_catalog.pg_class"),
        (
            "EXECUTE format('SELECT max(%I) FROM ONLY %s', c, t)",
            READS,
            "EXECUTE format('COPY %s (%I) TO STDOUT', t, c)",
        ),
        ("\\connect :name", CONNECTS, "\\connect -reuse-previous=on :name"),
        ("psql <<<\"\\connect $name\"", CONNECTS, "psql -d \"$target\""),
        ("eval \"$command\"", EVALUATES, "retrieval=1"),
        ("while IFS=$'\\t' read -r name columns", SPLITS, "while IFS= read -r line"),
        (
            "\nCREATE FUNCTION f() LANGUAGE plpgsql AS",
            BODY,
            "\nCREATE FUNCTION f() LANGUAGE sql BEGIN ATOMIC",
        ),
        (
            "\nCREATE PROCEDURE p() LANGUAGE plpgsql AS $$\nBEGIN\nSET LOCAL search_path = pg_catalog, pg_temp;\nCOMMIT;",
            BODY,
            "\nCREATE PROCEDURE p() LANGUAGE plpgsql AS $$\nBEGIN\nSET LOCAL search_path = pg_catalog, pg_temp;\nCOMMIT;\n\
             SET LOCAL search_path = pg_catalog, pg_temp;",
        ),
        (
            "\nCREATE PROCEDURE p() LANGUAGE plpgsql AS $$\nDECLARE\n    a text;\nBEGIN\n\
             SET LOCAL search_path = pg_catalog, pg_temp;",
            DECLARES,
            "\nCREATE PROCEDURE p() LANGUAGE plpgsql AS $$\nDECLARE\n    a pg_catalog.text;\nBEGIN\n\
             SET LOCAL search_path = pg_catalog, pg_temp;",
        ),
        ("FROM run_command_on_workers('SELECT f()')", SENDS, "FROM run_command_on_workers('SELECT s.f()')"),
        (
            "FROM run_command_on_workers($text$ SELECT name FROM s.t WHERE name = 'a' $text$)",
            SENDS,
            "FROM run_command_on_workers($text$ SELECT name FROM s.t WHERE name OPERATOR(pg_catalog.=) 'a' $text$)",
        ),
        (
            "FROM run_command_on_workers('SELECT name::text FROM s.t')",
            SENDS,
            "FROM run_command_on_workers('SELECT name::pg_catalog.text FROM s.t')",
        ),
        (
            "FROM run_command_on_workers('SELECT n FROM t')",
            SENDS,
            "FROM run_command_on_workers('SELECT n FROM s.t')",
        ),
        (
            "SELECT format('DROP TABLE %I', name) \\gexec",
            COMPUTES,
            "SET search_path = pg_catalog, pg_temp;\nSELECT format('DROP TABLE %I', name) \\gexec",
        ),
    ] {
        assert_eq!(findings("a.sql", line), [found], "{line}");
        assert_eq!(findings("a.sql", safe), [""; 0], "{safe}");
    }
}

/// No message and no page advises taking over another role's objects: a function that is SECURITY DEFINER, for example,
/// would run as its new owner, who has not read it. idgen's own scripts do it with objects that they have compared or
/// made.
#[test]
fn nobody_is_told_to_take_over_what_he_has_not_read() {
    const ADVICE: [&str; 5] =
        ["REASSIGN OWNED", "OWNER TO", "ave a superuser own", "them to superusers", "uses to superusers"];
    const SCRIPTS: [&str; 3] = ["portable/take.sql", "sql/takeover/after.sql", "sql/update/after.sql"];
    let places =
        [("docs", ".md"), ("docs", ".sql"), ("docs", ".sh"), ("src", ".rs"), ("crates/idgenctl/src", ".rs")];
    let scripts = [("portable", ".sql"), ("portable", ".md"), ("sql", ".sql")];
    let paths = places.into_iter().chain(scripts).flat_map(|(folder, end)| files(folder, end));
    let complaints = paths
        .filter(|path| !path.starts_with("portable/tests/") && !SCRIPTS.contains(&path.as_str()))
        .flat_map(|path| {
            // A message may be split over lines by a backslash or by quotes.
            let text = read(&path).replace(['\\', '\'', '"'], "");
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let advice = ADVICE.into_iter().filter(move |advice| text.contains(advice));
            advice.map(move |advice| format!("{path}: {advice}")).collect::<Vec<_>>()
        });
    assert_none(&complaints.collect::<Vec<_>>());
}

/// Scripts that use idgen by the name of its schema first check whether that schema can be trusted, all by the same
/// query. A function could not hold the query, because it would be in that schema itself. Texts that are sent to other
/// servers name the schema of everything.
#[test]
fn the_schema_of_idgen_is_trusted_for_one_reason() {
    const QUESTION: &str = "r.oid <> 'pg_database_owner'::regrole \
        AND (has_schema_privilege(r.oid, n.oid, 'CREATE') OR pg_has_role(r.oid, nspowner, 'MEMBER') \
        OR pg_has_role(r.oid, extowner, 'MEMBER'))";
    let asks = |path: &str| {
        let text = read(path).replace("OPERATOR(pg_catalog.<>)", "<>").replace("pg_catalog.", "");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        words.matches(QUESTION).count()
    };
    for path in [
        "docs/examples/from-plpgsql.sql",
        "docs/examples/remove.sql",
        "docs/examples/scaling/citus-check.sql",
        "docs/examples/scaling/citus-horizon.sql",
    ] {
        assert_eq!(asks(path), 1, "{path}");
    }
}
