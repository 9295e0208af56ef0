//! Checks that dependencies between the modules of a crate go one way: no files use each other in a circle, and if a
//! lib.rs or main.rs contains [`RULE`], it lists its modules from top to bottom, and no module uses one above it.

use std::collections::{BTreeMap, BTreeSet};

use regex::Captures;

use crate::{assert_none, files, read, regex};

const RULE: &str = "none uses one above it";

/// The module that may use every other one, because it tests them, and that those may use.
const TESTS: &str = "testing";

/// The modules of a crate by their paths, and those that each of them uses. The path of the root is empty.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The path of the module in a file: `commands::check` for `commands/check.rs` and for `commands/check/mod.rs`.
fn module(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if ["lib", "main"].contains(&path) { String::new() } else { path.replace('/', "::") }
}

/// The modules that the code of a module names. A name that a module only passes on belongs to that module.
fn used(own: &str, code: &str, modules: &BTreeSet<String>) -> Vec<String> {
    let mut code = code.to_owned();
    let group = regex(r"((?:\w+::)+)\{([^{}]*)\}");
    while group.is_match(&code) {
        let each = |found: &Captures<'_>| {
            let names = found[2].split(',').map(|name| format!("{}{}", &found[1], name.trim()));
            names.collect::<Vec<_>>().join(", ")
        };
        code = group.replace_all(&code, each).into_owned();
    }
    let used = |path: &str| {
        let mut steps = path.split("::").peekable();
        let mut base: Vec<&str> = own.split("::").collect();
        match steps.next()? {
            "crate" => base.clear(),
            "self" => {}
            "super" => _ = base.pop(),
            child if modules.contains(format!("{own}::{child}").trim_start_matches("::")) => base.push(child),
            _ => return None,
        }
        while steps.next_if_eq(&"super").is_some() {
            base.pop();
        }
        base.extend(steps);
        let mut path = base.join("::");
        while !path.is_empty() && !modules.contains(path.trim_start_matches("::")) {
            path.truncate(path.rfind("::").unwrap_or(0));
        }
        Some(path.trim_start_matches("::").to_owned()).filter(|path| path != own)
    };
    regex(r"\w+(?:::(?:\w+|\*))+").find_iter(&code).filter_map(|path| used(path.as_str())).collect()
}

/// The arrows of a crate, whose files are given with their paths from the folder of the root.
fn arrows(files: &[(&str, &str)]) -> Arrows {
    let modules: BTreeSet<String> = files.iter().map(|(path, _)| module(path)).collect();
    let arrows = files.iter().map(|(path, source)| {
        let own = module(path);
        let code = regex("//.*").replace_all(source, "");
        // For a module inside the file, `super` is the file.
        let inside = regex(r"(?ms)^(?:pub )?mod \w+ \{\n.*?^\}");
        let within =
            inside.find_iter(&code).flat_map(|code| used(&format!("{own}::inside"), code.as_str(), &modules));
        let used = used(&own, &inside.replace_all(&code, ""), &modules).into_iter().chain(within);
        (own.clone(), used.filter(|used| *used != own).collect())
    });
    arrows.collect()
}

/// The arrows between modules that use each other in a circle, and between such circles.
fn circles(mut arrows: Arrows) -> Vec<String> {
    loop {
        let before = arrows.values().map(BTreeSet::len).sum::<usize>();
        let targets: BTreeSet<String> = arrows.values().flatten().cloned().collect();
        arrows.retain(|own, used| !used.is_empty() && targets.contains(own));
        let left: BTreeSet<String> = arrows.keys().cloned().collect();
        arrows.values_mut().for_each(|used| used.retain(|module| left.contains(module)));
        if arrows.values().map(BTreeSet::len).sum::<usize>() == before {
            let each = |(own, used): (&String, &BTreeSet<String>)| format!("\"{own}\" uses {used:?}");
            return arrows.iter().map(each).collect();
        }
    }
}

/// The arrows that go up in the list of the root.
fn upward(root: &str, arrows: &Arrows) -> Vec<String> {
    let listed: Vec<&str> = regex(r"(?m)^(?:pub(?:\(\w+\))? )?mod (\w+);")
        .captures_iter(root)
        .map(|found| found.extract::<1>().1[0])
        .collect();
    let top = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let place = |module: &str| listed.iter().position(|listed| *listed == top(module));
    let each = arrows.iter().flat_map(|(own, used)| used.iter().map(move |used| (own, used)));
    let each =
        each.filter(|(own, used)| ![top(own), top(used)].contains(&TESTS.to_owned()) && !own.is_empty());
    each.filter(|(own, used)| place(own).is_none_or(|own| place(used).is_none_or(|used| used < own)))
        .map(|(own, used)| format!("{own} uses {used}, which the root does not list below it"))
        .collect()
}

