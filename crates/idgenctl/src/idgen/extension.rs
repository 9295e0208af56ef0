//! The extension in a database, and the databases that have it.

use crate::connection::server::Server;
use crate::connection::session::Session;
use crate::terminal::error::{Error, Result};

/// The extension in a database.
#[derive(Debug, Clone)]
pub struct Extension {
    /// The schema that it is in.
    pub schema: String,
    /// The version of its SQL objects.
    pub version: String,
    /// The version of the files on the server, to which `ALTER EXTENSION idgen UPDATE` leads.
    pub available: Option<String>,
    /// The roles other than superusers that could put an object of theirs in the place of one of idgen's: they may create
    /// objects in the schema, rename it, or drop the extension.
    pub others: Vec<String>,
}

impl Extension {
    /// The extension in the database of a session, if it is there.
    ///
    /// # Errors
    /// Those of the session.
    pub fn of(session: &Session) -> Result<Option<Extension>> {
        let rows = session.run(
            "SELECT nspname, extversion, default_version, (
                 SELECT string_agg(rolname, ', ') FROM (
                     SELECT rolname FROM pg_roles AS r WHERE NOT rolsuper AND r.oid <> 'pg_database_owner'::regrole
                         AND (has_schema_privilege(r.oid, n.oid, 'CREATE') OR pg_has_role(r.oid, nspowner, 'MEMBER')
                              OR pg_has_role(r.oid, extowner, 'MEMBER'))
                     ORDER BY rolname LIMIT 5) AS o)
             FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace
                  LEFT JOIN pg_available_extensions ON name = extname
             WHERE extname = 'idgen'",
        )?;
        Ok(rows.iter().next().map(|row| Extension {
            schema: row.string(0),
            version: row.string(1),
            available: row.text(2),
            others: row.text(3).into_iter().collect(),
        }))
    }

    /// The extension, if a superuser may call it there.
    ///
    /// # Errors
    /// That it is not there, or that others could have put an object of theirs in the place of one of its own.
    pub fn trusted(session: &Session) -> Result<Extension> {
        let database = session.value("SELECT current_database()", &[])?;
        let Some(extension) = Extension::of(session)? else {
            return Err(Error::refused(
                format!("database \"{database}\" of {} has no extension idgen", session.server()),
                "Connect to a database that has it, or run idgenctl enable.",
            ));
        };
        extension.trust(session.server(), &database)?;
        Ok(extension)
    }

    /// Sees that a superuser may call it.
    ///
    /// # Errors
    /// That others could have put an object of theirs in the place of one of its own.
    pub fn trust(&self, server: &str, database: &str) -> Result {
        if self.others.is_empty() {
            return Ok(());
        }
        Err(Error::refused(
            format!(
                "roles that are not superusers may change schema \"{}\" of database \"{database}\" of {server}, or the \
                 extension in it: {}",
                self.schema,
                self.others.join(", ")
            ),
            "A superuser who calls idgen there could call a function of theirs. Connect to a database that has idgen in a \
             schema of a superuser, in which nobody else may create objects.",
        ))
    }

    /// The name of a function or view of the extension, as SQL writes it.
    pub fn name(&self, object: &str) -> String {
        format!("{}.{object}", Session::identifier(&self.schema))
    }
}

/// Whether a schema is there. If it is, only superusers can create objects in it or rename it.
///
/// # Errors
/// That others can, and those of the session.
pub fn schema_is_trusted(session: &Session, schema: &str) -> Result<bool> {
    let rows = session.query(
        "SELECT (SELECT string_agg(quote_ident(rolname), ', ') FROM (
                     SELECT rolname FROM pg_roles AS r WHERE NOT rolsuper AND r.oid <> 'pg_database_owner'::regrole
                         AND (has_schema_privilege(r.oid, n.oid, 'CREATE') OR pg_has_role(r.oid, nspowner, 'MEMBER'))
                     ORDER BY rolname LIMIT 5) AS o)
         FROM pg_namespace AS n WHERE nspname = $1",
        &[schema],
    )?;
    let Some(row) = rows.iter().next() else { return Ok(false) };
    match row.text(0) {
        None => Ok(true),
        Some(others) => Err(Error::refused(
            format!("roles that are not superusers may change schema \"{schema}\": {others}"),
            "Nothing was changed. A superuser who calls idgen there could call a function of theirs. Rename the schema, or \
             drop it if nobody needs it.",
        )),
    }
}

/// A session in a database of a server where a superuser may call the extension: that of the connection, or another.
///
/// # Errors
/// That there is none.
pub fn anywhere(server: &Server, session: &Session) -> Result<(Session, Extension)> {
    let own = server.connect();
    if let Ok(own) = own
        && let Ok(extension) = Extension::trusted(&own)
    {
        return Ok((own, extension));
    }
    let mut refusal = None;
    for database in databases(session)? {
        let Ok(Some(found)) = installation(server, database) else { continue };
        match found.extension.trust(&server.name, &found.database) {
            Ok(()) => return Ok((found.session, found.extension)),
            Err(error) => refusal = Some(error),
        }
    }
    Err(refusal.unwrap_or_else(|| {
        Error::refused(
            format!("no database of {} that can be looked at has the extension idgen", server.name),
            "Run idgenctl enable first.",
        )
    }))
}

/// The names of the databases of a server that accept connections.
///
/// # Errors
/// Those of the session.
pub fn databases(session: &Session) -> Result<Vec<String>> {
    let rows = session.run("SELECT datname FROM pg_database WHERE datallowconn ORDER BY datname")?;
    Ok(rows.iter().map(|row| row.string(0)).collect())
}

/// A session in a database, if it has the extension. Whoever looks at all databases and needs no session for longer than a
/// look takes them one by one: all at once may be more than the server has connections for its clients.
///
/// # Errors
/// That the database cannot be looked at.
pub fn installation(server: &Server, database: String) -> Result<Option<Installation>> {
    let session = server.connect_to(&database)?;
    Ok(Extension::of(&session)?.map(|extension| Installation { database, session, extension }))
}

/// A session in each database of a server that has the extension, whoever may change it there; and the databases that
/// cannot be looked at, with the reason.
///
/// # Errors
/// Those of the session.
pub fn installations(server: &Server, session: &Session) -> Result<Installations> {
    let mut found = Installations { there: Vec::new(), not_seen: Vec::new() };
    for database in databases(session)? {
        match installation(server, database.clone()) {
            Ok(there) => found.there.extend(there),
            Err(error) => found.not_seen.push((database, error)),
        }
    }
    // Rows and defaults stay while a database is closed, as it may be to keep clients out. template0 has none.
    let closed = session.run(
        "SELECT datname FROM pg_database WHERE NOT datallowconn AND datname <> 'template0' ORDER BY datname",
    )?;
    for row in closed.iter() {
        found.not_seen.push((row.string(0), Error::refused("it accepts no connections", "")));
    }
    Ok(found)
}

/// What [`installations`] finds.
pub struct Installations {
    /// The databases with the extension.
    pub there: Vec<Installation>,
    /// The databases that cannot be looked at.
    pub not_seen: Vec<(String, Error)>,
}

/// The extension in a database, with a session there.
pub struct Installation {
    /// The name of the database.
    pub database: String,
    /// A session there.
    pub session: Session,
    /// The extension.
    pub extension: Extension,
}
