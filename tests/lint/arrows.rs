//! Dependencies between the modules of `src/` go one way: src/lib.rs lists the modules from top to bottom, and a
//! module uses none above it.

use crate::text::rust_tokens;
use crate::{assert_none, files, read};

/// May use every module, because it tests them.
const TESTS: &str = "pg_tests";

/// The modules that lib.rs lists, in its order.
fn listed(lib: &str) -> Vec<String> {
    let tokens = rust_tokens(lib);
    let mut modules = Vec::new();
    let mut depth = 0;
    for (i, (_, token)) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "mod" if depth == 0 && tokens.get(i + 2).is_some_and(|(_, next)| next == ";") => {
                modules.push(tokens[i + 1].1.clone());
            }
            _ => {}
        }
    }
    modules
}

/// The names in the root of the crate that a file uses, with their lines: after `crate::`, and after as many
/// `super::` as lead there.
fn named(path: &str, source: &str) -> Vec<(usize, String)> {
    let tokens = rust_tokens(source);
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|(_, token)| token == text);
    // The nesting of modules: those of the file, and those that it opens.
    let of_file = path.trim_end_matches("/mod.rs").matches('/').count();
    let (mut braces, mut inner) = (0, Vec::new());
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        match tokens[at].1.as_str() {
            "{" => {
                if at >= 2 && is(at - 2, "mod") {
                    inner.push(braces);
                }
                braces += 1;
            }
            "}" => {
                braces -= 1;
                inner.pop_if(|begin| *begin == braces);
            }
            "crate" if is(at + 1, "::") => found.extend(first_names(&tokens[at + 2..])),
            "super" if at == 0 || !is(at - 1, "::") => {
                let mut after = at;
                while is(after, "super") && is(after + 1, "::") {
                    after += 2;
                }
                if (after - at) / 2 >= of_file + inner.len() {
                    found.extend(first_names(&tokens[after..]));
                }
            }
            // What such macros use cannot be seen where they are called.
            "macro_use" | "macro_export" => found.push(tokens[at].clone()),
            _ => {}
        }
    }
    found
}

/// The first names of a path that continues with these tokens: one, or those of a list in braces.
fn first_names(tokens: &[(usize, String)]) -> Vec<(usize, String)> {
    if tokens.first().is_none_or(|(_, token)| token != "{") {
        return tokens.first().cloned().into_iter().collect();
    }
    let mut names = Vec::new();
    let (mut depth, mut is_first) = (0, false);
    for (line, token) in tokens {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ if depth == 1 && is_first => names.push((*line, token.clone())),
            _ => {}
        }
        if depth == 0 {
            break;
        }
        is_first = depth == 1 && (token == "{" || token == ",");
    }
    names
}

/// The arrows that go up, or nobody knows where.
fn complaints(lib: &str, files: &[(&str, &str)]) -> Vec<String> {
    let modules = listed(lib);
    let place = |name: &str| modules.iter().position(|module| module == name);
    let mut complaints = Vec::new();
    for (path, source) in files {
        let own = path.trim_start_matches("src/").split(['/', '.']).next().unwrap_or_default();
        if own == "lib" || own == TESTS {
            continue;
        }
        let Some(own_place) = place(own) else {
            complaints.push(format!("{path}: src/lib.rs does not list {own}"));
            continue;
        };
        for (line, name) in named(path, source) {
            match place(&name) {
                Some(place) if place >= own_place => {}
                Some(_) => complaints.push(format!("{path}:{line}: {name} stands above {own} in src/lib.rs")),
                None => complaints.push(format!("{path}:{line}: {name} is no module that src/lib.rs lists")),
            }
        }
    }
    complaints
}

#[test]
fn arrows_go_one_way() {
    let paths = files("src", ".rs");
    let sources: Vec<String> = paths.iter().map(|path| read(path)).collect();
    let files: Vec<(&str, &str)> =
        paths.iter().map(String::as_str).zip(sources.iter().map(String::as_str)).collect();
    assert_none(&complaints(&read("src/lib.rs"), &files));
}

/// Each form in which a module can name another, upwards.
#[test]
fn an_arrow_that_goes_up_is_found() {
    let lib = r##"
        pub mod top;
        #[allow(unsafe_code)]
        pub(crate) mod middle;
        mod low;
        #[cfg(test)]
        mod pg_tests;
        mod inline { mod top; }
        const TEXT: &str = r#"mod " text;"#;
        "##;
    let wrong = r##"use crate::top;
        use crate::{
            low, middle::{top, self},
            top::{self, low},
        };
        pub(in crate::top) fn f(_: &crate::middle::T<'_>) -> char { '"' }
        macro_rules! m { () => { $crate::top::f() }; }
        /* crate::top /* crate::top */ crate::top */
        // crate::top
        const TEXT: &str = "crate::top \" crate::top"; const RAW: &str = r#"" crate::top"#;
        use super::top as above;
        mod inner { use super::top; use super::super::top; }
        fn g() { crate::gone() }
        use crate::*;
        pub(crate) use super::super::top as other;
        #[macro_export]
        macro_rules! n { () => {} }
        "##;
    let lines = |path: &str| -> Vec<String> {
        complaints(lib, &[(path, wrong)]).iter().map(|text| text[path.len() + 1..].to_owned()).collect()
    };
    let above = "top stands above middle in src/lib.rs";
    let unknown = "is no module that src/lib.rs lists";
    let expected = |all: &[usize]| -> Vec<String> {
        let upwards = all.iter().map(|line| (*line, format!("{line}: {above}")));
        let others = [(13, "gone"), (14, "*"), (16, "macro_export")];
        let others = others.map(|(line, name)| (line, format!("{line}: {name} {unknown}")));
        let mut all: Vec<_> = upwards.chain(others).collect();
        all.sort_by_key(|(line, _)| *line);
        all.into_iter().map(|(_, text)| text).collect()
    };
    // In a file of its own `super::` is the root; a folder deeper it is the module.
    assert_eq!(lines("src/middle.rs"), expected(&[1, 4, 6, 7, 11, 12, 15]));
    assert_eq!(lines("src/middle/mod.rs"), expected(&[1, 4, 6, 7, 11, 12, 15]));
    assert_eq!(lines("src/middle/deep.rs"), expected(&[1, 4, 6, 7, 15]));
    // Modules below may be used freely, and the tests may use everything.
    assert_eq!(complaints(lib, &[("src/top.rs", "use crate::{top, middle, low}; use super::low;")]), [""; 0]);
    assert_eq!(complaints(lib, &[("src/pg_tests.rs", wrong), ("src/lib.rs", wrong)]), [""; 0]);
    assert_eq!(complaints(lib, &[("src/new.rs", "")]), ["src/new.rs: src/lib.rs does not list new"]);
}
