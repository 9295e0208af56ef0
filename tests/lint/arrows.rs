//! Checks that dependencies between the modules of a crate go one way. A lib.rs or main.rs that contains [`RULE`] lists
//! the modules from top to bottom, and no module uses one above it. A dependency is always written as `crate::module`,
//! without a list of modules in braces, so that it can be found in a line.

use crate::{assert_none, files, read};

const RULE: &str = "none uses one above it";

/// The module that may use every other one, because it tests them.
const TESTS: &str = "pg_tests";

/// The name at the beginning of a text.
fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The modules that the root of a crate lists, in order.
fn listed(root: &str) -> Vec<&str> {
    let modules = root.lines().filter_map(|line| line.strip_suffix(';')?.split_once("mod "));
    modules
        .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
        .map(|(_, name)| name)
        .collect()
}

/// The forbidden dependencies in a file of `src/`. The path is relative to this folder.
fn complaints(root: &str, path: &str, source: &str) -> Vec<String> {
    let modules = listed(root);
    let place = |name: &str| modules.iter().position(|module| *module == name);
    let own = name(path);
    if ["lib", "main", TESTS].contains(&own) {
        return Vec::new();
    }
    let Some(own_place) = place(own) else { return vec![format!("{path}: the root does not list {own}")] };
    let super_is_root = !path.contains('/') || path.ends_with("/mod.rs");
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(source.lines().map(str::trim)) {
        if line.starts_with("//") {
            continue;
        }
        for module in line.split("crate::").skip(1).map(name) {
            match place(module) {
                Some(place) if place >= own_place => {}
                Some(_) => {
                    complaints.push(format!("{path}:{number}: {module} stands above {own} in the root"))
                }
                None => complaints.push(format!("{path}:{number}: the root lists no module \"{module}\"")),
            }
        }
        // The call of an exported macro does not show which modules the macro uses.
        let hides =
            ["super::super::", "#[macro_use]", "#[macro_export]"].iter().any(|text| line.contains(text));
        if hides || super_is_root && line.contains("super::") {
            complaints.push(format!("{path}:{number}: a dependency that is not written as crate::module"));
        }
    }
    complaints
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
        let folder = path.trim_end_matches("lib.rs").trim_end_matches("main.rs");
        let sources = files(folder, ".rs");
        assert_none(
            &sources
                .iter()
                .flat_map(|path| complaints(&root, &path[folder.len()..], &read(path)))
                .collect::<Vec<_>>(),
        );
    }
}

/// Every form in which a module can name another one above it.
#[test]
fn an_arrow_that_goes_up_is_found() {
    let root =
        "pub mod top;\n#[allow(unsafe_code)]\npub(crate) mod middle;\nmod low;\nmod pg_tests;\n// mod gone;";
    for (line, is_wrong) in [
        ("use crate::top;", true),
        ("pub(in crate::top) fn f(_: &crate::low::T<'_>) {}", true),
        ("macro_rules! m { () => { $crate::top::f() }; }", true),
        ("use crate::{low, top};", true),
        ("use crate::*;", true),
        ("fn g() { crate::gone() }", true),
        ("use super::super::top;", true),
        ("#[macro_export]", true),
        ("// crate::top", false),
        ("use crate::middle::{self, low::T};", false),
        ("use crate::low;", false),
    ] {
        for path in ["middle.rs", "middle/mod.rs", "middle/deep.rs"] {
            assert_eq!(complaints(root, path, line).len(), usize::from(is_wrong), "{path}: {line}");
        }
        assert_eq!(complaints(root, "pg_tests.rs", line), [""; 0]);
    }
    // In a file of its own, `super::` is the root; one folder deeper, it is the module.
    assert_eq!(complaints(root, "middle.rs", "use super::top;").len(), 1);
    assert_eq!(complaints(root, "middle/mod.rs", "use super::top;").len(), 1);
    assert_eq!(complaints(root, "middle/deep.rs", "use super::top;"), [""; 0]);
    assert_eq!(complaints(root, "new.rs", ""), ["new.rs: the root does not list new"]);
}
