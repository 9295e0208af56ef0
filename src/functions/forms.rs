//! Other forms of an id.

use idgen_ids::text;
use pgrx::pg_extern;
use pgrx::pg_sys::panic::ErrorReport;

use crate::error::Error;
use crate::pg::call::{Call, hot_entry};

#[pg_extern(sql = false)]
fn snowflake_shortcode(id: i64) -> String {
    text::shortcode(id)
}

// Texts are read as bytes, because they need not be valid UTF-8 in a database with another encoding. Invalid UTF-8
// is replaced, and the result is never a valid form.

#[pg_extern(sql = false)]
fn snowflake_from_shortcode(code: &[u8]) -> Result<i64, ErrorReport> {
    let code = String::from_utf8_lossy(code);
    Ok(text::from_shortcode(&code).map_err(|why| Error::BadShortcode(code.into_owned(), why))?)
}

#[pg_extern(sql = false)]
fn snowflake_text(id: i64) -> String {
    text::text(id)
}

#[pg_extern(sql = false)]
fn snowflake_from_text(id: &[u8]) -> Result<i64, ErrorReport> {
    let id = String::from_utf8_lossy(id);
    Ok(text::from_text(&id).map_err(|why| Error::BadText(id.into_owned(), why))?)
}

// Bit reversal is its own inverse.
hot_entry!(snowflake_scatter_wrapper, scatter, |_| Err::<i64, _>(Error::Null("id")));
hot_entry!(snowflake_unscatter_wrapper, scatter, |_| Err::<i64, _>(Error::Null("id")));

fn scatter(call: Call) -> Option<i64> {
    call.int8(0).map(text::scatter)
}
