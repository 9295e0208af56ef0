//! Other forms of an id.

use pgrx::pg_extern;

use crate::error::{Error, or_raise};
use crate::forms;
use crate::pg::{Call, hot_entry};

#[pg_extern(sql = false)]
fn snowflake_shortcode(id: i64) -> String {
    forms::shortcode(id)
}

// Texts are taken as bytes, for those of a database with another encoding are no `str`. What is no UTF-8
// is replaced, and is in no form.

#[pg_extern(sql = false)]
fn snowflake_from_shortcode(code: &[u8]) -> i64 {
    let code = String::from_utf8_lossy(code);
    or_raise(forms::from_shortcode(&code).map_err(|why| Error::BadShortcode(code.into_owned(), why)))
}

#[pg_extern(sql = false)]
fn snowflake_text(id: i64) -> String {
    forms::text(id)
}

#[pg_extern(sql = false)]
fn snowflake_from_text(text: &[u8]) -> i64 {
    let text = String::from_utf8_lossy(text);
    or_raise(forms::from_text(&text).map_err(|why| Error::BadText(text.into_owned(), why)))
}

// Bit reversal is its own inverse.
hot_entry!(snowflake_scatter_wrapper, scatter, |_| Err::<i64, _>(Error::Null("id")));
hot_entry!(snowflake_unscatter_wrapper, scatter, |_| Err::<i64, _>(Error::Null("id")));

fn scatter(call: Call) -> Option<i64> {
    call.int8(0).map(forms::scatter)
}
