//! Other forms of an id: two texts, and a number scattered over the whole range. Each is a one-to-one mapping of every
//! `bigint`.
//!
//! A text is accepted only in the form in which it is written, so that an id does not have two of them.

use std::fmt;

/// The digits of a text, in ascending order, and the number of bits in each.
struct Digits {
    digits: &'static str,
    bits: u32,
}

/// Base64url (RFC 4648, section 5) of a number rather than bytes, as in links to Instagram posts.
const BASE64URL: Digits =
    Digits { digits: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", bits: 6 };

/// Douglas Crockford's base 32 (<https://www.crockford.com/base32.html>). The digits ascend in ASCII.
const CROCKFORD: Digits = Digits { digits: "0123456789ABCDEFGHJKMNPQRSTVWXYZ", bits: 5 };

/// The most digits of a short code: 64 bits, 6 in each.
const SHORTCODE_DIGITS: usize = 11;
/// The digits of a sortable text: 64 bits, 5 in each.
const TEXT_DIGITS: usize = 13;

/// The reason why a text does not stand for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadText {
    /// The wrong number of characters.
    Length(usize),
    /// A character that is not a digit.
    Character {
        /// The character.
        character: char,
        /// Its position, counted from 1.
        position: usize,
    },
    /// A number of more than 64 bits.
    TooGreat,
    /// A leading zero: the number can be written shorter.
    LeadingZero,
}

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadText::Length(length) => write!(f, "Its length in characters is {length}."),
            BadText::Character { character, position } => {
                write!(
                    f,
                    "The character \"{}\" at position {position} is not one of its digits.",
                    character.escape_default()
                )
            }
            BadText::TooGreat => f.write_str("It stands for a number of more than 64 bits."),
            BadText::LeadingZero => f.write_str("It begins with \"A\", a leading zero."),
        }
    }
}

impl std::error::Error for BadText {}

/// The beginning of a text given by the user, escaped to ASCII: it can be sent in any encoding, and invisible
/// characters are shown.
pub fn excerpt(text: &str) -> String {
    const CHARACTERS: usize = 50;
    let dots = if text.chars().nth(CHARACTERS).is_some() { "..." } else { "" };
    text.chars().take(CHARACTERS).flat_map(char::escape_default).chain(dots.chars()).collect()
}

impl Digits {
    fn write(&self, number: u64, length: usize) -> String {
        let mask = (1 << self.bits) - 1;
        let digits = self.digits.as_bytes();
        let places = (0..length as u32).rev();
        places.map(|place| char::from(digits[(number >> (place * self.bits) & mask) as usize])).collect()
    }

    /// Reads up to 21 digits.
    fn read(&self, text: &str) -> Result<u64, BadText> {
        let mut number: u128 = 0;
        for (position, character) in (1..).zip(text.chars()) {
            let digit = self.digits.find(character).ok_or(BadText::Character { character, position })?;
            number = number << self.bits | digit as u128;
        }
        u64::try_from(number).map_err(|_| BadText::TooGreat)
    }
}

/// Instagram's short code: the id, read as unsigned, in base64url without leading zeros.
///
/// ```
/// use idgen_ids::text::shortcode;
///
/// assert_eq!(shortcode(908_540_701_891_980_503), "ybyPRoQWzX");
/// ```
pub fn shortcode(id: i64) -> String {
    let number = id.cast_unsigned();
    let length = number.checked_ilog2().unwrap_or(0) / BASE64URL.bits + 1;
    BASE64URL.write(number, length as usize)
}

/// Reads a short code.
///
/// # Errors
/// A [`BadText`] that says what is wrong with the text.
///
/// ```
/// use idgen_ids::text::{BadText, from_shortcode};
///
/// assert_eq!(from_shortcode("ybyPRoQWzX"), Ok(908_540_701_891_980_503));
/// assert_eq!(from_shortcode("AybyPRoQWzX"), Err(BadText::LeadingZero));
/// ```
pub fn from_shortcode(text: &str) -> Result<i64, BadText> {
    let length = text.chars().count();
    if !(1..=SHORTCODE_DIGITS).contains(&length) {
        return Err(BadText::Length(length));
    }
    let number = BASE64URL.read(text)?;
    if length > 1 && text.starts_with('A') {
        return Err(BadText::LeadingZero);
    }
    Ok(number.cast_signed())
}

/// The sign bit. Flipping it makes negative numbers sort below the others in unsigned order.
const SIGN: u64 = 1 << 63;

/// The id plus 2^63 in Crockford's base 32: 13 digits, which sort bytewise in the order of the `bigint`.
///
/// ```
/// use idgen_ids::text::text;
///
/// assert_eq!(text(1), "8000000000001");
/// assert!(text(-1) < text(0) && text(9) < text(10));
/// ```
pub fn text(id: i64) -> String {
    CROCKFORD.write(id.cast_unsigned() ^ SIGN, TEXT_DIGITS)
}

/// Reads a sortable text.
///
/// # Errors
/// A [`BadText`] that says what is wrong with the text.
///
/// ```
/// use idgen_ids::text::{BadText, from_text};
///
/// assert_eq!(from_text("8000000000001"), Ok(1));
/// assert_eq!(from_text("8O00000000001"), Err(BadText::Character { character: 'O', position: 2 }));
/// ```
pub fn from_text(text: &str) -> Result<i64, BadText> {
    let length = text.chars().count();
    if length != TEXT_DIGITS {
        return Err(BadText::Length(length));
    }
    Ok((CROCKFORD.read(text)? ^ SIGN).cast_signed())
}

/// Reverses the bits of an id, so that the bits that change most from one id to the next become the most significant.
/// Applied twice, it returns the id.
///
/// ```
/// use idgen_ids::text::scatter;
///
/// assert_eq!(scatter(1), i64::MIN);
/// assert_eq!(scatter(scatter(11_637_205_501_278_089)), 11_637_205_501_278_089);
/// ```
pub fn scatter(id: i64) -> i64 {
    id.reverse_bits()
}