#[test]
fn arrows_go_one_way() {
    let (mut complaints, mut ruled) = (Vec::new(), Vec::new());
    let roots = ["src/lib.rs", "src/main.rs"].map(|end| files("crates", end)).concat();
    for root in roots.into_iter().chain(["src/lib.rs".to_owned()]) {
        let folder = root.trim_end_matches("lib.rs").trim_end_matches("main.rs");
        let sources: Vec<_> = files(folder, ".rs").into_iter().map(|path| (read(&path), path)).collect();
        let sources: Vec<_> =
            sources.iter().map(|(source, path)| (&path[folder.len()..], source.as_str())).collect();
        let (text, arrows) = (read(&root), arrows(&sources));
        if text.contains(RULE) {
            complaints.extend(upward(&text, &arrows));
            // The call of such a macro does not show which modules the macro uses.
            let hidden = sources.iter().filter(|(_, source)| source.contains("#[macro_"));
            complaints.extend(hidden.map(|(path, _)| format!("{folder}{path} hides what a macro uses")));
            ruled.push(root.clone());
        }
        complaints.extend(circles(arrows).into_iter().map(|arrow| format!("{folder}: in a circle, {arrow}")));
    }
    assert_none(&complaints);
    assert_eq!(ruled, ["crates/idgenctl/src/main.rs", "src/lib.rs"], "{RULE}");
}

/// Every form in which a module can name another one above it.
#[test]
fn an_arrow_that_goes_up_is_found() {
    let root =
        "pub mod top;\n#[allow(unsafe_code)]\npub(crate) mod middle;\nmod low;\nmod testing;\n// mod gone;";
    for (line, is_wrong) in [
        ("use crate::top;", true),
        ("pub(in crate::top) fn f(_: &crate::low::T<'_>) {}", true),
        ("macro_rules! m { () => { $crate::top::f() }; }", true),
        ("use crate::{low, top as other};", true),
        ("use crate::{\n    low::{T, U},\n    top::{self},\n};", true),
        ("use crate::*;", true),
        ("fn g() { crate::gone() }", true),
        ("use super::super::super::top;", true),
        ("// crate::top", false),
        ("use crate::middle::{self, low::T};", false),
        ("use crate::{\n    low::{T},\n};", false),
        ("use crate::testing;", false),
    ] {
        for path in ["middle.rs", "middle/mod.rs", "middle/deep.rs"] {
            let others = ["lib.rs", "top.rs", "middle/mod.rs", "low.rs"].map(|path| (path, ""));
            let files = [&others[..], &[(path, line), ("testing/mod.rs", line)]].concat();
            let found = upward(root, &arrows(&files));
            assert_eq!(found.len(), usize::from(is_wrong), "{path}: {line}: {found:?}");
        }
    }
    let files =
        [("lib.rs", ""), ("new.rs", "use crate::low;"), ("low.rs", "use super::top;"), ("top.rs", "")];
    assert_eq!(upward(root, &arrows(&files)).len(), 2);
}

/// Every form in which a file can name another one.
#[test]
fn a_circle_is_found() {
    let found = |files: &[(&str, &str)]| circles(arrows(files));
    for forth in ["use crate::a::b;", "use self::b::T;", "pub use b::{T, U};", "fn f() { b::g() }"] {
        for back in ["use super::T;", "crate::a::f()", "use crate::{c, a};", "use super::super::a::T;"] {
            let files = [("lib.rs", "a::f()"), ("a.rs", forth), ("a/b.rs", back), ("c.rs", "")];
            assert_eq!(found(&files), [r#""a" uses {"a::b"}"#, r#""a::b" uses {"a"}"#], "{forth} {back}");
        }
        let harmless = "// use crate::a;\nuse crate::c;\nmod tests {\n    use super::*;\n}\n";
        assert_eq!(found(&[("lib.rs", ""), ("a.rs", forth), ("a/b.rs", harmless), ("c.rs", "")]), [""; 0]);
    }
    assert_eq!(found(&[("lib.rs", "pub use a::T;"), ("a.rs", "use crate::U;")]).len(), 2);
}
