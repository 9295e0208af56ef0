//! A superuser's statements on objects of others must not run anything of theirs. This checks as much of the rule in
//! CONTRIBUTING.md as is visible in a line of a script.

use std::collections::BTreeMap;

use crate::markdown::code_blocks;
use crate::{assert_none, files, in_one_line, read, regex};

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

/// The files that administrators run, with their texts. The three parts of the install script and of the update script
/// count as one file.
fn scripts() -> Vec<(String, String)> {
    let folders = ["sql/takeover/", "sql/update/"];
    let whole = [("docs/examples", ".sql"), ("docs/examples", ".sh"), ("sql/install", ".sql")];
    let whole = whole.into_iter().flat_map(|(folder, end)| files(folder, end));
    let whole = whole.chain(["portable/idgen.sql", "portable/take.sql"].map(String::from));
    let parts = folders.map(|folder| {
        let part = |name: &str| read(&format!("{folder}{name}"));
        (folder.to_owned(), part("before.sql") + &read("sql/idgen.sql") + &part("after.sql"))
    });
    whole.map(|path| (path.clone(), read(&path))).chain(parts).collect()
}

/// What the group of a pattern matches in a text, each time.
fn each<'a>(pattern: &str, text: &'a str) -> Vec<&'a str> {
    let found = regex(pattern).captures_iter(text);
    found.map(|found| found.get(1).map_or("", |group| group.as_str())).collect()
}

/// The faults in a line of any file.
fn of_line(line: &str) -> Vec<&'static str> {
    // The views of idgen, in its schema, are not tables of others.
    let reads = each(r"FROM (?:ONLY )*(%[^ ]*)", line).iter().any(|name| !name.contains(".idgen_"));
    let connects = each(r"\\c(?:onnect)? (.*)", line);
    let connects =
        connects.iter().any(|to| to.contains([':', '$']) && !to.starts_with("-reuse-previous=on "));
    let faults = [
        (reads && !line.contains("REVOKE"), READS),
        (connects, CONNECTS),
        (line.split_whitespace().any(|word| word == "eval"), EVALUATES),
        (!each(r"IFS=(\S|$)", line).is_empty(), SPLITS),
    ];
    faults.into_iter().filter_map(|(is_there, fault)| is_there.then_some(fault)).collect()
}

/// Whether a line reads a catalog by a name without a schema.
fn reads_catalog(line: &str) -> bool {
    let names = each(r"(?:FROM|JOIN|UPDATE|TABLE) (pg_[\w.]*)", line);
    names.iter().any(|name| !name.starts_with("pg_catalog.") && !name.starts_with("pg_temp."))
}

/// Whether a query depends on the search_path of its session: through a table, a function, a type, an operator, or a
/// syntax that stands for an operator. Keywords are in upper case.
fn depends_on_path(query: &str) -> bool {
    let bare = regex(r"'[^']*'|OPERATOR\(pg_catalog\.[^)]*\)").replace_all(query, "").into_owned();
    let bare = in_one_line(&bare);
    !each("([-=<>+/|~!@#^&?]| IN \\(|BETWEEN |LIKE |SIMILAR |USING |NULLIF|nullif|DISTINCT FROM)", &bare)
        .is_empty()
        || each(r"CASE (\w*)", &bare).iter().any(|next| *next != "WHEN")
        || each(r"::([\w.]*)", &bare).iter().any(|name| !name.starts_with("pg_catalog."))
        || each(r"(?:FROM|JOIN) ([^ (][^ ]*)", &bare).iter().any(|name| !name.contains('.'))
        || each(r"([^ ,(]*[a-z][^ ,(]*)\(", &bare).iter().any(|name| !name.contains('.'))
}

