//! Ids of other systems.

use pgrx::iter::TableIterator;
use pgrx::{name, pg_extern};

use crate::epoch::{Epoch, Timestamptz};
use crate::error::{Error, or_raise};
use crate::layouts::{LAYOUTS, Layout};
use crate::pg::Row;
use crate::settings;

#[pg_extern(sql = false)]
fn snowflake_decode_layout(id: i64, layout: &[u8]) -> Row<4> {
    or_raise(decode(id, &String::from_utf8_lossy(layout)))
}

fn decode(id: i64, name: &str) -> Result<Row<4>, Error> {
    let layout = Layout::find(name).ok_or_else(|| Error::NoLayout(name.into()))?;
    let fields =
        layout.fields(id).ok_or(Error::NotOfLayout { id, layout: layout.name, max: layout.max_id() })?;
    let created_at = fields.created_at(layout.epoch.map_or_else(settings::epoch, Ok)?);
    let number = |field: Option<i32>| field.map(Into::into);
    Ok(Row([Some(created_at.into()), number(fields.shard), number(fields.sequence), number(fields.gene)]))
}

#[pg_extern(sql = false)]
#[allow(clippy::type_complexity)]
fn snowflake_layouts() -> TableIterator<
    'static,
    (
        name!(name, &'static str),
        name!(bits, String),
        name!(unit, String),
        name!(epoch, Option<Timestamptz>),
        name!(shard, Option<&'static str>),
        name!(used_by, &'static str),
    ),
> {
    let own_epoch = settings::epoch().ok();
    TableIterator::new(LAYOUTS.iter().map(move |layout| {
        (
            layout.name,
            layout.bits(),
            layout.unit(),
            layout.epoch.or(own_epoch).map(Epoch::timestamp),
            layout.shard,
            layout.used_by,
        )
    }))
}
