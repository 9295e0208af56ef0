//! The plan of a move, which does not change during a run.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};

use idgen_ids::Shard;

use super::names::Names;
use super::sides::{Place, Servers, Side};
use crate::cli::{Cli, Move as Arguments};
use crate::commands::marker::Begun;
use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::idgen::columns;
use crate::terminal::error::{Error, Result, refused};
use crate::terminal::text::{cut, plain, said};
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
    /// The system identifier of the target and the OID of its database.
    pub to: String,
    /// All other servers.
    pub others: Vec<Place<'a>>,
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
        if moving.len() > 63 || plain(&schema) != schema {
            let what =
                "the schema's name is too long for _moving to be appended, or cannot be shown in hints";
            return Err(Error::Usage(what.into()));
        }
        let mut names = Names { schema, moving, moved, ..Names::default() };
        let ([source, target], members) = servers.find()?;
        let (session, system) = (&source[0].session, &source[0].node.system);
        let place = |system: &str, session: &Session| {
            let oid = session.value("SELECT oid FROM pg_database WHERE datname = current_database()", &[])?;
            Ok(format!("{system}/{}", oid.parse::<u32>().unwrap_or_default()))
        };
        names.from = place(system, session)?;
        let begun = Begun::of(session, &names.schema, &names.from, false)?;
        // A hostile target must not choose the shard of a move.
        let on_target = Begun::of(&target[0].session, &names.schema, &names.from, true)?;
        let on_target = on_target.filter(|_| begun.is_some() || arguments.undo);
        let random = || RandomState::new().build_hasher().finish();
        names.tokens = [&begun, &on_target].map(|it| it.as_ref().map_or_else(random, |it| it.token));
        let shard = find_shard(session, &names, begun.as_ref().or(on_target.as_ref()), arguments.shard)?;
        names.mark = format!("idgenctl move {} of {}", i32::from(shard), names.from);
        let to = place(&target[0].node.system, &target[0].session)?;
        if let Some(begun) = begun.as_ref().filter(|begun| begun.to != to) {
            return refused(
                format!("the move was to another server or database, {}", said(&begun.to)),
                "Name that server and that database with --to.",
            );
        }
        let other =
            |it: Member<'a>| Place::new(&*it.server.name, it.server, &names.mark, it.node.has_patroni);
        let others = members.into_iter().map(other).collect();
        let source = Side::of("source", &source, &names.mark);
        let target = Side::of("target", &target, &names.mark);
        let as_owner = as_owner.each_ref().map(|server| Place::new("the owner", server, &names.mark, false));
        let owner = match &arguments.owner {
            Some(_) if !arguments.undo => owner_role(&as_owner, [source.primary(), target.primary()])?,
            _ => begun.as_ref().map(|begun| begun.owner.clone()).unwrap_or_default(),
        };
        Ok(Plan { cli, arguments, names, shard, begun, source, target, to, others, as_owner, owner })
    }

    pub fn marker(&self, opened: bool, on_target: bool) -> Begun {
        let (schema, from) = (self.names.schema.clone(), self.names.from.clone());
        let (shard, to, owner) = (i32::from(self.shard) as u16, self.to.clone(), self.owner.clone());
        let token = self.names.tokens[usize::from(on_target)];
        Begun { shard, schema, from, to, owner, opened, on_target, token }
    }

    /// The comment of a schema, which may be empty; none if there is no such schema.
    pub fn comment_on(&self, place: &Place<'_>, schema: &str) -> Result<Option<String>> {
        let rows = place.session()?.query(
            "SELECT left(obj_description(oid, 'pg_namespace'), 10000) FROM pg_namespace WHERE nspname = $1",
            &[schema],
        )?;
        Ok(rows.iter().next().map(|row| cut(&row.string(0))))
    }
}

/// The shard, from the marker or, without one, from the defaults in the schema and the command line.
fn find_shard(session: &Session, names: &Names, begun: Option<&Begun>, given: Option<u16>) -> Result<Shard> {
    let mut shards: BTreeSet<i32> = match begun {
        Some(begun) => [begun.shard.into()].into(),
        None => {
            let minting = columns::minting(session)?;
            let of = |name: &&String| -> BTreeSet<i32> {
                minting.iter().filter(|it| it.schema == **name).flat_map(|it| it.shards.clone()).collect()
            };
            // Before a move, the other names may be those of other roles.
            let all = [&names.schema, &names.moving, &names.moved];
            let all = if given.is_some() { &all[..1] } else { &all };
            all.iter().map(of).find(|shards| !shards.is_empty()).unwrap_or_default()
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
    let is_superuser = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolsuper AND pg_has_role(oid, 'MEMBER'))";
    for (owner, place) in owner.iter().zip(places) {
        let server = "SELECT concat_ws(' ', current_database(), pg_postmaster_start_time())";
        let is_there = owner.value(server, &[])? == place.value(server, &[])?;
        let is_it = owner.value("SELECT current_user", &[])? == role;
        if !is_there || !is_it || owner.value(is_superuser, &[])? == "t" {
            return refused(
                format!("--owner does not connect to the database on {} as an ordinary role", place.role),
                "Give only what differs for the role that owns the schema, such as user=app: one name on both servers.",
            );
        }
    }
    Ok(role)
}
