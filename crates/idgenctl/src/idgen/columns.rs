//! What mints ids in a database: the portable edition, and columns by their defaults, which are found by the C symbols of
//! the library: only superusers can create C functions. No function is called, no expression evaluated or deparsed.

use std::collections::HashMap;
use std::fmt;

use idgen_ids::Shard;
use idgen_ids::shard_set::ShardSet;
use pg_formats::tree::calls;

use crate::connection::session::Session;
use crate::terminal::error::Result;
use crate::terminal::text::name;

/// The C symbols of minting functions.
const MINTING: [(&str, Mints); 3] = [
    ("snowflake_next_id_wrapper", Mints::Idgen),
    ("snowflake_next_id_js_wrapper", Mints::Js),
    ("snowflake_next_id_of_session_wrapper", Mints::OfSession),
];

/// What the default of a column mints. Of several, the last of these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mints {
    /// Ids of 53 bits.
    Js,
    /// Ids of idgen's layout, for the shard of the default.
    Idgen,
    /// Ids of idgen's layout, for the shard of the session.
    OfSession,
}

/// A column whose default mints, in a permanent table, partition, foreign table or view.
#[derive(Debug, Clone)]
pub struct Column {
    pub schema: String,
    pub table: String,
    pub column: String,
    /// The OID of the table.
    pub relation: u32,
    pub mints: Mints,
    /// The shards that the default names as constants.
    pub shards: Vec<i32>,
    pub type_name: String,
    pub owner: String,
    /// What keeps roles that may insert into the table from minting; empty if nothing does.
    pub lacks: String,
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&name(&[&*self.schema, &self.table, &self.column].join(".")))
    }
}

/// The minting columns in a session's database.
pub fn minting(session: &Session) -> Result<Vec<Column>> {
    let symbols = MINTING.map(|(symbol, _)| Session::literal(symbol)).join(", ");
    // Larger defaults are not written by hand, and decompressed they could have a gigabyte. C always has the OID 13.
    let sql = format!(
        "WITH uses AS MATERIALIZED (
             SELECT classid, objid, concat(classid::oid, ' ', objid) AS object,
                    string_agg(concat(p.oid, ' ', prosrc), ',') AS functions, array_agg(p.oid) AS oids
             FROM pg_proc AS p JOIN pg_depend ON refclassid = 'pg_proc'::regclass AND refobjid = p.oid
             WHERE prolang = 13 AND prosrc IN ({symbols})
               AND classid IN ('pg_attrdef'::regclass, 'pg_type'::regclass)
             GROUP BY classid, objid
         ), found AS (
             SELECT adrelid AS relation, adnum AS number, adbin AS tree, functions, oids, object
             FROM uses JOIN pg_attrdef AS d ON classid = 'pg_attrdef'::regclass AND d.oid = objid
             UNION ALL
             SELECT attrelid, attnum, typdefaultbin, functions, oids, object
             FROM uses JOIN pg_type AS t ON classid = 'pg_type'::regclass AND t.oid = objid
                  JOIN pg_attribute ON atttypid = t.oid AND NOT atthasdef AND NOT attisdropped
         )
         SELECT nspname, relname, attname, relation, functions,
                CASE WHEN pg_column_size(tree) < 10000
                          AND row_number() OVER (PARTITION BY object ORDER BY nspname, relname, number) = 1
                     THEN CASE WHEN octet_length(tree::text) < 100000 THEN tree::text END END,
                (WITH RECURSIVE base AS (
                     SELECT t.* FROM pg_type AS t WHERE t.oid = atttypid
                     UNION ALL
                     SELECT t.* FROM base JOIN pg_type AS t ON t.oid = base.typbasetype AND base.typtype = 'd'
                 ) SELECT format_type(oid, NULL) FROM base WHERE typtype <> 'd'), object, pg_get_userbyid(relowner),
                (SELECT string_agg(DISTINCT format('%s lacks EXECUTE on %I.%I', coalesce(quote_ident(rolname), 'PUBLIC'), f.nspname,
                                          proname), ', ')
                 FROM aclexplode(coalesce(relacl, acldefault('r', relowner)) || (
                          SELECT array_agg(item) FROM pg_attribute, unnest(attacl) AS item WHERE attrelid = relation AND NOT attisdropped
                      )) AS given LEFT JOIN pg_roles AS r ON r.oid = grantee
                      JOIN pg_proc AS p ON p.oid = ANY (oids) JOIN pg_namespace AS f ON f.oid = pronamespace
                 WHERE privilege_type = 'INSERT' AND NOT CASE grantee WHEN 0 THEN has_function_privilege('public', p.oid, 'EXECUTE')
                                                         ELSE has_function_privilege(grantee, p.oid, 'EXECUTE') END)
         FROM found JOIN pg_class AS c ON c.oid = relation AND relpersistence <> 't' AND relkind IN ('r', 'p', 'f', 'v')
              JOIN pg_namespace AS n ON n.oid = relnamespace
              JOIN pg_attribute AS a ON attrelid = relation AND attnum = number
         ORDER BY nspname, relname, number"
    );
    let rows = match session.run(&sql) {
        // Names that cannot be converted to UTF-8 are shown as well as possible.
        Err(error) if error.code() == "22P05" => {
            session.run("SET client_encoding = SQL_ASCII")?;
            let rows = session.run(&sql);
            session.run("SET client_encoding = UTF8")?;
            rows
        }
        rows => rows,
    }?;
    // The default of a domain is sent once, with the first of its columns.
    let mut trees = HashMap::new();
    Ok(rows
        .iter()
        .map(|row| {
            let functions = row.string(4);
            // Only a hostile server has more.
            let functions = functions.split(',').take(100).filter_map(|pair| {
                let (oid, symbol) = pair.split_once(' ')?;
                let mints = MINTING.iter().find(|(name, _)| *name == symbol)?.1;
                Some((oid.parse().ok()?, mints))
            });
            let functions: Vec<(u32, Mints)> = functions.collect();
            let oids: Vec<u32> = functions.iter().map(|(oid, _)| *oid).collect();
            let calls = trees.entry(row.string(7)).or_insert_with(|| calls(row.string(5).as_bytes(), &oids));
            Column {
                schema: row.string(0),
                table: row.string(1),
                column: row.string(2),
                relation: row.number(3).unwrap_or_default(),
                mints: functions.iter().map(|(_, mints)| *mints).max().unwrap_or(Mints::Idgen),
                shards: calls.iter().filter_map(|(_, shard)| *shard).collect(),
                type_name: row.string(6),
                owner: row.string(8),
                lacks: row.string(9),
            }
        })
        .collect())
}

/// The shards that the portable edition mints for in a session's database, unless the extension has taken its place.
pub fn portable_shards(session: &Session) -> Result<ShardSet> {
    let registers = session.run(
        "SELECT substring(relname FROM '[0-9]+') FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = relnamespace
         WHERE nspname = 'idgen_portable' AND relkind = 'S' AND relname ~ '^(shard|js)_[0-9]{1,4}$'
           AND EXISTS (SELECT FROM pg_proc WHERE starts_with(proname, 'snowflake_next_id') AND prolang <> 13)",
    )?;
    let shards = registers.iter().filter_map(|row| Shard::try_from(row.number::<i32>(0)?).ok());
    Ok(shards.fold(ShardSet::NONE, ShardSet::with))
}
