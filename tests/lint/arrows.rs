//! Checks that dependencies between the modules of a crate go one way: no files use each other in a circle, and if a
//! lib.rs or main.rs contains [`RULE`], it lists its modules from top to bottom, and no module uses one above it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{assert_none, files, read};

const RULE: &str = "none uses one above it";

/// The module that may use every other one, because it tests them, and that those may use.
const TESTS: &str = "testing";

/// The modules of a crate, and those that each of them uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The name at the beginning of a text.
fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The name at the end of a text.
fn last_name(text: &str) -> &str {
    text.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The path of a module without its last part.
fn above(path: &str) -> &str {
    path.rsplit_once("::").map_or("", |(above, _)| above)
}

/// The path of the module in a file: `commands::check` for `commands/check.rs` and for `commands/check/mod.rs`, and
/// nothing for the root.
fn module(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if ["lib", "main"].contains(&path) { String::new() } else { path.replace('/', "::") }
}

/// Adds the paths at the start of a text, several if they are in braces, and returns what follows them.
fn paths<'a>(text: &'a str, before: &str, found: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        while !rest.trim_start().is_empty() && !rest.trim_start().starts_with('}') {
            rest = paths(rest, before, found);
            // There may be an "as" and another name.
            rest = rest[rest.find([',', '}']).unwrap_or(rest.len())..].trim_start_matches(',');
        }
        return rest.trim_start().trim_start_matches('}');
    }
    let first = name(text);
    let (path, rest) = (format!("{before}::{first}"), &text[first.len()..]);
    match rest.strip_prefix("::") {
        Some(rest) if !first.is_empty() => paths(rest, &path, found),
        _ => {
            found.push(path);
            rest
        }
    }
}

/// The code of a file without comments: that of its module, and that of modules inside it, whose `super` is the file.
fn codes(source: &str) -> [String; 2] {
    let (mut codes, mut is_inside) = ([String::new(), String::new()], false);
    for line in source.lines() {
        let code = line.split("//").next().unwrap_or_default();
        let begins = code.trim_start_matches("pub ").starts_with("mod ") && code.ends_with('{');
        is_inside = begins || is_inside && code != "}";
        codes[usize::from(is_inside)] += &format!("{code}\n");
    }
    codes
}

/// The paths in the code of a module, from the root of the crate on.
fn named(own: &str, code: &str, modules: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (place, _) in code.match_indices("::") {
        let (word, mut rest) = (last_name(&code[..place]), &code[place + 2..]);
        let child = format!("{own}::{word}");
        let child = child.trim_start_matches("::");
        let base = match word {
            _ if code[..place - word.len()].ends_with("::") => continue, // inside a path
            "crate" => "",
            "self" => own,
            "super" => {
                let mut base = above(own);
                while let Some(further) = rest.strip_prefix("super::") {
                    (base, rest) = (above(base), further);
                }
                base
            }
            _ if modules.contains(child) => child,
            _ => continue,
        };
        paths(rest, base, &mut found);
    }
    found
}

/// The arrows of a crate, whose files are given with their paths from the folder of the root. A name that a module only
/// passes on belongs to that module.
fn arrows(files: &[(String, String)]) -> Arrows {
    let modules: BTreeSet<String> = files.iter().map(|(path, _)| module(path)).collect();
    let of = |path: &str| {
        let mut path = path.trim_start_matches("::");
        while !path.is_empty() && !modules.contains(path) {
            path = above(path);
        }
        path.to_owned()
    };
    let used = files.iter().map(|(path, source)| {
        let (own, [code, inside]) = (module(path), codes(source));
        let named =
            [named(&own, &code, &modules), named(&format!("{own}::inside"), &inside, &modules)].concat();
        let used = named.iter().map(|path| of(path)).filter(|used| *used != own).collect();
        (own, used)
    });
    used.collect()
}

/// The shortest circle of each module that is in one.
fn circles(arrows: &Arrows) -> BTreeSet<String> {
    let shortest = |start: &String| {
        let (mut from, mut queue) = (BTreeMap::new(), VecDeque::from([start]));
        while let Some(module) = queue.pop_front() {
            for next in arrows.get(module)? {
                if let Entry::Vacant(place) = from.entry(next) {
                    place.insert(module);
                    queue.push_back(next);
                }
            }
        }
        let (mut circle, mut module) = (vec![start], *from.get(start)?);
        while module != start {
            circle.push(module);
            module = from[module];
        }
        // All modules of a circle find it. Begin with the same one.
        circle.reverse();
        let least = (0..circle.len()).min_by_key(|place| circle[*place])?;
        circle.rotate_left(least);
        circle.push(circle[0]);
        let names = circle.iter().map(|module| if module.is_empty() { "the root" } else { module });
        Some(names.collect::<Vec<_>>().join(" uses "))
    };
    arrows.keys().filter_map(shortest).collect()
}

/// The modules that the root of a crate lists, in order.
fn listed(root: &str) -> Vec<&str> {
    let modules = root.lines().filter_map(|line| line.strip_suffix(';')?.split_once("mod "));
    modules
        .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
        .map(|(_, name)| name)
        .collect()
}

