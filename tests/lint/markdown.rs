//! The parts of a Markdown page.

/// The paragraphs and table cells of a page, without blocks of code, each with the number of its first line.
pub fn paragraphs(page: &str) -> Vec<(usize, String)> {
    let mut paragraphs = vec![(1, String::new())];
    let mut in_block = false;
    for (number, line) in (1..).zip(page.lines()) {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        if is_fence || in_block {
            continue;
        }
        let is_row = line.starts_with('|');
        if is_row || line.trim().is_empty() {
            paragraphs.push((number, String::new()));
        }
        for (cell, text) in line.split(|c| is_row && c == '|').enumerate() {
            if cell > 0 {
                paragraphs.push((number, String::new()));
            }
            let (first, paragraph) = paragraphs.last_mut().expect("a paragraph");
            if paragraph.trim().is_empty() {
                *first = number;
            }
            *paragraph += text;
            paragraph.push('\n');
        }
    }
    paragraphs
}

/// The text between backticks in a paragraph.
pub fn code_spans(paragraph: &str) -> impl Iterator<Item = &str> {
    paragraph.split('`').skip(1).step_by(2)
}

/// The blocks of code on a page, each with its line, its language and its lines.
pub fn code_blocks(page: &str) -> Vec<(usize, &str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let block = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            blocks.push((number, language, block.collect()));
        }
    }
    blocks
}
