//! Ids of other systems.

use idgen_ids::epoch::{Epoch, Timestamptz};
use idgen_ids::foreign::{ForeignLayout, LAYOUTS};
use pgrx::iter::TableIterator;
use pgrx::{name, pg_extern};

use crate::error::Error;
use crate::pg::call::{Call, Column, hot_entry};
use crate::settings;

hot_entry!(snowflake_decode_layout_wrapper, |_| None::<i64>, |call: Call| {
    let id = call.int8(0).ok_or(Error::Null("id"))?;
    let name = call.text(1).ok_or(Error::Null("layout"))?;
    columns(id, &String::from_utf8_lossy(name)).map(|columns| call.formed_row(columns))
});

fn columns(id: i64, name: &str) -> Result<[Column; 4], Error> {
    let layout = ForeignLayout::find(name).ok_or_else(|| Error::NoLayout(name.into()))?;
    let fields =
        layout.fields(id).ok_or(Error::NotOfLayout { id, layout: layout.name, max: layout.max_id() })?;
    let created_at = fields.created_at(layout.epoch.map_or_else(settings::epoch, Ok)?);
    let number = |field: Option<i32>| field.map_or(Column::Null, Column::Int4);
    Ok([Column::Int8(created_at), number(fields.shard), number(fields.sequence), number(fields.gene)])
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
