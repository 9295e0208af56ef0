//! The source and the target, each with its standbys, found in the fleet.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::cli::{Cli, Move as Arguments};
use crate::error::{Error, Result};
use crate::fleet::{self, Fleet, Member};
use crate::server::Server;
use crate::session::{Rows, Session};

/// For so long a server may be at work on what is usually quick, before it is taken for one that does not answer.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A server that takes part.
pub struct Place<'a> {
    /// What messages call it: "the source".
    pub role: String,
    /// How to connect to it.
    pub server: &'a Server,
    /// The application_name of its sessions.
    name: RefCell<String>,
    session: RefCell<Option<Rc<Session>>>,
}

impl<'a> Place<'a> {
    pub fn new(role: impl Into<String>, server: &'a Server) -> Place<'a> {
        let name = RefCell::new("idgenctl".into());
        Place { role: role.into(), server, name, session: RefCell::default() }
    }

    /// Gives all later sessions this application_name.
    pub fn set_name(&self, name: &str) {
        *self.name.borrow_mut() = name.into();
        self.forget();
    }

    /// A session of its own.
    pub fn fresh(&self) -> Result<Session> {
        self.server.connect_with(&[("application_name", self.name.borrow().as_str())])
    }

    /// The session for whatever is quick. One that was lost, or is still at work for somebody who gave up, is replaced.
    pub fn session(&self) -> Result<Rc<Session>> {
        let mut kept = self.session.borrow_mut();
        if let Some(session) = kept.as_ref().filter(|session| session.is_idle()) {
            return Ok(session.clone());
        }
        *kept = None;
        let session = Rc::new(self.fresh()?);
        // An earlier run, or the end of this one, must see what a session of ours does.
        session.run("SET track_activities = on")?;
        session.set_patience(Some(PATIENCE));
        Ok(kept.insert(session).clone())
    }

    /// Ends that session.
    pub fn forget(&self) {
        *self.session.borrow_mut() = None;
    }

    pub fn query(&self, sql: &str, parameters: &[&str]) -> Result<Rows> {
        self.session()?.query(sql, parameters)
    }

    pub fn value(&self, sql: &str, parameters: &[&str]) -> Result<String> {
        self.session()?.value(sql, parameters)
    }
}

/// Which side.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Source,
    Target,
}

impl Role {
    /// As `--set-list` calls it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Source => "source",
            Role::Target => "target",
        }
    }
}

/// A primary with its standbys.
pub struct Side<'a> {
    pub role: Role,
    /// The primary, and then its standbys.
    pub places: Vec<Place<'a>>,
    /// The system identifier; empty if the server cannot be reached, as the target of an undo.
    pub system: String,
}

impl<'a> Side<'a> {
    pub fn primary(&self) -> &Place<'a> {
        &self.places[0]
    }

    pub fn standbys(&self) -> &[Place<'a>] {
        &self.places[1..]
    }
}

/// The servers of the command line, with those that `--to` and `--from` add to them.
pub struct Servers {
    fleet: Fleet,
    to: Vec<usize>,
    from: Vec<usize>,
}

impl Servers {
    pub fn load(cli: &Cli, arguments: &Arguments) -> Result<Servers> {
        let given = &cli.servers;
        let any = given.fleet.is_some() || !given.connections.is_empty() || !given.patroni.is_empty();
        // Without any, the server is that of the environment, which is the source if --from does not say another.
        let mut fleet =
            if any || arguments.from.is_none() { Fleet::load(given)? } else { Fleet { servers: Vec::new() } };
        let to = add(&mut fleet, &arguments.to)?;
        let from = arguments.from.as_deref().map_or(Ok(Vec::new()), |from| add(&mut fleet, from))?;
        if to.iter().any(|number| from.contains(number)) {
            return Err(Error::Usage("--to and --from are the same server".into()));
        }
        Ok(Servers { fleet, to, from })
    }

