//! The plan of a move, which does not change during a run.

use std::collections::BTreeSet;

use idgen_ids::Shard;

use super::names::Names;
use super::sides::{Place, Servers, Side};
use crate::cli::{Cli, Move as Arguments};
use crate::commands::marker::Begun;
use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::idgen::{columns, library};
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::text::plain;
use crate::topology::fleet::Member;

pub struct Plan<'a> {
    pub cli: &'a Cli,
    pub arguments: &'a Arguments,
    pub names: Names,
    pub shard: Shard,
    /// The marker at the beginning of this run.
    pub begun: Option<Begun>,
    pub source: Side<'a>,
    pub target: Side<'a>,
    /// The system identifier of the target and the OID of its database. Empty if an undo cannot reach it.
    pub to: String,
    /// Servers that an undo cannot reach.
    pub away: Vec<&'a Server>,
    /// Moves from other servers that have not ended.
    pub others: Vec<(&'a Server, Begun)>,
    /// Other servers whose lists have the shard.
    pub minting: Vec<String>,
    /// Source and target, as the owner of the schema.
    pub as_owner: [Place<'a>; 2],
    /// The name of that role; empty if it is not known.
    pub owner: String,
}

impl<'a> Plan<'a> {
    pub fn of(
        cli: &'a Cli,
        arguments: &'a Arguments,
        servers: &'a Servers,
        as_owner: &'a [Server; 2],
    ) -> Result<Plan<'a>> {
        let schema = arguments.schema.clone();
        let [moving, moved] = ["moving", "moved"].map(|end| format!("{schema}_{end}"));
        // The server would truncate it.
        if moving.len() > 63 {
            return Err(Error::Usage("the name of the schema is too long for _moving to be appended".into()));
        }
        if plain(&schema) != schema {
            return Err(Error::Usage("the name of the schema has characters that hints cannot show".into()));
        }
        let mut names = Names { schema, moving, moved, mark: String::new() };
        let ([source, target], away, members) = servers.find(arguments.undo)?;
        let (session, system) = (&source[0].session, &source[0].node.system);
        let begun = Begun::of(session, &names.schema)?;
        let shard = find_shard(session, &names, begun.as_ref(), arguments.shard)?;
        let (mut others, mut minting) = (Vec::new(), Vec::new());
        for member in members.iter().chain(target.first()).filter(|_| !arguments.undo) {
            let moves = Begun::all(&member.session)?.into_iter();
            others.extend(moves.map(|begun| (member.server, begun)));
        }
        for Member { server, session, .. } in members.iter().filter(|_| !arguments.undo) {
            // Without the library, or if it has never been used, it mints for none.
            let state = match library::state(session) {
                Err(error) if error.code() == "58P01" => None,
                state => state?.filter(|state| state.preloaded || state.mark_ms.is_some()),
            };
            let has_it = state.and_then(|state| state.shards()).is_some_and(|list| list.contains(shard));
            minting.extend(has_it.then(|| server.name.clone()));
        }
        let place = |system: &str, session: &Session| {
            let oid = session.value("SELECT oid FROM pg_database WHERE datname = current_database()", &[])?;
            Ok(format!("{system}/{}", oid.parse::<u32>().unwrap_or_default()))
        };
        names.mark = format!("idgenctl move {} of {}", i32::from(shard), place(system, session)?);
        let to = target.first().map(|member| place(&member.node.system, &member.session)).transpose()?;
        // The undo of a move to a server or database that no longer exists leaves this one alone.
        let is_other = |begun: &Begun| arguments.undo && to.as_ref().is_some_and(|to| *to != begun.to);
        let target = if begun.as_ref().is_some_and(is_other) { &[][..] } else { &target };
        let source = Side::of("source", servers.from(), &source, &names.mark);
        let target = Side::of("target", servers.to(), target, &names.mark);
        let as_owner = as_owner.each_ref().map(|server| Place::new("the owner", server, &names.mark, false));
        let owner = match &arguments.owner {
            Some(_) if !arguments.undo => owner_role(&as_owner, [source.primary(), target.primary()])?,
            _ => begun.as_ref().map(|begun| begun.owner.clone()).unwrap_or_default(),
        };
        let to = to.unwrap_or_default();
        Ok(Plan {
            cli,
            arguments,
            names,
            shard,
            begun,
            source,
            target,
            to,
            away,
            others,
            minting,
            as_owner,
            owner,
        })
    }

    pub fn marker(&self, opened: bool) -> Begun {
        let (shard, schema) = (i32::from(self.shard) as u16, self.names.schema.clone());
        Begun { shard, schema, to: self.to.clone(), owner: self.owner.clone(), opened }
    }

    /// The comment of a schema, which may be empty; none if there is no such schema.
    pub fn comment_on(&self, place: &Place<'_>, schema: &str) -> Result<Option<String>> {
        let rows = place.query(
            "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1",
            &[schema],
        )?;
        Ok(rows.iter().next().map(|row| row.string(0)))
    }
}

/// The shard, from the marker or, without one, from the defaults in the schema and the command line.
fn find_shard(session: &Session, names: &Names, begun: Option<&Begun>, given: Option<u16>) -> Result<Shard> {
    let mut shards: BTreeSet<i32> = match begun {
        Some(begun) => [begun.shard.into()].into(),
        None => {
            let minting = columns::minting(session)?;
            let own = minting.iter().filter(|column| names.has(&column.schema));
            own.flat_map(|column| column.shards.clone()).collect()
        }
    };
    shards.extend(given.map(i32::from));
    match shards.first() {
        None => refused(
            format!("no default in schema {} names a shard", names.schema),
            "Check the name of the schema, check that source and target are not swapped, or name the shard with --shard.",
        ),
        Some(shard) if shards.len() == 1 => {
            Shard::try_from(*shard).map_err(|error| Error::Usage(error.to_string()))
        }
        Some(_) => refused(
            format!("the schema mints for more than one shard: {shards:?}"),
            "A schema moves with one shard: give all its defaults the same one.",
        ),
    }
}

/// The role that copies the schema.
fn owner_role(owner: &[Place<'_>; 2], places: [&Place<'_>; 2]) -> Result<String> {
    let role = owner[0].value("SELECT current_user", &[])?;
    for (owner, place) in owner.iter().zip(places) {
        let server = "SELECT concat_ws(' ', current_database(), pg_postmaster_start_time())";
        let is_there = owner.value(server, &[])? == place.value(server, &[])?;
        let is_it = owner.value("SELECT current_user", &[])? == role;
        if !is_there || !is_it || owner.value("SHOW is_superuser", &[])? == "on" {
            return refused(
                format!("--owner does not connect to the database on {} as an ordinary role", place.role),
                "Give only what differs for the role that owns the schema, such as user=app: one name on both servers.",
            );
        }
    }
    Ok(role)
}
