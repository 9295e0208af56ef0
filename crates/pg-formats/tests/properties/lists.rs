//! Lists in settings are read as PostgreSQL reads them.

use pg_formats::lists::{Names, elements};

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
