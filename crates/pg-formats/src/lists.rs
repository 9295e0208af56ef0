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
