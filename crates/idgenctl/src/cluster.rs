//! The cluster that a command is for: a primary and those of its standbys that are given.

use libpq::connection::Info;

use crate::error::{Error, Result};
use crate::fleet::{Fleet, Member};
use crate::output::note;
use crate::server::Server;
use crate::session::Session;

/// A cluster.
pub struct Cluster<'a> {
    /// The primary; none if only standbys of it are given.
    primary: Option<Member<'a>>,
    /// Its standbys.
    pub standbys: Vec<Member<'a>>,
    /// The servers of other clusters that are given too.
    pub others: Vec<Member<'a>>,
}

impl<'a> Cluster<'a> {
    /// The only cluster of the fleet, or that of the server named. The servers are reached by a function.
    ///
    /// # Errors
    /// That a server cannot be reached, or that it is not clear which cluster is meant.
    pub fn of(
        fleet: &'a Fleet,
        on: Option<&str>,
        reach: impl Fn(&'a Server) -> Result<Member<'a>> + Sync,
    ) -> Result<Cluster<'a>> {
        if let Some(name) = on
            && fleet.find(name).is_none()
        {
            return Err(Error::Usage(format!("no server is called {name}")));
        }
        let (mut members, mut failures) = (Vec::new(), Vec::new());
        for (server, reached) in fleet.servers.iter().zip(fleet.each(reach)) {
            match reached {
                Ok(member) => members.push(member),
                Err(error) if fleet.servers.len() == 1 || on == Some(&server.name) => return Err(error),
                Err(error) => failures.push(error),
            }
        }
        let chosen = match on {
            Some(name) => members.iter().find(|member| member.server.name == name),
            None => {
                if let Some(error) = failures.first() {
                    return Err(Error::refused(
                        error.to_string(),
                        "Nothing was changed. See to that server, or name one of the cluster that is meant with --on.",
                    ));
                }
                members.first()
            }
        };
        let Some(chosen) = chosen else {
            return Err(Error::Usage("there is no server".into()));
        };
        let system = chosen.system.clone();
        let names = |members: &mut dyn Iterator<Item = &Member>| {
            members.map(|member| member.server.name.clone()).collect::<Vec<_>>().join(", ")
        };
        if on.is_none() && members.iter().any(|member| member.system != system) {
            return Err(Error::Usage(format!(
                "the servers belong to several clusters; name one of the cluster that is meant with --on: {}",
                names(&mut members.iter())
            )));
        }
        for error in failures {
            note(format!(
                "warning: {error}; if it belongs to this cluster, see to it, and run this command again"
            ));
        }
        let is_primary = |member: &&Member| {
            member.system == system && !member.is_standby && on.is_none_or(|name| member.server.name == name)
        };
        let all = |member: &&Member| member.system == system && !member.is_standby;
        let primary = match members.iter().filter(is_primary).count() {
            1 => members.iter().position(|member| is_primary(&member)),
            0 if members.iter().filter(all).count() == 1 => members.iter().position(|member| all(&member)),
            _ if members.iter().any(|member| all(&member)) => {
                return Err(Error::Usage(format!(
                    "several primaries have the same system identifier; name the one that is meant with --on: {}",
                    names(&mut members.iter().filter(all))
                )));
            }
            _ => None,
        };
        let primary = primary.map(|number| members.remove(number));
        let (standbys, others) =
            members.into_iter().partition(|member| member.system == system && member.is_standby);
        Ok(Cluster { primary, standbys, others })
    }

    /// The primary, if it is given.
    pub fn known_primary(&self) -> Option<&Member<'a>> {
        self.primary.as_ref()
    }

    /// The primary.
    ///
    /// # Errors
    /// That it is not given.
    pub fn primary(&self) -> Result<&Member<'a>> {
        self.primary.as_ref().ok_or_else(|| {
            Error::refused(
                "only standbys are given",
                "Nothing was changed. Give the primary too, or instead.",
            )
        })
    }

    /// The servers in the order in which they are to be restarted: standbys first.
    pub fn members(&self) -> impl Iterator<Item = &Member<'a>> {
        self.standbys.iter().chain(&self.primary)
    }

    /// The names under which servers that are not given receive the WAL of the primary.
    ///
    /// # Errors
    /// Those of the sessions.
    pub fn unknown_receivers(&self) -> Result<Vec<String>> {
        let Some(primary) = &self.primary else { return Ok(Vec::new()) };
        // Subscriptions receive no marks.
        let rows = primary.session.run(
            "SELECT application_name FROM pg_stat_replication
             WHERE state <> 'backup' AND pid NOT IN (
                 SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL)
             ORDER BY application_name",
        )?;
        let mut names: Vec<String> = rows.iter().map(|row| row.string(0)).collect();
        for standby in &self.standbys {
            let own = receiver(&standby.session)?;
            if let Some(number) = names.iter().position(|name| Some(name) == own.as_ref()) {
                names.remove(number);
            }
        }
        Ok(names)
    }
}

/// The name under which a standby receives WAL.
fn receiver(session: &Session) -> Result<Option<String>> {
    let rows = session.run("SELECT conninfo FROM pg_stat_wal_receiver")?;
    let options = rows.iter().next().and_then(|row| Info::from(&row.string(0)).ok()).unwrap_or_default();
    let value = |keyword: &str| {
        options.iter().find(|option| option.keyword == keyword).and_then(|option| option.val.clone())
    };
    Ok(value("application_name").or_else(|| value("fallback_application_name")))
}