/// Whether a procedure that sets the search_path in its body uses names before that.
fn declares_by_path(create: &str) -> bool {
    let lines = each(r"(?s)DECLARE(.*?)BEGIN", create);
    lines.iter().take(1).flat_map(|declared| declared.lines()).filter_map(|line| line.strip_suffix(';')).any(
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
    for create in code.split("\nCREATE ").filter(|create| !each("(FUNCTION|PROCEDURE) ", create).is_empty()) {
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
        let tagged = r"(?s)\$[a-z]+\$(.*?)\$[a-z]+\$";
        let rest = regex(tagged).replace_all(&code, "").into_owned();
        let sent = each(tagged, &code).into_iter().chain(each("'([^']*)'", &rest));
        let sent = sent.filter(|text| text.trim_start().starts_with("SELECT ") && depends_on_path(text));
        found.extend(sent.map(|_| SENDS));
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
    const CREATE: &str = "\nCREATE PROCEDURE p() LANGUAGE plpgsql AS $$\n";
    const SET: &str = "BEGIN\nSET LOCAL search_path = pg_catalog, pg_temp;\n";
    for (line, found, safe) in [
        ("FROM pg_class", PATH, "FROM pg_catalog.pg_class"),
        ("'SELECT max(%I) FROM ONLY %s'", READS, "'COPY %s (%I) TO STDOUT'"),
        ("\\connect :name", CONNECTS, "\\connect -reuse-previous=on :name"),
        ("psql <<<\"\\connect $name\"", CONNECTS, "psql -d \"$target\""),
        ("eval \"$command\"", EVALUATES, "retrieval=1"),
        ("while IFS=$'\\t' read -r name columns", SPLITS, "while IFS= read -r line"),
        (
            "\nCREATE FUNCTION f() LANGUAGE plpgsql AS",
            BODY,
            "\nCREATE FUNCTION f() LANGUAGE sql BEGIN ATOMIC",
        ),
        (&format!("{CREATE}{SET}COMMIT;"), BODY, &format!("{CREATE}{SET}COMMIT;\n{SET}")),
        (
            &format!("{CREATE}DECLARE\n    a text;\n{SET}"),
            DECLARES,
            &format!("{CREATE}DECLARE\n    a pg_catalog.text;\n{SET}"),
        ),
        ("SELECT f(n) \\gexec", COMPUTES, "SET search_path = pg_catalog, pg_temp;\nSELECT f(n) \\gexec"),
    ] {
        assert_eq!(findings("a.sql", line), [found], "{line}");
        assert_eq!(findings("a.sql", safe), [""; 0], "{safe}");
    }
    for (query, safe) in [
        ("'SELECT f()'", "'SELECT s.f()'"),
        ("$text$ SELECT a = 'a' $text$", "$text$ SELECT a OPERATOR(pg_catalog.=) 'a' $text$"),
        ("'SELECT a::text'", "'SELECT a::pg_catalog.text'"),
        ("'SELECT n FROM t'", "'SELECT n FROM s.t'"),
        ("'SELECT CASE a WHEN 1 THEN 2 END'", "'SELECT CASE WHEN a THEN 2 END'"),
        ("'SELECT a IN (1)'", "'SELECT a'"),
    ] {
        assert_eq!(findings("a.sql", &format!("FROM run_command_on_workers({query})")), [SENDS], "{query}");
        assert_eq!(findings("a.sql", &format!("FROM run_command_on_workers({safe})")), [""; 0], "{safe}");
    }
}

/// No message and no page advises taking over another role's objects: a function that is SECURITY DEFINER, for example,
/// would run as its new owner, who has not read it. idgen's own scripts do it with objects that they have compared or
/// made. And only idgenctl sets the list of preloaded libraries: it tries the library first, and keeps the others.
#[test]
fn nobody_is_told_to_do_harm() {
    const ADVICE: [&str; 6] = [
        "REASSIGN OWNED",
        "OWNER TO",
        "ave a superuser own",
        "them to superusers",
        "uses to superusers",
        "ALTER SYSTEM SET shared_preload_libraries",
    ];
    const SCRIPTS: [&str; 3] = ["portable/take.sql", "sql/takeover/after.sql", "sql/update/after.sql"];
    let folders = ["docs", "portable", "sql", "src", "crates/idgenctl/src", "packaging"];
    let paths = folders.into_iter().flat_map(|folder| files(folder, "")).chain(["README.md".to_owned()]);
    let is_script = |path: &String| {
        let released = path.starts_with("sql/install/") || path.starts_with("sql/idgen--");
        released || path.starts_with("portable/test") || SCRIPTS.contains(&path.as_str())
    };
    let mut complaints = Vec::new();
    for path in paths.filter(|path| !is_script(path)) {
        // A message may be split over lines by a backslash or by quotes.
        let text = in_one_line(&read(&path).replace(['\\', '\'', '"'], ""));
        let is_idgenctl = path.starts_with("crates/idgenctl/");
        let advice = ADVICE.into_iter().filter(|advice| text.contains(advice));
        let advice = advice.filter(|advice| !(is_idgenctl && advice.starts_with("ALTER SYSTEM")));
        complaints.extend(advice.map(|advice| format!("{path}: {advice}")));
    }
    assert_none(&complaints);
}

/// Scripts that use idgen by the name of its schema first check whether that schema can be trusted, all by the same
/// query. A function could not hold the query, because it would be in that schema itself. Texts that are sent to other
/// servers name the schema of everything.
#[test]
fn the_schema_of_idgen_is_trusted_for_one_reason() {
    const QUESTION: &str = "r.oid <> 'pg_database_owner'::regrole \
        AND (has_schema_privilege(r.oid, n.oid, 'CREATE') OR pg_has_role(r.oid, nspowner, 'MEMBER') \
        OR pg_has_role(r.oid, extowner, 'MEMBER'))";
    for name in ["from-plpgsql", "remove", "scaling/citus-check", "scaling/citus-horizon"] {
        let text = read(&format!("docs/examples/{name}.sql"));
        let text = text.replace("OPERATOR(pg_catalog.<>)", "<>").replace("pg_catalog.", "");
        assert_eq!(in_one_line(&text).matches(QUESTION).count(), 1, "{name}");
    }
}
