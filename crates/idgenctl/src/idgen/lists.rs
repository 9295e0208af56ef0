//! Settings that are lists, as PostgreSQL reads them.

/// What the elements of a list are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Names of libraries, as in `shared_preload_libraries`: without quotes, they end at the next comma.
    Libraries,
    /// Names of schemas, as in `search_path`: without quotes, they are read in lower case.
    Schemas,
}

/// The elements of a list; none if PostgreSQL would not accept it.
pub fn elements(list: &str, of: Of) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = list.trim_ascii_start();
    if rest.is_empty() {
        return Some(found);
    }
    loop {
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
            let end = match of {
                Of::Libraries => rest.find(','),
                Of::Schemas => rest.find(|c: char| c == ',' || c.is_ascii_whitespace()),
            };
            let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
            element = match of {
                Of::Libraries => part.trim_ascii_end().to_owned(),
                Of::Schemas => part.to_ascii_lowercase(),
            };
            rest = after;
            if element.is_empty() {
                return None;
            }
        }
        found.push(element);
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(found);
        }
        rest = rest.strip_prefix(',')?.trim_ascii_start();
    }
}

/// A list of these elements, as a configuration file has it between its quotes.
pub fn text(elements: &[String]) -> String {
    let plain = |element: &str| {
        !element.is_empty()
            && element.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_$/.-".contains(c))
    };
    let quoted = elements.iter().map(|element| {
        if plain(element) { element.clone() } else { format!("\"{}\"", element.replace('"', "\"\"")) }
    });
    quoted.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_postgresql_reads_it() {
        let libraries = |list| elements(list, Of::Libraries);
        let schemas = |list| elements(list, Of::Schemas);
        let some = |elements: &[&str]| Some(elements.iter().map(|&e| e.to_owned()).collect::<Vec<_>>());
        assert_eq!(libraries(""), some(&[]));
        assert_eq!(libraries(" A b , \"c,\"\"d\" ,$libdir/e"), some(&["A b", "c,\"d", "$libdir/e"]));
        assert_eq!(schemas(" \"$user\" , Public,\"A b\""), some(&["$user", "public", "A b"]));
        assert_eq!(schemas("\"\""), some(&[""]));
        for wrong in ["a,", ",", "\"a", "\"a\"b", "a,,b"] {
            assert_eq!((libraries(wrong), schemas(wrong)), (None, None), "{wrong}");
        }
        assert_eq!(schemas("a b"), None);
        let list = ["A b", "c,\"d", "$libdir/e", "plain", ""].map(str::to_owned);
        assert_eq!(libraries(&text(&list)).as_deref(), Some(&list[..]));
    }
}
