//! Makes texts that others chose safe for a terminal, a log or a program.

/// Whether a character could control a terminal, or forge a line or a quote: all but ASCII, cased and East Asian letters.
fn is_dangerous(c: char) -> bool {
    let is_east_asian = matches!(c, '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}');
    let is_cased = (c.is_lowercase() || c.is_uppercase()) && !matches!(c, '\u{a78b}' | '\u{a78c}');
    c.is_control() || !(c.is_ascii() || is_cased || is_east_asian)
}

/// A text, or its beginning. Only a hostile server sends longer ones.
pub fn cut(text: &str) -> String {
    text.chars().take(10_000).collect()
}

/// Replaces blanks and dangerous characters with single spaces: more of them could begin a line at a terminal's width.
pub fn plain(text: &str) -> String {
    let text = cut(text);
    let words = text.split(|c: char| is_dangerous(c) || c.is_whitespace()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// A name in quotes, which it cannot end.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// A name, in quotes unless it could not be taken for the text around it.
pub fn name(text: &str) -> String {
    let is_plain = text.chars().all(|c| matches!(c, '_' | '.' | '0'..='9' | 'a'..='z'));
    if is_plain { text.into() } else { quoted(text) }
}

/// What a server says, in quotes, which it cannot end.
pub fn said(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "'"))
}

pub fn span(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1000.0),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// JSON on one line, with dangerous characters escaped.
pub fn json(value: &serde_json::Value) -> String {
    let mut text = String::new();
    for c in value.to_string().chars() {
        if is_dangerous(c) {
            text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{json, plain};

    /// Promise: no name controls a terminal or forges output, not even in JSON, where programs still read it unchanged.
    #[test]
    fn no_name_controls_a_terminal() {
        let name = "a\u{1b}[2J\u{9b}31m\n\u{7f}é\u{202e}b\u{2066}\u{2028}\u{2029}\u{2069}\u{202a}\u{ad}\u{206a}\u{feff}\u{fffb}\u{e0041}";
        assert_eq!(plain(name), "a [2J 31m é b");
        assert_eq!(plain("a\u{3164}   \u{2003}\u{2800}\tb"), "a b");
        assert_eq!(plain("x\u{144a}\u{2019}\u{1fbd}\u{a78c}\u{ff07}y Ünï 名前 이름"), "x y Ünï 名前 이름");
        assert_eq!(plain(&"é".repeat(1_000_000)).chars().count(), 10_000);
        let value = serde_json::json!([name]);
        let text = json(&value);
        assert_eq!(plain(&text), text);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).ok(), Some(value));
    }
}
