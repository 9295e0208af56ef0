//! `synchronous_standby_names`, as PostgreSQL reads it.

/// What the setting asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct Names {
    /// How many standbys have to acknowledge.
    pub needed: usize,
    /// Who may. `*` is everybody.
    pub names: Vec<String>,
}

impl Names {
    /// What a value asks for. None if it names nobody, or is not one that PostgreSQL takes.
    pub fn parse(text: &str) -> Option<Names> {
        let mut number = None;
        let mut in_brackets = false;
        let all = words(text)?;
        let mut rest = all.as_slice();
        // "ANY" and "FIRST" are only words of the language before a number; otherwise they are names.
        if let [Word::Plain(method), Word::Plain(count), Word::Mark('('), ..] = rest
            && (method.eq_ignore_ascii_case("any") || method.eq_ignore_ascii_case("first"))
        {
            number = Some(count.parse().ok()?);
            (in_brackets, rest) = (true, &rest[3..]);
        } else if let [Word::Plain(count), Word::Mark('('), ..] = rest {
            number = Some(count.parse().ok()?);
            (in_brackets, rest) = (true, &rest[2..]);
        }
        if in_brackets {
            let (Word::Mark(')'), inner) = rest.split_last()? else { return None };
            rest = inner;
        }
        let mut names = Vec::new();
        for (place, word) in rest.iter().enumerate() {
            match (place % 2, word) {
                (0, Word::Plain(name) | Word::Quoted(name)) => names.push(name.clone()),
                (1, Word::Mark(',')) => {}
                _ => return None,
            }
        }
        (rest.len() % 2 == 1).then(|| Names { needed: number.unwrap_or(1), names })
    }

    /// Whether a standby of this name may acknowledge.
    pub fn has(&self, standby: &str) -> bool {
        self.names.iter().any(|name| name == "*" || name.eq_ignore_ascii_case(standby))
    }
}

#[derive(Debug)]
enum Word {
    Plain(String),
    Quoted(String),
    Mark(char),
}

fn words(text: &str) -> Option<Vec<Word>> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' => {}
            '(' | ')' | ',' => words.push(Word::Mark(c)),
            '"' => {
                let mut name = String::new();
                loop {
                    match chars.next()? {
                        '"' if chars.peek() == Some(&'"') => name.extend(chars.next()),
                        '"' => break,
                        c => name.push(c),
                    }
                }
                words.push(Word::Quoted(name));
            }
            c => {
                let mut name = String::from(c);
                while let Some(c) = chars.next_if(|c| !c.is_ascii_whitespace() && !"(),\"".contains(*c)) {
                    name.push(c);
                }
                words.push(Word::Plain(name));
            }
        }
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::Names;

    /// Promise: the program understands who has to acknowledge as PostgreSQL does, and whoever waits for a standby learns
    /// which one.
    #[test]
    fn values_are_read_as_postgresql_reads_them() {
        let read = |text| Names::parse(text).map(|names| (names.needed, names.names.join("|")));
        assert_eq!(read("two"), Some((1, "two".into())));
        assert_eq!(read(" a , \"b \"\" c\",*"), Some((1, "a|b \" c|*".into())));
        assert_eq!(read("2 (a, b)"), Some((2, "a|b".into())));
        assert_eq!(read("FIRST 1 (a,b)"), Some((1, "a|b".into())));
        assert_eq!(read("any 2(a,b,c)"), Some((2, "a|b|c".into())));
        assert_eq!(read("any, first"), Some((1, "any|first".into())));
        for bad in ["", "  ", "2 (a, b", "\"a", "a b", "2 ()", "a,"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    /// Promise: names are compared as PostgreSQL compares them.
    #[test]
    fn case_does_not_matter() {
        let names = Names::parse("Two").expect("names");
        assert!(names.has("two") && !names.has("one"));
        assert!(Names::parse("*").expect("names").has("anybody"));
    }
}
