//! Settings that are lists, as PostgreSQL reads them.

/// The elements of a list such as `shared_preload_libraries`; none if PostgreSQL would not accept it.
pub fn elements(list: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = list.trim_ascii();
    while !rest.is_empty() || !found.is_empty() {
        let mut element = String::new();
        if rest.starts_with('"') {
            // Two quotes stand for one.
            while let Some(quoted) = rest.strip_prefix('"') {
                let (part, after) = quoted.split_once('"')?;
                element.push_str(part);
                rest = after;
                if rest.starts_with('"') {
                    element.push('"');
                }
            }
        } else {
            let (part, after) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
            element.push_str(part.trim_ascii_end());
            rest = after;
            if element.is_empty() {
                return None;
            }
        }
        found.push(element);
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            break;
        }
        rest = rest.strip_prefix(',')?.trim_ascii_start();
    }
    Some(found)
}

/// What `synchronous_standby_names` asks for.
pub struct Names {
    /// How many standbys have to acknowledge.
    pub needed: usize,
    /// Who may. `*` is everybody.
    pub names: Vec<String>,
}

impl Names {
    /// What a value of a server asks for; none if it names nobody.
    pub fn parse(text: &str) -> Option<Names> {
        let text = text.trim_ascii();
        // "ANY" and "FIRST" are only words of the language before a number; otherwise they are names.
        let (needed, names) = match text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            Some((method, names)) => (method.split_ascii_whitespace().next_back()?.parse().ok()?, names),
            None => (1, text),
        };
        let names = elements(names)?;
        (!names.is_empty()).then_some(Names { needed, names })
    }

    /// Whether a standby of this name may acknowledge.
    pub fn has(&self, standby: &str) -> bool {
        self.names.iter().any(|name| name == "*" || name.eq_ignore_ascii_case(standby))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_postgresql_reads_them() {
        let read = |list| elements(list).map(|elements| elements.join("|"));
        assert_eq!(read(" "), Some(String::new()));
        assert_eq!(read(" A b , \"c,\"\"d\" ,$libdir/e,\"\""), Some("A b|c,\"d|$libdir/e|".into()));
        for wrong in ["a,", ",", "\"a", "\"a\"b", "a,,b"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    /// Promise: the program understands who has to acknowledge as PostgreSQL does.
    #[test]
    fn synchronous_names_are_read_as_postgresql_reads_them() {
        let read = |text| Names::parse(text).map(|names| (names.needed, names.names.join("|")));
        assert_eq!(read("two"), Some((1, "two".into())));
        assert_eq!(read(" a , \"b \"\" (c)\",*"), Some((1, "a|b \" (c)|*".into())));
        assert_eq!(read("2 (a, \"b)\")"), Some((2, "a|b)".into())));
        assert_eq!(read("FIRST 1 (a,b)"), Some((1, "a|b".into())));
        assert_eq!(read("any 2(a,b,c) "), Some((2, "a|b|c".into())));
        assert_eq!(read("any, first"), Some((1, "any|first".into())));
        assert_eq!(read("  "), None);
        let names = Names::parse("Two").expect("names");
        assert!(names.has("two") && !names.has("one"));
        assert!(Names::parse("*").expect("names").has("anybody"));
    }
}
