//! The source and the target, each with its standbys.

use std::ptr;
use std::time::Duration;

use crate::cli::{Cli, Move as Arguments};
use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::terminal::error::{Error, Result, refused};
use crate::topology::cluster::{Node, may_follow};
use crate::topology::fleet::{Fleet, Member};

/// How long statements may take that are usually quick.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that takes part in the move.
pub struct Place<'a> {
    /// What messages call it, such as "the source".
    pub role: String,
    pub server: &'a Server,
    /// The application_name of its sessions, so that a later run finds those that this one leaves running.
    pub name: String,
    pub has_patroni: bool,
}

impl<'a> Place<'a> {
    pub fn new(role: impl Into<String>, server: &'a Server, name: &str, has_patroni: bool) -> Place<'a> {
        Place { role: role.into(), server, name: name.into(), has_patroni }
    }

    /// A new session: one that was cut off may still be running, and another run may have ended it.
    pub fn session(&self) -> Result<Session> {
        self.session_in(None)
    }

    /// A session in any database: the owner of this one may have closed it.
    pub fn any_session(&self) -> Result<Session> {
        self.session().or_else(|_| self.session_in(Some("postgres")))
    }

    pub fn session_in(&self, database: Option<&str>) -> Result<Session> {
        let database = database.map(|database| ("dbname", database));
        let name = [("application_name", self.name.as_str())];
        let session = self.server.connect_with(&name.into_iter().chain(database).collect::<Vec<_>>())?;
        session.set_patience(Some(PATIENCE));
        Ok(session)
    }

    pub fn value(&self, sql: &str, parameters: &[&str]) -> Result<String> {
        self.session()?.value(sql, parameters)
    }
}

/// A primary with its standbys.
pub struct Side<'a> {
    /// "source" or "target", also for `--set-list`.
    pub role: &'static str,
    /// The primary, followed by its standbys.
    pub places: Vec<Place<'a>>,
}

impl<'a> Side<'a> {
    /// The side of these servers, of which the primary comes first.
    pub fn of(role: &'static str, members: &[Member<'a>], name: &str) -> Side<'a> {
        let place = |(number, Member { server, node, .. }): (usize, &Member<'a>)| {
            let role = if number == 0 { format!("the {role}") } else { format!("standby {}", server.name) };
            Place::new(role, server, name, node.has_patroni)
        };
        Side { role, places: members.iter().enumerate().map(place).collect() }
    }

    pub fn primary(&self) -> &Place<'a> {
        &self.places[0]
    }

    pub fn standbys(&self) -> &[Place<'a>] {
        &self.places[1..]
    }
}

/// The fleet, with `--from` and `--to` as indexes.
pub struct Servers {
    fleet: Fleet,
    from: usize,
    to: usize,
}

impl Servers {
    pub fn load(cli: &Cli, arguments: &Arguments) -> Result<Servers> {
        let any = cli.fleet.is_some() || !cli.connections.is_empty();
        let mut fleet = if any { Fleet::load(cli)? } else { Fleet::default() };
        let (from, to) = (fleet.add(&arguments.from)?, fleet.add(&arguments.to)?);
        if from == to {
            return Err(Error::Usage("--from and --to are the same server".into()));
        }
        Ok(Servers { fleet, from, to })
    }

    pub fn from(&self) -> &Server {
        &self.fleet.servers[self.from]
    }

    pub fn to(&self) -> &Server {
        &self.fleet.servers[self.to]
    }

    /// Connects to all servers, also for an undo. Returns the source and the target, each followed by its standbys, and others.
    pub fn find(&self) -> Result<([Vec<Member<'_>>; 2], Vec<Member<'_>>)> {
        let mut seen: Vec<Member<'_>> = Vec::new();
        let reached = self.fleet.each(|server| Member::with(server, server.connect_with(&[])?));
        for (server, member) in self.fleet.servers.iter().zip(reached) {
            match member {
                Ok(member) => {
                    if let Some(other) = seen.iter().find(|other| other.node.identity == member.node.identity)
                    {
                        let (one, two) = (&other.server.name, &server.name);
                        let what = format!("{one} and {two} say that they are one server");
                        return refused(what, "If they are, name it once. If not, one lies.");
                    }
                    seen.push(member);
                }
                Err(error @ (Error::Refused { .. } | Error::Interrupted)) => return Err(error),
                Err(error) => {
                    return refused(
                        error.to_string(),
                        "Have it answer, for example by ending a session named here. Leave it out only if it can never mint for the shard.",
                    );
                }
            }
        }
        let names =
            |places: &[usize]| places.iter().map(|n| &*seen[*n].server.name).collect::<Vec<_>>().join(", ");
        let nodes: Vec<&Node> = seen.iter().map(|member| &member.node).collect();
        let mut members = [Vec::new(), Vec::new()];
        for (members, server) in members.iter_mut().zip([self.from(), self.to()]) {
            let Some(primary) = seen.iter().position(|member| ptr::eq(member.server, server)) else {
                continue;
            };
            if nodes[primary].is_standby {
                return refused(format!("{} is a standby", server.name), "Name its primary.");
            }
            // It may mint for the moved shard as well, or have replaced this server.
            let twin = seen.iter().position(|Member { server, node, .. }| {
                let takes_part = ptr::eq(*server, self.from()) || ptr::eq(*server, self.to());
                !takes_part && !node.is_standby && node.system == seen[primary].node.system
            });
            if let Some(twin) = twin {
                return refused(
                    format!("there are two primaries of one system identifier: {}", names(&[primary, twin])),
                    "Stop the one that was replaced. Leave the other one out only if it can never mint for the shard.",
                );
            }
            members.push(primary);
            for standby in (0..seen.len()).filter(|n| nodes[*n].is_standby) {
                let is_of = |n: &usize| may_follow(nodes[standby], nodes[*n], &nodes);
                let primaries: Vec<usize> = (0..seen.len()).filter(is_of).collect();
                if primaries == [primary] {
                    members.push(standby);
                } else if primaries.contains(&primary) {
                    let (standby, primaries) = (names(&[standby]), names(&primaries));
                    return refused(
                        format!(
                            "{standby} may be a standby of any of these, which have its system identifier: {primaries}"
                        ),
                        "Have it receive WAL from its primary: the name under which it does, and the timeline, tell which.",
                    );
                }
            }
        }
        let mut seen: Vec<Option<Member<'_>>> = seen.into_iter().map(Some).collect();
        let sides = members.map(|side| side.into_iter().filter_map(|n| seen[n].take()).collect());
        let others = seen.into_iter().flatten().collect();
        Ok((sides, others))
    }
}
