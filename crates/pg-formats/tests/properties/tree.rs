use pg_formats::tree::has_integer;
use proptest::prelude::*;

/// A constant as PostgreSQL writes it, with bytes of a signed or an unsigned `char`, in a word or half of one.
fn written(number: i32, signed: bool, half: bool) -> String {
    let word = if half { number.to_ne_bytes().to_vec() } else { i64::from(number).to_ne_bytes().to_vec() };
    let bytes: Vec<String> = word
        .iter()
        .map(|byte| if signed { byte.cast_signed().to_string() } else { byte.to_string() })
        .collect();
    format!("{{CONST :consttype 23 :location 7 :constvalue 4 [ {} ]}}", bytes.join(" "))
}

proptest! {
    /// The numbers of an expression are found wherever they are in it, and no others.
    #[test]
    fn the_numbers_of_an_expression_are_found(
        numbers in prop::collection::vec(any::<i32>(), 0..4), other in any::<i32>(), signed: bool, half: bool,
    ) {
        let tree: String = numbers.iter().map(|number| written(*number, signed, half)).collect();
        for number in &numbers {
            prop_assert!(has_integer(tree.as_bytes(), *number));
        }
        prop_assert_eq!(has_integer(tree.as_bytes(), other), numbers.contains(&other));
    }

    /// Promise 5: what no server has written is read without a panic.
    #[test]
    fn any_tree_is_searched(tree in "(:constvalue 4 \\[ |-?[0-9]{1,3} |\\]|.){0,40}", number in any::<i32>()) {
        has_integer(tree.as_bytes(), number);
    }
}
