use pg_formats::tree::{calls, has_integer};
use proptest::prelude::*;

/// A part of an expression.
#[derive(Debug, Clone)]
enum Node {
    /// A constant of type `integer`, or null.
    Integer(Option<i32>),
    /// A constant of another type with the same bytes.
    Smallint(i32),
    /// A call, and the name of its arguments if they are named.
    Call(u32, Vec<Node>, Option<String>),
    /// Another node with others in it.
    Other(Vec<Node>),
}

fn node() -> impl Strategy<Value = Node> {
    let leaf =
        prop_oneof![any::<Option<i32>>().prop_map(Node::Integer), any::<i32>().prop_map(Node::Smallint)];
    leaf.prop_recursive(4, 30, 3, |inner| {
        let inner = prop::collection::vec(inner, 0..3);
        // Users may choose any argument names.
        let name =
            prop::option::of("[a-z]{1,5}|[ {}()\\\\:a]{1,9}|\\}\\) \\{FUNCEXPR :funcid 1 :args <> \\}");
        prop_oneof![
            (1_u32..4, inner.clone(), name)
                .prop_map(|(function, args, name)| Node::Call(function, args, name)),
            inner.prop_map(Node::Other),
        ]
    })
}

impl Node {
    /// The node in the format of `outfuncs.c`.
    fn text(&self) -> String {
        let constant = |kind, number: Option<i32>| {
            let bytes = written(number.unwrap_or(0), true, false);
            let value = bytes.split_once(":constvalue ").map_or("", |(_, value)| value);
            let value = if number.is_some() { value } else { "<>}" };
            format!(
                "{{CONST :consttype {kind} :constisnull {} :location -1 :constvalue {value}",
                number.is_none()
            )
        };
        let list = |nodes: &[Node], name: &Option<String>| {
            let one = |node: &Node| match name {
                Some(name) => {
                    format!("{{NAMEDARGEXPR :arg {} :name {} :argnumber 0}}", node.text(), escaped(name))
                }
                None => node.text(),
            };
            let texts: Vec<String> = nodes.iter().map(one).collect();
            if texts.is_empty() { "<>".to_owned() } else { format!("({})", texts.join(" ")) }
        };
        match self {
            Node::Integer(number) => constant(23, *number),
            Node::Smallint(number) => constant(21, Some(*number)),
            Node::Call(function, args, name) => {
                let args = list(args, name);
                format!(
                    "{{FUNCEXPR :funcid {function} :funcresulttype 20 :inputcollid 0 :args {args} :location 7}}"
                )
            }
            Node::Other(nodes) => {
                format!("{{COALESCEEXPR :coalescetype 20 :args {} :location -1}}", list(nodes, &None))
            }
        }
    }

    /// Collects the calls of the node, in the order of the text.
    fn calls(&self, found: &mut Vec<(u32, Option<i32>)>) {
        let inner = match self {
            Node::Call(function, args, _) => {
                let only = if let [Node::Integer(number)] = args[..] { number } else { None };
                found.push((*function, only));
                args
            }
            Node::Other(nodes) => nodes,
            _ => return,
        };
        inner.iter().for_each(|node| node.calls(found));
    }
}

/// A name as `outToken` writes it.
fn escaped(name: &str) -> String {
    let special = |c: char| " \n\t(){}\\".contains(c);
    name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// A constant as PostgreSQL writes it: with signed or unsigned bytes, in a word or half of one.
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

    /// The calls of a function are found wherever they are in an expression. Text inside a name is not a call.
    #[test]
    fn the_calls_of_an_expression_are_found(node in node()) {
        let mut expected = Vec::new();
        node.calls(&mut expected);
        expected.retain(|(function, _)| *function != 3);
        prop_assert_eq!(calls(node.text().as_bytes(), &[1, 2]), expected, "{}", node.text());
    }

    /// Promise 5: text that no server has written is read without a panic, whatever part of an expression it is.
    #[test]
    fn any_bytes_are_searched_for_calls(node in node(), place: usize, bytes: Vec<u8>, number in any::<i32>()) {
        let text = node.text();
        let (before, after) = text.as_bytes().split_at(place % text.len());
        for tree in [before, after, &[before, &bytes].concat(), &[before, &bytes, after].concat()] {
            calls(tree, &[1, 2]);
            has_integer(tree, number);
        }
    }

    /// Promise 5: text that no server has written is read without a panic.
    #[test]
    fn any_tree_is_searched(tree in "(:constvalue 4 \\[ |-?[0-9]{1,3} |\\]|.){0,40}", number in any::<i32>()) {
        has_integer(tree.as_bytes(), number);
    }
}
