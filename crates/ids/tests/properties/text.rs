use std::collections::HashSet;

use idgen_ids::text::{BadText, from_shortcode, from_text, scatter, shortcode, text};
use proptest::prelude::*;

/// Media ids and the codes in the links to them, as published by slang.cx/instagram-id, InstaPy/instapy-research, a
/// question of 2021-11-27 about CWvxAY7B0ci, and a post about FastAPI.
#[test]
fn published_short_codes() {
    for (id, code) in [
        (908_540_701_891_980_503, "ybyPRoQWzX"),
        (1_661_953_437_569_832_666, "BcQcdiXltba"),
        (2_715_604_631_366_879_010, "CWvxAY7B0ci"),
        (2_805_452_400_384_505_271, "Cbu-BgfL3W3"),
    ] {
        assert_eq!(shortcode(id), code);
        assert_eq!(from_shortcode(code), Ok(id));
    }
}

#[test]
fn forms_at_the_edges() {
    for (id, code, sortable) in [
        (0, "A", "8000000000000"),
        (1, "B", "8000000000001"),
        (63, "_", "800000000001Z"),
        (64, "BA", "8000000000020"),
        (i64::MAX, "H__________", "FZZZZZZZZZZZZ"),
        (i64::MIN, "IAAAAAAAAAA", "0000000000000"),
        (-1, "P__________", "7ZZZZZZZZZZZZ"),
    ] {
        assert_eq!((shortcode(id).as_str(), text(id).as_str()), (code, sortable));
        assert_eq!((from_shortcode(code), from_text(sortable)), (Ok(id), Ok(id)));
    }
    let no_digit = |character, position| Err(BadText::Character { character, position });
    for (code, why) in [
        ("", Err(BadText::Length(0))),
        ("BBBBBBBBBBBB", Err(BadText::Length(12))),
        ("é", no_digit('é', 1)),
        ("éééééééééééé", Err(BadText::Length(12))),
        ("Bé+", no_digit('é', 2)),
        ("B+", no_digit('+', 2)),
        (" B", no_digit(' ', 1)),
        ("B=", no_digit('=', 2)),
        ("AB", Err(BadText::LeadingZero)),
        ("AA", Err(BadText::LeadingZero)),
        ("QAAAAAAAAAA", Err(BadText::TooGreat)),
        ("___________", Err(BadText::TooGreat)),
    ] {
        assert_eq!(from_shortcode(code), why, "{code}");
    }
    for (sortable, why) in [
        ("", Err(BadText::Length(0))),
        ("800000000000", Err(BadText::Length(12))),
        ("80000000000000", Err(BadText::Length(14))),
        ("800000000000z", no_digit('z', 13)),
        ("8O00000000000", no_digit('O', 2)),
        ("8-00000000000", no_digit('-', 2)),
        ("\u{200b}000000000000", no_digit('\u{200b}', 1)),
        ("G000000000000", Err(BadText::TooGreat)),
        ("ZZZZZZZZZZZZZ", Err(BadText::TooGreat)),
    ] {
        assert_eq!(from_text(sortable), why, "{sortable}");
    }
}

/// The sentences that PostgreSQL shows for a text that does not stand for an id.
#[test]
fn a_bad_text_is_told_in_a_sentence() {
    let why = |text| from_shortcode(text).unwrap_err().to_string();
    assert_eq!(why(""), "Its length in characters is 0.");
    assert_eq!(why("B\n"), "The character \"\\n\" at position 2 is not one of its digits.");
    assert_eq!(why("___________"), "It stands for a number of more than 64 bits.");
    assert_eq!(why("AB"), "It begins with \"A\", a leading zero.");
}

proptest! {
    /// Each form leads back to its id.
    #[test]
    fn forms_are_undone(id in prop_oneof![any::<i64>(), -5000..5000i64]) {
        prop_assert_eq!(from_shortcode(&shortcode(id)), Ok(id));
        prop_assert_eq!(from_text(&text(id)), Ok(id));
        prop_assert_eq!(scatter(scatter(id)), id);
    }

    /// Promise 5: any text is refused, or is the one text of its id.
    #[test]
    fn any_text_is_the_text_of_its_id_or_refused(
        any in ".{0,15}", code in "[A-Za-z0-9_-]{0,12}",
        sortable in "[0-9A-Za-z]{12,14}|[0-9A-HJKMNP-TV-Z]{13}",
    ) {
        for given in [any, code, sortable] {
            if let Ok(id) = from_shortcode(&given) {
                prop_assert_eq!(shortcode(id), given.as_str());
            }
            if let Ok(id) = from_text(&given) {
                prop_assert_eq!(text(id), given.as_str());
            }
        }
    }

    /// The texts, compared byte by byte, are in the order of the ids.
    #[test]
    fn texts_sort_as_their_ids(a: i64, b: i64, near in -70..70i64) {
        for b in [b, a.saturating_add(near), a ^ i64::MIN, 0] {
            prop_assert_eq!(text(a).as_bytes().cmp(text(b).as_bytes()), a.cmp(&b));
        }
    }

    /// 2^n ids in a row fall into all 2^n equal parts of the range, one into each.
    #[test]
    fn neighbours_are_scattered_over_the_whole_range(first: i64, n in 1..12u32) {
        let parts: HashSet<i64> =
            (0..1 << n).map(|k| scatter(first.wrapping_add(k)) >> (64 - n)).collect();
        prop_assert_eq!(parts.len(), 1 << n);
    }
}
