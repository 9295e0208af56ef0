//! Comments that a move gives its schemas, and names for a command line that a person copies.

/// Whether this is the comment of the schema that moves, on the source.
pub fn of_source(comment: &str) -> bool {
    comment.starts_with("moves with shard ")
}

/// Whether this is the comment of the copy on the target.
pub fn of_copy(comment: &str) -> bool {
    comment.starts_with("idgenctl move ")
}

/// A name as one word of a shell: others may have chosen it.
pub fn shell(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.into();
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    /// Promise: a command that is copied from a hint runs nothing that is in a name.
    #[test]
    fn a_name_is_one_word_of_a_shell() {
        assert_eq!(super::shell("insta5"), "insta5");
        assert_eq!(super::shell("a b"), "'a b'");
        assert_eq!(super::shell("'; true '"), "''\\''; true '\\'''");
    }
}
