//! The text in which PostgreSQL stores an expression (`pg_node_tree`).

use memchr::memchr_iter;

/// Precedes the bracketed bytes of a four-byte constant, such as an `integer`.
const FOUR_BYTES: &[u8] = b":constvalue 4 ";

/// Whether an expression contains this number as a constant of type `integer`, or another constant with the same four
/// bytes. Among the 8192 schemas of a database, this finds those that might mint for a shard many times faster than
/// reading their defaults would.
///
/// PostgreSQL writes the bytes of a whole or half word in memory order, each as a number that may be negative
/// (`outDatum` in `outfuncs.c`).
///
/// ```
/// use pg_formats::tree::has_integer;
///
/// let tree = b"{CONST :consttype 23 :constvalue 4 [ -56 0 0 0 0 0 0 0 ]}";
/// # #[cfg(target_endian = "little")]
/// assert!(has_integer(tree, 200) && !has_integer(tree, 56));
/// ```
pub fn has_integer(tree: &[u8], number: i32) -> bool {
    // This is fast because brackets are rare.
    memchr_iter(b'[', tree).any(|place| {
        let (before, after) = tree.split_at(place);
        before.ends_with(FOUR_BYTES)
            && constant(after.split(|byte| *byte == b' ').skip(1))
                .is_some_and(|word| low_half(word) == number)
    })
}

/// Finds the calls of these functions in an expression, including calls inside other calls. Each comes with the
/// function, and with its only argument if that is a constant of type `integer`. A text that is not an expression has
/// no calls.
///
/// ```
/// use pg_formats::tree::calls;
///
/// let tree = b"{FUNCEXPR :funcid 700 :funcresulttype 20 :args ({CONST :consttype 23 :constisnull false \
///              :constvalue 4 [ 5 0 0 0 0 0 0 0 ]}) :location 7}";
/// # #[cfg(target_endian = "little")]
/// assert_eq!(calls(tree, &[700]), [(700, Some(5))]);
/// ```
pub fn calls(tree: &[u8], functions: &[u32]) -> Vec<(u32, Option<i32>)> {
    let tokens = tokens(tree);
    let is_call = |at: &usize| tokens[*at..].starts_with(&[b"{", b"FUNCEXPR", b":funcid"]);
    let calls = (0..tokens.len()).filter(is_call).filter_map(|at| {
        let function = number(tokens.get(at + 3)?)?;
        functions.contains(&function).then(|| (function, only_argument(&tokens[at + 4..])))
    });
    calls.collect()
}

/// Splits an expression into words, as PostgreSQL's `pg_strtok` in `read.c` does. A backslash makes the next byte an
/// ordinary one.
fn tokens(tree: &[u8]) -> Vec<&[u8]> {
    let is_blank = |byte: u8| matches!(byte, b' ' | b'\n' | b'\t');
    let is_bracket = |byte: u8| matches!(byte, b'(' | b')' | b'{' | b'}');
    let (mut tokens, mut rest) = (Vec::new(), tree);
    while let Some(first) = rest.first() {
        let mut end = 1;
        if !is_blank(*first) && !is_bracket(*first) {
            end = 0;
            while let Some(byte) = rest.get(end)
                && !is_blank(*byte)
                && !is_bracket(*byte)
            {
                end += if *byte == b'\\' { 2 } else { 1 };
            }
            end = end.min(rest.len());
        }
        let (token, after) = rest.split_at(end);
        if !is_blank(*first) {
            tokens.push(token);
        }
        rest = after;
    }
    tokens
}

fn number<T: std::str::FromStr>(token: &[u8]) -> Option<T> {
    str::from_utf8(token).ok()?.parse().ok()
}

/// The only argument of a call, named or not, if it is a constant of type `integer`. `call` has the words after the OID
/// of the function.
fn only_argument(call: &[&[u8]]) -> Option<i32> {
    // The fields of a call before its arguments have no brackets.
    let brackets: [&[u8]; 4] = [b"{", b"}", b"(", b")"];
    let place = call.iter().position(|token| *token == b":args" || brackets.contains(token))?;
    let argument = call[place..].strip_prefix(&[b":args".as_slice(), b"(", b"{"])?;
    let (argument, is_named) = match argument.strip_prefix(&[b"NAMEDARGEXPR".as_slice(), b":arg", b"{"]) {
        Some(inner) => (inner, true),
        None => (argument, false),
    };
    let fields = argument.strip_prefix(&[b"CONST".as_slice()])?;
    let (fields, mut after) = fields.split_at(fields.iter().position(|token| brackets.contains(token))?);
    if is_named {
        let name = after.strip_prefix(&[b"}".as_slice()])?;
        after = name.split_at(name.iter().position(|token| brackets.contains(token))?).1;
    }
    after.strip_prefix(&[b"}".as_slice(), b")"])?;
    let field =
        |name: &[u8]| fields.iter().position(|token| *token == name).map(|place| &fields[place + 1..]);
    let is =
        |name: &[u8], value: &[u8]| field(name).and_then(<[_]>::first).is_some_and(|found| *found == value);
    if !is(b":consttype", b"23") || !is(b":constisnull", b"false") {
        return None;
    }
    let bytes =
        field(b":constvalue")?.strip_prefix(&[b"4".as_slice(), b"["])?.strip_suffix(&[b"]".as_slice()])?;
    constant(bytes.iter().copied()).map(low_half)
}

/// The number in the first four bytes of a word.
fn low_half(word: u64) -> i32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// The number whose bytes are written in these words.
fn constant<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<u64> {
    let read = |byte| str::from_utf8(byte).ok()?.parse::<i16>().ok();
    let mut bytes = [0; 8];
    let mut count = 0;
    for (place, byte) in bytes.iter_mut().zip(words.map_while(read)) {
        *place = byte.to_le_bytes()[0];
        count += 1;
    }
    match count {
        8 => Some(u64::from_ne_bytes(bytes)),
        4 => bytes.first_chunk().map(|half| u32::from_ne_bytes(*half).into()),
        _ => None,
    }
}