    /// The source and the target. A schema of one of these names is on the source, or was. An undo needs no target that
    /// runs; the servers that cannot be reached, and may be standbys, are then given too.
    pub fn sides(&self, names: &[&str], is_undo: bool) -> Result<(Side<'_>, Side<'_>, Vec<&Server>)> {
        let mut seen = Vec::new();
        let mut away = Vec::new();
        // Those that were named come first, for their connection strings say the database.
        let order: Vec<usize> = (self.to.iter().chain(&self.from))
            .copied()
            .chain((0..self.fleet.servers.len()).filter(|n| !self.to.contains(n) && !self.from.contains(n)))
            .collect();
        let mut looks: Vec<Option<Result<Seen<'_>>>> =
            self.fleet.each(|server| look(server, names)).into_iter().map(Some).collect();
        for number in order {
            match looks[number].take() {
                Some(Ok(found)) => {
                    let is_same = |(_, other): &(usize, Seen<'_>)| other.identity == found.identity;
                    let is_new = !seen.iter().any(is_same);
                    seen.extend(is_new.then_some((number, found)));
                }
                Some(Err(error)) if is_undo && !self.from.contains(&number) => {
                    crate::output::note(format!("{error}"));
                    away.push(number);
                }
                Some(Err(error)) if self.to.contains(&number) || self.from.contains(&number) => {
                    return Err(error);
                }
                Some(Err(error @ (Error::Unreachable { .. } | Error::NoAnswer { .. }))) => {
                    return Err(Error::refused(
                        error.to_string(),
                        "It may be a standby of the source or the target, whose list must be changed too. Start it, or leave \
                         it out if it is none.",
                    ));
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }

        let target = seen.iter().find(|(number, server)| self.to.contains(number) && !server.is_standby);
        if target.is_none() && !self.to.iter().any(|number| away.contains(number)) {
            let name = &self.fleet.servers[self.to[0]].name;
            return Err(a_standby(name, &seen, &self.to));
        }
        let system = target.map(|(_, server)| server.system.clone()).unwrap_or_default();
        let source = if self.from.is_empty() {
            let candidates: Vec<_> = seen
                .iter()
                .filter(|(number, server)| {
                    !self.to.contains(number)
                        && !server.is_standby
                        && server.system != system
                        && server.has_any
                })
                .collect();
            // The old rows of an earlier move do not count beside the schema itself.
            let has_it: Vec<_> = candidates.iter().copied().filter(|(_, server)| server.has_schema).collect();
            let candidates = if has_it.is_empty() { candidates } else { has_it };
            match candidates[..] {
                [only] => only,
                [] => {
                    let others = seen
                        .iter()
                        .filter(|(number, server)| !self.to.contains(number) && server.system != system);
                    let others: Vec<&str> = others.map(|(_, other)| other.server.name.as_str()).collect();
                    return Err(Error::refused(
                        format!(
                            "no primary outside the target's cluster has a schema {}. Those that were seen: {}",
                            names[0],
                            if others.is_empty() { "none".into() } else { others.join(", ") }
                        ),
                        "Name the server that has it with --from or --server. Are source and target the right way round?",
                    ));
                }
                _ => {
                    let names_of: Vec<&str> =
                        candidates.iter().map(|(_, other)| other.server.name.as_str()).collect();
                    return Err(Error::refused(
                        format!("several servers have a schema {}: {}", names[0], names_of.join(", ")),
                        "Name the source with --from.",
                    ));
                }
            }
        } else {
            let found = seen.iter().find(|(number, server)| self.from.contains(number) && !server.is_standby);
            if !seen.iter().any(|(number, _)| self.from.contains(number)) {
                return Err(Error::Usage("--to and --from are the same server".into()));
            }
            found.ok_or_else(|| a_standby(&self.fleet.servers[self.from[0]].name, &seen, &self.from))?
        };
        if source.1.system == system {
            return Err(Error::refused(
                "the source and the target have the same system identifier, so they are one cluster",
                "A shard moves to a server that initdb made by itself.",
            ));
        }

        let side = |role: Role, system: &str, primary: &'_ (usize, Seen<'_>)| -> Result<Vec<usize>> {
            let others = seen.iter().filter(|(n, other)| *n != primary.0 && other.system == system);
            let (standbys, primaries): (Vec<_>, Vec<_>) = others.partition(|(_, other)| other.is_standby);
            if let Some((_, other)) = primaries.first() {
                return Err(Error::refused(
                    format!(
                        "the {} has two primaries: {} and {}",
                        role.name(),
                        primary.1.server.name,
                        other.server.name
                    ),
                    "Stop the one that was replaced, and leave it out.",
                ));
            }
            Ok(std::iter::once(primary.0).chain(standbys.iter().map(|(n, _)| *n)).collect())
        };
        let places = |role: Role, numbers: Vec<usize>| -> Vec<Place<'_>> {
            let mut places = Vec::new();
            for number in numbers {
                let server = &self.fleet.servers[number];
                let name = if places.is_empty() {
                    format!("the {}", role.name())
                } else {
                    format!("standby {}", server.name)
                };
                places.push(Place::new(name, server));
            }
            places
        };
        let of_source = side(Role::Source, &source.1.system, source)?;
        let of_target = match target {
            Some(target) => side(Role::Target, &system, target)?,
            None => vec![self.to[0]],
        };
        let away = away.into_iter().filter(|number| !self.to.contains(number));
        Ok((
            Side {
                role: Role::Source,
                places: places(Role::Source, of_source),
                system: source.1.system.clone(),
            },
            Side { role: Role::Target, places: places(Role::Target, of_target), system },
            away.map(|number| &self.fleet.servers[number]).collect(),
        ))
    }
}

fn a_standby(name: &str, seen: &[(usize, Seen<'_>)], numbers: &[usize]) -> Error {
    let system = seen.iter().find(|(number, _)| numbers.contains(number)).map(|(_, server)| &server.system);
    let primary = seen.iter().find(|(_, other)| Some(&other.system) == system && !other.is_standby);
    let hint = match primary {
        Some((_, primary)) => format!("Its primary is {}: name that one.", primary.server.name),
        None => "Name its primary.".into(),
    };
    Error::refused(format!("{name} is a standby, which cannot take part"), hint)
}

/// The numbers of the servers of this name or connection string, which are added if they are not there.
fn add(fleet: &mut Fleet, text: &str) -> Result<Vec<usize>> {
    // A connection string with several hosts has a server for each.
    let several = format!("{text} (");
    let there: Vec<usize> = (0..fleet.servers.len())
        .filter(|n| fleet.servers[*n].name == text || fleet.servers[*n].name.starts_with(&several))
        .collect();
    if !there.is_empty() {
        return Ok(there);
    }
    if !text.contains('=') && !text.contains("://") {
        return Err(Error::Usage(format!("{text} is neither the name of a server nor a connection string")));
    }
    let mut numbers = Vec::new();
    for server in fleet::of_connection(None, text)? {
        match fleet.servers.iter().position(|other| other.name == server.name) {
            Some(number) => {
                // It says the database of the move.
                fleet.servers[number] = server;
                numbers.push(number);
            }
            None => {
                numbers.push(fleet.servers.len());
                fleet.servers.push(server);
            }
        }
    }
    Ok(numbers)
}

/// What a first look at a server shows.
struct Seen<'a> {
    server: &'a Server,
    system: String,
    is_standby: bool,
    /// The same for connections to the same server.
    identity: String,
    /// Whether it has the schema, or is in the middle of its move.
    has_schema: bool,
    /// Or at least the old rows.
    has_any: bool,
}

fn look<'a>(server: &'a Server, names: &[&str]) -> Result<Seen<'a>> {
    let member = Member::of(server)?;
    let rows = member.session.query(
        "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname IN ($1, $2)),
                EXISTS (SELECT FROM pg_namespace WHERE nspname IN ($1, $2, $3))",
        names,
    )?;
    let row = rows.row(0);
    Ok(Seen {
        server,
        identity: member.identity,
        has_schema: row.is_true(0),
        has_any: row.is_true(1),
        system: member.system,
        is_standby: member.is_standby,
    })
}