/// The arrows that go up in the list of the root.
fn upward(root: &str, arrows: &Arrows) -> Vec<String> {
    let modules = listed(root);
    let place = |module: &str| modules.iter().position(|listed| *listed == name(module));
    let each = arrows.iter().flat_map(|(own, used)| used.iter().map(move |used| (own, used)));
    let each = each.filter(|(own, used)| ![name(own), name(used)].contains(&TESTS) && !own.is_empty());
    each.filter(|(own, used)| place(own).is_none_or(|own| place(used).is_none_or(|used| used < own)))
        .map(|(own, used)| format!("{own} uses {used}, which the root does not list below it"))
        .collect()
}

/// The files of a crate, with their paths from the folder of its root.
fn sources(folder: &str) -> Vec<(String, String)> {
    files(folder, ".rs").into_iter().map(|path| (path[folder.len()..].to_owned(), read(&path))).collect()
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let crates = [
        "src/",
        "crates/idgen-core/src/",
        "crates/ids/src/",
        "crates/pg-formats/src/",
        "crates/promises/src/",
        "crates/idgenctl/src/",
    ];
    let found = crates.into_iter().flat_map(|folder| {
        circles(&arrows(&sources(folder))).into_iter().map(move |circle| format!("{folder}: {circle}"))
    });
    assert_none(&found.collect::<Vec<_>>());
}

#[test]
fn arrows_go_one_way() {
    let roots = ["src/lib.rs", "src/main.rs"].map(|end| files("crates", end)).concat();
    let roots = roots.into_iter().chain(["src/lib.rs".to_owned()]).map(|path| (read(&path), path));
    let roots: Vec<_> = roots.filter(|(root, _)| root.contains(RULE)).collect();
    for path in ["src/lib.rs", "crates/idgenctl/src/main.rs"] {
        assert!(roots.iter().any(|(_, root)| root == path), "{path} does not say \"{RULE}\"");
    }
    for (root, path) in roots {
        let sources = sources(path.trim_end_matches("lib.rs").trim_end_matches("main.rs"));
        assert_none(&upward(&root, &arrows(&sources)));
        // The call of such a macro does not show which modules the macro uses.
        let hides = |text: &str| ["#[macro_use]", "#[macro_export]"].iter().any(|hides| text.contains(hides));
        assert_none(
            &sources.into_iter().filter_map(|(path, text)| hides(&text).then_some(path)).collect::<Vec<_>>(),
        );
    }
}

fn crate_of(files: &[(&str, &str)]) -> Arrows {
    arrows(&files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect::<Vec<_>>())
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
        ("use crate::low;", false),
        ("use crate::{\n    low::{T},\n};", false),
        ("use crate::testing;", false),
    ] {
        for path in ["middle.rs", "middle/mod.rs", "middle/deep.rs"] {
            let others = ["lib.rs", "top.rs", "middle/mod.rs", "low.rs"].map(|path| (path, ""));
            let files = [&others[..], &[(path, line), ("testing/mod.rs", line)]].concat();
            let found = upward(root, &crate_of(&files));
            assert_eq!(found.len(), usize::from(is_wrong), "{path}: {line}: {found:?}");
        }
    }
    let new = crate_of(&[
        ("lib.rs", ""),
        ("new.rs", "use crate::low;"),
        ("low.rs", "use super::top;"),
        ("top.rs", ""),
    ]);
    let found = upward(root, &new);
    assert_eq!(found.len(), 2, "{found:?}");
}

/// Every form in which a file can name another one.
#[test]
fn a_circle_is_found() {
    let found = |files: &[(&str, &str)]| circles(&crate_of(files)).into_iter().collect::<Vec<_>>();
    for forth in ["use crate::a::b;", "use self::b::T;", "pub use b::{T, U};", "fn f() { b::g() }"] {
        for back in ["use super::T;", "crate::a::f()", "use crate::{c, a};", "use super::super::a::T;"] {
            for file in ["a.rs", "a/mod.rs"] {
                let found = found(&[("lib.rs", ""), (file, forth), ("a/b.rs", back), ("c.rs", "")]);
                assert_eq!(found, ["a uses a::b uses a"], "{forth} {back}");
            }
        }
        let harmless = "// use crate::a;\nuse crate::c;\nmod tests {\n    use super::*;\n}\n";
        assert_eq!(found(&[("lib.rs", ""), ("a.rs", forth), ("a/b.rs", harmless), ("c.rs", "")]), [""; 0]);
    }
    let long = [
        ("main.rs", "b::f()"),
        ("a.rs", "use crate::b;"),
        ("b.rs", "use crate::c::d;"),
        ("c/d.rs", "crate::a::f()"),
    ];
    assert_eq!(found(&long), ["a uses b uses c::d uses a"]);
    assert_eq!(
        found(&[("lib.rs", "pub use a::T;"), ("a.rs", "use crate::U;")]),
        ["the root uses a uses the root"]
    );
}
