//! Reading Rust and Markdown as far as these tests need it.

/// The words and punctuation of a Rust file, with their lines; `::` is one token. Comments and literals are left
/// out, because names in them are not dependencies.
pub fn rust_tokens(source: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = source.chars().collect();
    let starts = |at: usize, text: &str| text.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    let mut tokens: Vec<(usize, String)> = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < chars.len() {
        let begin = at;
        if starts(at, "//") {
            at += chars[at..].iter().take_while(|&&c| c != '\n').count();
        } else if starts(at, "/*") {
            let mut depth = 0;
            while at < chars.len() {
                let (opens, closes) = (starts(at, "/*"), starts(at, "*/"));
                depth = depth + usize::from(opens) - usize::from(closes);
                at += if opens || closes { 2 } else { 1 };
                if depth == 0 {
                    break;
                }
            }
        } else if let Some(end) = end_of_raw_string(&chars, at) {
            at = end;
        } else if chars[at] == '"' {
            at += 1;
            while at < chars.len() && chars[at] != '"' {
                at += if chars[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if chars[at] == '\'' && chars.get(at + 1) == Some(&'\\') {
            at += 3;
            while at < chars.len() && chars[at] != '\'' {
                at += 1;
            }
            at += 1;
        } else if chars[at] == '\'' && chars.get(at + 2) == Some(&'\'') {
            at += 3;
        } else if is_of_word(chars[at]) {
            while at < chars.len() && is_of_word(chars[at]) {
                at += 1;
            }
            tokens.push((line, chars[begin..at].iter().collect()));
        } else if starts(at, "::") {
            at += 2;
            tokens.push((line, "::".into()));
        } else {
            at += 1;
            if !chars[begin].is_whitespace() {
                tokens.push((line, chars[begin].to_string()));
            }
        }
        line += chars[begin..at.min(chars.len())].iter().filter(|&&c| c == '\n').count();
    }
    tokens
}

/// The end of the raw string that begins at a character, if one does: r"...", r#"..."#, and those of bytes and C.
fn end_of_raw_string(chars: &[char], begin: usize) -> Option<usize> {
    if begin > 0 && is_of_word(chars[begin - 1]) {
        return None;
    }
    let rest = &chars[begin..];
    let prefix =
        rest.iter().take(2).position(|&c| c == 'r').filter(|&r| r == 0 || matches!(rest[0], 'b' | 'c'))?;
    let hashes = rest[prefix + 1..].iter().take_while(|&&c| c == '#').count();
    let body = prefix + 1 + hashes;
    if rest.get(body) != Some(&'"') {
        return None;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let length = rest[body + 1..].windows(end.len()).position(|window| window == end)?;
    Some(begin + body + 1 + length + end.len())
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A part of a Markdown page.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// The text between backticks.
    Code(String),
    /// A word outside of them.
    Word(String),
    /// The end of a sentence or of a part of one that ends with a semicolon.
    Stop,
    /// The end of a paragraph or of a table's cell.
    End,
}

/// The parts of a Markdown page, each with its line. Blocks of code are left out.
pub fn page_parts(page: &str) -> Vec<(usize, Part)> {
    let mut parts = Vec::new();
    let mut code: Option<(usize, String)> = None;
    let mut in_block = false;
    for (number, line) in (1..).zip(page.lines()) {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
            continue;
        }
        if in_block {
            continue;
        }
        if line.trim().is_empty() {
            parts.push((number, Part::End));
            code = None; // a single backtick hides no more than its paragraph
        }
        let mut word = String::new();
        let mut chars = line.chars().chain(['\n']).peekable();
        while let Some(c) = chars.next() {
            if let Some((_, text)) = &mut code {
                if c != '`' {
                    text.push(if c == '\n' { ' ' } else { c });
                } else if let Some((begin, text)) = code.take() {
                    parts.push((begin, Part::Code(text)));
                }
                continue;
            }
            if is_of_word(c) {
                word.push(c);
                continue;
            }
            if !word.is_empty() {
                parts.push((number, Part::Word(std::mem::take(&mut word))));
            }
            match c {
                '`' => code = Some((number, String::new())),
                '|' => parts.push((number, Part::End)),
                ';' => parts.push((number, Part::Stop)),
                '.' if chars.peek().is_none_or(|next| next.is_whitespace()) => {
                    parts.push((number, Part::Stop))
                }
                _ => {}
            }
        }
    }
    parts
}
