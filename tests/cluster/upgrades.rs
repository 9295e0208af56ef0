//! Updates from every released version, and minting after the data has moved to a new cluster.

use std::os::unix::process::CommandExt;

use postgres::Client;

use crate::clients::{Clients, Ledger, ids};
use crate::fleet::for_servers;
use crate::process::{
    command, installed, lacks, major_version, output_of_run, refused, run, said, skipped, top,
};
use crate::server::{Build, PRELOAD, Server, Sql};

fn released() -> Vec<String> {
    let scripts = top().join("sql/install");
    let versions = std::fs::read_dir(scripts).unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        Some(name.strip_prefix("idgen--")?.strip_suffix(".sql")?.to_owned())
    });
    let versions: Vec<_> = versions.collect();
    assert!(!versions.is_empty());
    versions
}

/// A server with the current library and, in its database, the extension of a version.
fn start_version(version: &str) -> Server {
    let server = Server::start_plain(&[PRELOAD]);
    server.run(&format!("CREATE EXTENSION idgen VERSION '{version}'"));
    server
}

/// A server of the last release, with its extension; `None` if that was not built.
fn start_older(build: Build, settings: &[&str]) -> Option<Server> {
    if !Build::Older.is_there() {
        skipped("the last release was not built");
        return None;
    }
    if build == Build::Replaced {
        Build::Older.give_files(build);
    }
    let server = Server::start_empty(build, settings);
    server.run("CREATE EXTENSION idgen");
    Some(server)
}

/// The entries of the catalogs about the extension and its members.
pub fn catalog(client: &mut Client) -> Vec<String> {
    let sql = "
        WITH ours AS (
            SELECT classid, objid, pg_describe_object(classid, objid, 0) AS name
            FROM pg_depend
            WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
              AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
        )
        SELECT concat_ws(' | ', extname, extversion, extnamespace::regnamespace, extrelocatable,
                         extconfig::regclass[], extcondition) AS entry
        FROM pg_extension WHERE extname = 'idgen'
        UNION ALL
        SELECT concat_ws(' | ', name, 'comment', obj_description(objid, classid::regclass::name)) FROM ours
        UNION ALL
        SELECT concat_ws(' | ', name, pg_get_functiondef(oid), proowner::regrole, proacl)
        FROM ours JOIN pg_proc ON classid = 'pg_proc'::regclass AND objid = oid
        UNION ALL
        SELECT concat_ws(' | ', name, pg_get_viewdef(oid), relowner::regrole, relacl, reloptions)
        FROM ours JOIN pg_class ON classid = 'pg_class'::regclass AND objid = oid
        UNION ALL
        SELECT concat_ws(' | ', name, attnum, attname, format_type(atttypid, atttypmod), attacl,
                         col_description(attrelid, attnum))
        FROM ours JOIN pg_attribute ON classid = 'pg_class'::regclass AND objid = attrelid
        UNION ALL
        SELECT concat_ws(' | ', name, objsubid, 'initial rights', initprivs)
        FROM ours JOIN pg_init_privs ON classoid = classid AND objoid = objid
        UNION ALL
        SELECT concat_ws(' | ', name, d.deptype, 'on', pg_describe_object(refclassid, refobjid, refobjsubid))
        FROM ours JOIN pg_depend AS d USING (classid, objid)
        ORDER BY entry";
    client.column(sql)
}

/// The entries that only one of two catalogs has.
pub fn difference(catalog: &[String], newest: &[String]) -> Vec<String> {
    let only = |name: &'static str, these: &[String], those: &[String]| {
        let entries = these.iter().filter(|entry| !those.contains(entry));
        entries.map(|entry| format!("{name}: {entry}")).collect::<Vec<_>>()
    };
    [only("only updated", catalog, newest), only("only new", newest, catalog)].concat()
}

/// A call of each function of the extension that SQL can call, and whether its result must stay the same. Those
/// that would be refused, would have others refused, or would reset counters are left out.
fn calls(client: &mut Client) -> Vec<(String, bool)> {
    let sql = "
        WITH given (name, value) AS (VALUES
            ('id', '499632114388440064'), ('shard', '7'), ('sequence', '3'), ('count', '3'), ('past', '20260101'),
            ('ts', '2026-01-01T00:00:00Z'), ('from', '2026-01-01T00:00:00Z'), ('upto', 'infinity'),
            ('epoch', '2025-01-01T00:00:00Z'), ('layout', 'idgen'), ('code', 'B'), ('text', '8000000000000'),
            ('schema', 'public'), ('share', 'false')
        )
        SELECT format('SELECT json_agg(r)::text FROM %I(%s) AS r', proname,
                      (SELECT string_agg(format('%I => %L', argument,
                                                coalesce(value, 'a value that this test lacks')), ', ')
                       FROM unnest(proargnames[:pronargs]) AS argument
                            LEFT JOIN given ON argument = name)),
               provolatile <> 'v'
        FROM pg_proc JOIN pg_depend ON classid = 'pg_proc'::regclass AND objid = pg_proc.oid
        WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
          AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'idgen')
          AND proname NOT IN ('snowflake_remove_mark', 'snowflake_close_shard', 'snowflake_stats_reset')
          AND NOT proargtypes::oid[] && '{internal,pg_node_tree}'::regtype[]::oid[]";
    client.rows(sql)
}

/// The functions of each version work with the current library, before and after the update. The update creates the
/// same objects as an installation of the newest version, and leaves the objects and ids of users alone.
#[test]
fn every_version_is_updated() {
    let server = Server::start(&[]);
    server.run("DROP EXTENSION idgen; CREATE EXTENSION idgen SCHEMA public");
    let newest = catalog(&mut server.connect());
    for version in released() {
        let name = format!("from_{version}");
        let mut client = server.connect();
        client.run(&format!("CREATE DATABASE \"{name}\""));
        // The counters have ids of a kind that the version may not know.
        client.query("SELECT snowflake_next_id_js(7)", &[]).unwrap();
        let mut client = server.connect_to(&name);
        client.run(&format!("CREATE EXTENSION idgen VERSION '{version}'"));

        client.run(
            "CREATE TABLE things (
                    id bigint PRIMARY KEY DEFAULT snowflake_next_id(7) CHECK (shard_of(id) = 7),
                    made timestamptz GENERATED ALWAYS AS (snowflake_time(id, '2025-01-01Z')) STORED);
                 CREATE INDEX ON things (shard_of(id));
                 CREATE VIEW recent AS
                    SELECT t.id, d.sequence FROM things AS t, snowflake_decode(t.id) AS d
                    WHERE snowflake_between(t.id, now() - interval '1 hour', 'infinity');
                 SET idgen.shard = 7",
        );
        let insert = "INSERT INTO things SELECT FROM generate_series(1, 100) RETURNING id";
        let mut ids: Vec<i64> = client.column(insert);
        let calls = calls(&mut client);
        let answers = |client: &mut Client| -> Vec<_> {
            let answer = |(sql, same): &(String, bool)| {
                let answer: Option<String> = client.value(sql);
                same.then(|| (sql.clone(), answer))
            };
            calls.iter().filter_map(answer).collect()
        };
        let before = answers(&mut client);
        let counters = client.column::<String>(
            "SELECT (to_jsonb(s) - 'ids_per_second')::text FROM idgen_shard_stats AS s WHERE shard = 7",
        );
        // There is a row for each kind of ids that the version knows.
        let kinds = if version == "0.1.0" { 1 } else { 2 };
        assert_eq!(counters.len(), kinds, "{version}: {counters:?}");
        let minted: i64 = client.value("SELECT max(ids) FROM idgen_shard_stats WHERE shard = 7");
        assert!(minted >= 100, "{version}: the rows of another kind of ids are shown: {counters:?}");

        client.run("ALTER EXTENSION idgen UPDATE");
        assert_eq!(difference(&catalog(&mut client), &newest), [""; 0], "{version}");
        for row in counters {
            let sql = format!("SELECT 'same' FROM idgen_shard_stats AS s WHERE to_jsonb(s) @> '{row}'");
            assert_eq!(client.column::<String>(&sql), ["same"], "{version}: {row}");
        }
        assert_eq!(answers(&mut client), before, "{version}");
        ids.extend(client.column::<i64>(insert));
        Ledger::default().add(&ids);
        assert_eq!(client.column::<String>("SELECT count(*)::text FROM recent"), ["200"], "{version}");
    }
}

/// An update replaces no function of users, and drops nothing that depends on the extension: it fails and changes
/// nothing.
#[test]
fn an_update_leaves_what_is_the_users() {
    let server = start_version("0.1.0");
    let mut client = server.connect();
    let before = catalog(&mut client);
    for (create, drop, code) in [
        (
            "CREATE FUNCTION snowflake_text(id bigint) RETURNS text LANGUAGE sql RETURN 'mine'",
            "FUNCTION snowflake_text(bigint)",
            "42723",
        ),
        ("CREATE VIEW mine AS SELECT ids FROM idgen_shard_stats", "VIEW mine", "2BP01"),
    ] {
        client.run(create);
        assert_eq!(client.code("ALTER EXTENSION idgen UPDATE"), code);
        assert_eq!(catalog(&mut client), before);
        client.run(&format!("DROP {drop}"));
    }
    client.run("ALTER EXTENSION idgen UPDATE");
}

/// An update restores no right that was revoked. A new function that mints has the privileges of `snowflake_next_id`,
/// objects created anew keep theirs, and a dump contains both.
#[test]
fn an_update_gives_no_right_back() {
    const RIGHTS: &str = "
        SELECT concat_ws(' ', name, acl) FROM (
            SELECT oid::regprocedure::text, replace(proacl::text, 'other', 'postgres') FROM pg_proc
            WHERE proname IN ('snowflake_next_id_js', 'idgen_shard_stats')
            UNION ALL SELECT relname, replace(relacl::text, 'other', 'postgres') FROM pg_class
            WHERE relname = 'idgen_shard_stats') AS objects (name, acl)
        ORDER BY name";
    let given = [
        "idgen_shard_stats {postgres=arwdDxt/postgres,lends=r*/postgres,borrows=r/lends}",
        "idgen_shard_stats() {postgres=X/postgres,borrows=X/postgres}",
        "snowflake_next_id_js(integer) {postgres=X/postgres,lends=X*/postgres,borrows=X/lends}",
    ];
    let server = start_version("0.1.0");
    let mut client = server.connect();
    client.run("CREATE ROLE lends; CREATE ROLE borrows; CREATE ROLE other SUPERUSER");
    let revoked = "
        REVOKE ALL ON idgen_shard_stats FROM pg_monitor;
        REVOKE ALL ON FUNCTION idgen_shard_stats() FROM pg_monitor;
        GRANT EXECUTE ON FUNCTION idgen_shard_stats() TO borrows;
        REVOKE ALL ON FUNCTION snowflake_next_id(integer) FROM PUBLIC;
        GRANT EXECUTE ON FUNCTION snowflake_next_id(integer) TO lends WITH GRANT OPTION;
        GRANT SELECT ON idgen_shard_stats TO lends WITH GRANT OPTION;
        SET ROLE lends;
        GRANT EXECUTE ON FUNCTION snowflake_next_id(integer) TO borrows;
        GRANT SELECT ON idgen_shard_stats TO borrows;
        RESET ROLE;";
    for updater in ["postgres", "other"] {
        client.run(revoked);
        client.run(&format!("SET ROLE {updater}; ALTER EXTENSION idgen UPDATE; RESET ROLE"));
        let got = client.column::<String>(RIGHTS);
        // From PostgreSQL 17 on, tables have one more privilege.
        let got: Vec<_> = got.iter().map(|entry| entry.replace("arwdDxtm", "arwdDxt")).collect();
        assert_eq!(got, given, "{updater}");
        client.run("SET ROLE borrows");
        client.run("SELECT snowflake_next_id_js(1); RESET ROLE");

        // A dump contains them, although it omits the initial privileges of an extension.
        let copy = format!("copy_of_{updater}");
        client.run(&format!("CREATE DATABASE {copy}"));
        run(server.shell(&format!("pg_dump postgres | psql -X -q -v ON_ERROR_STOP=1 -d {copy}")));
        let there = server.connect_to(&copy).column::<String>(RIGHTS);
        let there: Vec<_> = there.iter().map(|entry| entry.replace("arwdDxtm", "arwdDxt")).collect();
        assert_eq!(there, given, "{updater}");
        client.run(&format!("DROP DATABASE {copy}"));

        // PostgreSQL knows that the roles are needed, and the rights can be revoked.
        assert_eq!(client.code("DROP ROLE borrows"), "2BP01");
        client.run(
            "SET ROLE lends; REVOKE ALL ON FUNCTION snowflake_next_id_js FROM borrows; RESET ROLE;
             REVOKE ALL ON FUNCTION snowflake_next_id_js FROM lends; SET ROLE lends",
        );
        assert_eq!(client.code("SELECT snowflake_next_id_js(1)"), "42501");
        client.run("RESET ROLE; DROP EXTENSION idgen; CREATE EXTENSION idgen VERSION '0.1.0'");
    }
    client.run("DROP EXTENSION idgen; DROP ROLE lends, borrows, other");
}

/// An update makes no code of other roles LEAKPROOF, which would show them rows that row-level security hides, and they
/// cannot do so afterwards.
#[test]
fn an_update_makes_no_code_of_others_leakproof() {
    const LEAKPROOF: &str = "SELECT prosrc FROM pg_proc WHERE proname = 'shard_of' AND proleakproof";
    let server = start_version("0.1.0");
    let mut client = server.connect();
    client.run("CREATE ROLE tenant; GRANT CREATE ON SCHEMA public TO tenant");
    client.run("ALTER FUNCTION shard_of(bigint) OWNER TO tenant");
    let replace = |property: &str| {
        format!(
            "SET ROLE tenant;
             CREATE OR REPLACE FUNCTION shard_of(id bigint) RETURNS integer LANGUAGE plpgsql {property}
             AS $$ BEGIN RAISE NOTICE '%', id; RETURN 1; END $$; RESET ROLE"
        )
    };
    client.run(&replace(""));
    client.run("ALTER EXTENSION idgen UPDATE");
    assert_eq!(client.column::<String>(LEAKPROOF), ["shard_of_wrapper"]);
    assert_eq!(client.code(&replace("LEAKPROOF")), "42501");
    client.run("RESET ROLE");
    client.run(&replace(""));
    assert_eq!(client.column::<String>(LEAKPROOF), [""; 0]);
}

/// The owner of the schema cannot replace it while a script runs, which would then revoke privileges on functions in
/// the wrong schema.
#[test]
fn the_schema_stays_while_a_script_runs() {
    let server = Server::start_plain(&[PRELOAD]);
    let mut creator = server.connect();
    creator.run("CREATE ROLE owner; CREATE SCHEMA ids AUTHORIZATION owner");
    creator.run("GRANT CREATE ON DATABASE postgres TO owner");
    let mut owner = server.connect();
    owner.run("SET ROLE owner; SET lock_timeout = '100ms'");

    creator.run("CREATE EXTENSION idgen SCHEMA ids VERSION '0.1.0'");
    for script in ["ALTER EXTENSION idgen UPDATE", "DROP EXTENSION idgen; CREATE EXTENSION idgen SCHEMA ids"]
    {
        creator.run(&format!("BEGIN; {script}"));
        for rename in ["ALTER SCHEMA ids RENAME TO away", "DROP SCHEMA ids CASCADE"] {
            assert_eq!(owner.code(rename), "55P03", "{script}: {rename}");
        }
        creator.run("ROLLBACK");
    }

    // The script waits for a transaction that has begun before. It then fails or uses the new name, depending on the
    // minor release.
    let open = "
        SELECT p.oid::regprocedure::text FROM pg_depend JOIN pg_proc AS p ON objid = p.oid
        WHERE deptype = 'e' AND has_function_privilege('owner', p.oid, 'EXECUTE')
          AND proname ~ '_(advance|stats_reset|remove_mark|raise_mark|close_shard|reopen_shard|accept_epoch|accept_clock|check|shard_stats|refusals)$'";
    for script in ["ALTER EXTENSION idgen UPDATE", "CREATE EXTENSION idgen SCHEMA ids"] {
        owner.run("BEGIN; ALTER SCHEMA ids RENAME TO away; CREATE SCHEMA ids");
        let result = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| creator.batch_execute(script));
            server.wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
            owner.run("COMMIT");
            waiting.join().unwrap()
        });
        let code = result.err().map(|error| error.code().expect("a code").clone());
        assert!(code.is_none_or(|code| code.code() == "40001"), "{script}");
        assert_eq!(creator.column::<String>(open), [""; 0], "{script}");
        creator.run("DROP EXTENSION IF EXISTS idgen");
        owner.run("DROP SCHEMA ids; ALTER SCHEMA away RENAME TO ids");
    }
}

/// A snapshot older than the schema or the role does not mislead the checks of a script.
#[test]
fn an_old_snapshot_hides_nothing_from_a_script() {
    let server = Server::start_plain(&[PRELOAD]);
    let mut superuser = server.connect();
    superuser.run("CREATE ROLE owner; GRANT CREATE ON DATABASE postgres TO owner; CREATE SCHEMA closed");
    let mut owner = server.connect();
    let newer = "CREATE ROLE newer; GRANT newer TO owner; GRANT CREATE ON DATABASE postgres TO newer";
    for (meanwhile, create, code) in [
        ("CREATE SCHEMA younger", "CREATE EXTENSION idgen SCHEMA younger", "25001"),
        (newer, "SET LOCAL ROLE newer; CREATE EXTENSION idgen SCHEMA closed", "42501"),
    ] {
        owner.run("SET ROLE owner; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1");
        superuser.run(meanwhile);
        assert_eq!(owner.code(create), code, "{create}");
        owner.run("ROLLBACK");
    }
}

/// Objects that look like the portable edition may belong to an untrusted role, which could change them at any moment.
/// They are not taken over until the superuser owns them, not even from the owner of the database.
#[test]
fn what_others_own_is_not_taken_over() {
    let server = Server::start_plain(&[PRELOAD]);
    let mut superuser = server.connect();
    superuser.run("CREATE ROLE owner; ALTER DATABASE postgres OWNER TO owner");
    let mut owner = server.connect();
    owner.run("SET ROLE owner");
    owner.run(include_str!("../../portable/idgen.sql"));
    owner.run("RESET search_path");
    let mut refused = |what: &str| {
        superuser.run(what);
        assert_eq!(superuser.code("CREATE EXTENSION idgen SCHEMA public"), "42501", "{what}");
    };
    // A single object of the other role is enough for a refusal.
    refused("");
    refused("ALTER SCHEMA idgen_portable OWNER TO CURRENT_USER");
    let all = "
        DO $$
        DECLARE
            item record;
        BEGIN
            FOR item IN
                SELECT 'FUNCTION ' || oid::regprocedure AS name FROM pg_proc WHERE proowner = 'owner'::regrole
                UNION ALL
                SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE ' WHEN 'v' THEN 'VIEW ' ELSE 'TABLE ' END || oid::regclass
                FROM pg_class WHERE relowner = 'owner'::regrole AND relkind IN ('S', 'v', 'r')
            LOOP
                EXECUTE 'ALTER ' || item.name || ' OWNER TO CURRENT_USER';
            END LOOP;
        END $$;";
    for kept in [
        "VIEW public.idgen_status",
        "FUNCTION idgen_portable.mint(integer, bigint, bigint, boolean)",
        "FUNCTION public.shard_of(bigint)",
        "SEQUENCE idgen_portable.last_id",
    ] {
        refused(&format!("{all} ALTER {kept} OWNER TO owner"));
    }
    refused(&format!("{all} GRANT CREATE ON SCHEMA idgen_portable TO owner"));
    superuser.run("REVOKE CREATE ON SCHEMA idgen_portable FROM owner");
    superuser.run("CREATE EXTENSION idgen SCHEMA public");
}

/// A server that has minted for a database of the oldest version, and the ids that must not be repeated after the move
/// of its data.
pub struct Moving {
    pub old: Server,
    ledger: Ledger,
    last: Vec<i64>,
    /// The statement that carries the mark over.
    statement: String,
}

const THINGS: &str = "CREATE TABLE things (id bigint PRIMARY KEY DEFAULT snowflake_next_id(1))";

fn insert(client: &mut Client, round: usize) -> Result<Vec<i64>, postgres::Error> {
    let rows = if round.is_multiple_of(7) { 1000 } else { 1 };
    let sql = format!("INSERT INTO things SELECT FROM generate_series(1, {rows}) RETURNING id");
    ids(client, &sql)
}

/// Ids of some shards, of each kind that the version knows.
fn an_id_of_each(client: &mut Client) -> Vec<i64> {
    let functions: Vec<String> = client.column(
        "SELECT proname::text FROM pg_proc WHERE proname ~ '^snowflake_next_id(_js)?$' AND pronargs = 1",
    );
    let ids = functions.iter().map(|function| {
        let sql = format!("SELECT {function}(shard) FROM generate_series(0, 9) AS shard");
        client.column::<i64>(&sql)
    });
    ids.collect::<Vec<_>>().concat()
}

impl Moving {
    /// Mints on a server with the oldest version in its database.
    pub fn from(old: Server) -> Moving {
        old.run(THINGS);
        old.run("CREATE DATABASE other");
        let mut other = old.connect_to("other");
        other.run("CREATE EXTENSION idgen");
        let mut ledger = Ledger::default();
        let clients = Clients::start_by(4, &old, insert);
        clients.finish_after(10_000, &mut ledger);
        let last = an_id_of_each(&mut other);
        // The library of the oldest version has no snowflake_raise_mark.
        let mark: i64 = old.value("SELECT snowflake_max_id(mark_at) FROM idgen_status");
        let statement = format!("SELECT snowflake_advance(0, {mark})");
        Moving { old, ledger, last, statement }
    }

    /// The clock of the new server is a minute behind. The mark can be carried over once ids may run that far ahead.
    /// After a restart and the update, all ids are greater than the earlier ones.
    pub fn go_on(mut self, new: &Server) {
        let mut client = new.connect();
        let mark: Option<i64> = client.value("SELECT mark FROM idgen_status");
        assert_eq!(mark, None, "the mark stays behind");
        assert_eq!(client.code(&self.statement), "22023");
        new.set("idgen.max_ahead", "2min");
        new.run(&self.statement);
        new.restart();
        let mut client = new.connect();
        client.run("ALTER EXTENSION idgen UPDATE");

        self.last.extend(an_id_of_each(&mut client));
        self.ledger.add(&self.last);
        let clients = Clients::start_by(4, new, insert);
        clients.finish_after(10_000, &mut self.ledger);
        assert!(self.ledger.errors.is_empty(), "{:?}", self.ledger.errors);

        assert_newest(new);
    }

    pub fn go_on_by_dump(self, new: &Server) {
        new.set_clock(-60.0);
        self.old.dump_to(new);
        self.old.stop("fast");
        self.go_on(new);
    }
}

/// A dump of a database of the oldest version is restored on a new server whose clock is behind.
#[test]
fn a_dump_is_restored() {
    let moving = Moving::from(start_version("0.1.0"));
    let new = Server::start_plain(&[PRELOAD]);
    moving.go_on_by_dump(&new);
}

/// The section of docs/cookbook.md about the extension's schema and dumps. Everything works with a schema outside the
/// `search_path`, an ordinary role restores a dump into its own database, and a dump can be restored into a database
/// where idgen has another schema, without changes of its data.
#[test]
fn a_dump_goes_into_another_schema() {
    let page = include_str!("../../docs/cookbook.md");
    let (_, section) = page.split_once("\n## The extension's schema, and dumps\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("its end");
    let blocks: Vec<_> =
        section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [dump, part, all, convert] = blocks[..] else { panic!("{} blocks", blocks.len()) };

    let server = Server::start_plain(&[PRELOAD]);
    let mut admin = server.connect();
    admin.run("CREATE ROLE owner; CREATE ROLE app");
    for database in ["app", "old", "part", "enabled", "owned OWNER owner"] {
        admin.run(&format!("CREATE DATABASE {database}"));
    }
    // Tables with everything that can contain a function of idgen, and with a text that only resembles a call.
    let tables = |schema: &str, idgen: &str| {
        format!(
            "CREATE SCHEMA {schema};
             CREATE DOMAIN {schema}.key AS bigint DEFAULT {idgen}.snowflake_next_id(5);
             CREATE TABLE {schema}.users (
                 id bigint PRIMARY KEY DEFAULT {idgen}.snowflake_next_id(5) CHECK ({idgen}.shard_of(id) = 5),
                 other {schema}.key, at timestamptz GENERATED ALWAYS AS ({idgen}.snowflake_time(id, '2025-01-01Z')) STORED,
                 name text);
             CREATE INDEX ON {schema}.users ({idgen}.snowflake_text(id));
             CREATE TABLE {schema}.parts (id bigint DEFAULT {idgen}.snowflake_next_id(5))
                 PARTITION BY LIST ({idgen}.shard_of(id));
             CREATE TABLE {schema}.parts5 PARTITION OF {schema}.parts FOR VALUES IN (5);
             CREATE VIEW {schema}.recent AS
                 SELECT * FROM {schema}.users WHERE {idgen}.snowflake_between(id, now() - interval '1 hour', 'infinity');
             INSERT INTO {schema}.users (name) VALUES ('public.snowflake_next_id(1)');
             INSERT INTO {schema}.parts DEFAULT VALUES;"
        )
    };
    server.connect_to("old").run("CREATE EXTENSION idgen");
    server.connect_to("old").run(&tables("insta6", "public"));

    run(for_servers(&[&server], &["enable", "app", "--yes"]));
    let mut client = server.connect_to("app");
    // The function is found by the path of the database, and by its schema without a path.
    assert!(client.value::<bool>("SELECT snowflake_next_id(5) > 0"));
    client.run("SET search_path = ''");
    client.run(&tables("insta5", "idgen"));
    let moved = client.column::<String>("SELECT concat_ws(' ', \"table\", \"column\", new_default) FROM idgen.snowflake_assign_shard('insta5', 7)
         ORDER BY \"table\" COLLATE \"C\", \"column\" COLLATE \"C\"",
    );
    assert_eq!(
        moved,
        [
            "parts id idgen.snowflake_next_id(7)",
            "parts5 id idgen.snowflake_next_id(7)",
            "recent other idgen.snowflake_next_id(7)",
            "users id idgen.snowflake_next_id(7)",
            "users other idgen.snowflake_next_id(7)"
        ]
    );
    client.run("SELECT idgen.snowflake_assign_shard('insta5', 5)");
    let in_public = "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace";
    assert_eq!(client.column::<String>(in_public), [""; 0]);
    // Inserts need no privilege on the extension's schema.
    client.run(
        "REVOKE USAGE ON SCHEMA idgen FROM PUBLIC; GRANT USAGE ON SCHEMA insta5 TO app;
             GRANT SELECT, INSERT ON insta5.users, insta5.recent TO app; SET ROLE app;
             INSERT INTO insta5.users (name) VALUES ('b'); SELECT * FROM insta5.recent;
             RESET ROLE; GRANT USAGE ON SCHEMA idgen TO PUBLIC; SET ROLE app;
             SELECT * FROM idgen.idgen_status; SELECT * FROM idgen.idgen_columns; RESET ROLE",
    );

    // Into an empty database, a single schema, and by an ordinary role into its own database.
    for block in [dump, part, all] {
        run(server.shell(block));
    }
    let rows = "SELECT concat_ws(' ', id, other, at, name) FROM insta5.users ORDER BY id";
    assert_eq!(server.connect_to("copy").column::<String>(rows), client.column::<String>(rows));
    run(server.shell("psql -X -q -d part -c 'CREATE SCHEMA idgen; CREATE EXTENSION idgen SCHEMA idgen'"));
    run(server.shell("psql -X -q -v ON_ERROR_STOP=1 -d part -f insta5.sql"));
    run(server.shell("pg_restore --no-owner --no-acl --role=owner -d owned --exit-on-error app.dump"));
    // A full dump creates the schema itself, so only a dump without it can be restored where the extension exists.
    run(for_servers(&[&server], &["enable", "enabled", "--yes"]));
    let why = "schema \"idgen\" already exists";
    refused(server.shell("pg_restore -d enabled --exit-on-error app.dump"), &[why]);
    assert!(section.contains(why));
    run(server.shell("psql -X -q -v ON_ERROR_STOP=1 -d enabled -f all.sql"));
    assert_eq!(server.connect_to("enabled").column::<String>(rows), client.column::<String>(rows));
    for database in ["copy", "part", "owned"] {
        let mut client = server.connect_to(database);
        let path: String = client.value("SHOW search_path");
        assert_eq!(path.ends_with(", idgen"), database == "copy", "{database}: {path}");
        let insert = "INSERT INTO insta5.users DEFAULT VALUES RETURNING idgen.shard_of(other)";
        assert_eq!(client.value::<i32>(insert), 5, "{database}");
    }
    let owner = "SELECT extowner::regrole::text FROM pg_extension WHERE extname = 'idgen'";
    assert_eq!(server.connect_to("owned").column::<String>(owner), ["owner"]);

    // With another schema, the dump is refused for the name of the schema, and succeeds once the names are changed.
    let why = "function public.snowflake_next_id(integer) does not exist";
    refused(server.shell("pg_dump old | psql -X -q -v ON_ERROR_STOP=1 -d app"), &[why]);
    assert!(section.replace('\n', " ").contains(why));
    client.run("DROP SCHEMA insta6 CASCADE");
    let convert = convert.replace("docs/", &format!("{}/docs/", top().display()));
    let mut old = server.connect_to("old");
    // Objects of other roles in public do not get into the schema of idgen.
    for (create, kind) in [
        ("FUNCTION public.snowflake_min_id(text) RETURNS text LANGUAGE sql AS 'SELECT $1'", "FUNCTION"),
        ("TABLE public.idgen_notes (note text)", "TABLE"),
        ("VIEW public.shard_of_user AS SELECT 1", "VIEW"),
    ] {
        old.run(&format!(
            "GRANT CREATE ON SCHEMA public TO owner; SET ROLE owner; CREATE {create}; RESET ROLE"
        ));
        let named = format!("{kind} public {}", create.split(['.', '(', ' ']).nth(2).unwrap());
        refused(server.shell(&convert), &[&named, "Nothing has been"]);
        assert!(!client.value::<bool>("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'insta6')"));
        old.run("DROP OWNED BY owner");
    }
    old.run("CREATE SCHEMA republic; CREATE VIEW republic.snowflake_view AS SELECT public.snowflake_min_id(now()) AS id");
    run(server.shell(&convert));
    // Nothing runs after the first failing step, so that no row is restored twice.
    let text = refused(server.shell(&convert), &["already exists"]);
    assert!(!text.contains("duplicate key"), "{text}");
    assert_eq!(client.column::<i64>("SELECT count(*) FROM insta6.parts"), [1]);
    assert!(client.value::<bool>("SELECT id > 0 FROM republic.snowflake_view"));
    let rows = "SELECT concat_ws(' ', id, other, at, name) FROM insta6.users ORDER BY id";
    assert_eq!(client.column::<String>(rows), server.connect_to("old").column::<String>(rows));
    assert_eq!(client.column::<String>("SELECT name FROM insta6.recent"), ["public.snowflake_next_id(1)"]);
    let insert = "INSERT INTO insta6.parts DEFAULT VALUES RETURNING idgen.shard_of(id)";
    assert_eq!(client.value::<i32>(insert), 5);
    assert_eq!(client.column::<String>(in_public), [""; 0]);
}

/// pgcopydb creates indexes from texts printed under the path of its session, which docs/cookbook.md sets.
#[test]
fn pgcopydb_copies_indexes_on_expressions() {
    let Some(program) = installed("pgcopydb") else { return lacks("pgcopydb") };
    let version = output_of_run(command(program).arg("--version"));
    let (versions, own) = (version.lines().last().unwrap(), major_version().to_string());
    if !versions.split([' ', ',']).any(|word| word == own) {
        return skipped(&format!("pgcopydb is {versions}"));
    }
    let server = Server::start(&[]);
    server.run("CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowflake_next_id(5))");
    server.run("CREATE INDEX ON users (shard_of(id)); INSERT INTO users DEFAULT VALUES");
    let options = "PGOPTIONS=-csearch_path=pg_catalog";
    assert!(include_str!("../../docs/cookbook.md").contains(&format!("`{options}`")));
    let copy = |options: &str, new: &str| {
        let clone = "pgcopydb clone --source dbname=postgres --target";
        let script = format!("createdb {new}; {options} {clone} dbname={new} --dir {new}");
        // If it fails, it ends its process group.
        server.shell(&script).process_group(0).output().unwrap()
    };
    // Newer versions set the database's path first.
    let without = copy("", "without");
    let fails = said(&without).contains("function shard_of(bigint) does not exist");
    assert_ne!(without.status.success(), fails, "{}", said(&without));
    let done = copy(options, "with_options");
    assert!(done.status.success(), "{}", said(&done));
    let mut client = server.connect_to("with_options");
    let indexes = "SELECT count(*) FROM pg_index WHERE indrelid = 'users'::regclass";
    assert_eq!(client.value::<i64>(indexes), 2);
    assert_eq!(client.value::<i32>("INSERT INTO users DEFAULT VALUES RETURNING idgen.shard_of(id)"), 5);
}

/// While the files of a running server of the last release are replaced, and after a restart, its functions go on to
/// mint. The script fails or succeeds as a whole before the restart, and succeeds after it.
#[test]
fn files_are_replaced_under_a_running_server() {
    for preload in [PRELOAD, ""] {
        let Some(server) = start_older(Build::Replaced, &[preload]) else { return };
        let version: String = server.value("SELECT extversion FROM pg_extension WHERE extname = 'idgen'");
        if preload.is_empty() && (version == "0.1.0" || major_version() < 17) {
            continue;
        }
        server.run(THINGS);
        let clients = Clients::start_by(4, &server, insert);
        clients.wait_for_ids(2000);

        Build::Release.give_files(Build::Replaced);
        clients.wait_for_ids(2000);
        let mint = "SELECT snowflake_next_id(1)";
        let mut new = server.connect();
        if new.query(mint, &[]).is_err() {
            // A session that loads the new files does not share memory of another layout.
            assert_eq!((preload, &*new.refusal(mint)), ("", "55000 OtherLibrary"));
        }
        let before = catalog(&mut new);
        if new.batch_execute("ALTER EXTENSION idgen UPDATE").is_err() {
            assert_eq!(catalog(&mut new), before);
        }
        clients.wait_for_ids(2000);

        server.restart();
        clients.wait_for_ids(2000);
        server.run("ALTER EXTENSION idgen UPDATE");
        let mut ledger = Ledger::default();
        clients.finish_after(2000, &mut ledger);
        // The restart has cut them off.
        ledger.errors.retain(|error, _| !error.starts_with("57P01") && error != "lost");
        assert!(ledger.errors.is_empty(), "{:?}", ledger.errors);
        assert_newest(&server);
    }
}

/// An update with the standbys first, and a failover before and after the script.
#[test]
fn a_standby_is_updated_first() {
    let Some(mut one) = start_older(Build::Older, &[PRELOAD]) else { return };
    one.run(THINGS);
    one.run("CREATE DATABASE not_updated");
    one.connect_to("not_updated").run("CREATE EXTENSION idgen");
    let mut two = one.standby("two");
    two.stop("fast");
    two.set_build(Build::Release);
    two.up();
    one.make_synchronous("two");
    let clients = Clients::start_by(4, &one, insert);
    clients.wait_for_ids(3000);
    two.refuses();

    clients.move_to(&two);
    one.stop("fast");
    two.promote();
    two.make_asynchronous();
    clients.wait_for_ids(3000);
    one.set_build(Build::Release);
    one.follow(&two, "one");
    one.up();
    two.make_synchronous("one");
    two.run("ALTER EXTENSION idgen UPDATE");
    clients.wait_for_ids(3000);

    clients.move_to(&one);
    two.stop("fast");
    one.promote();
    one.make_asynchronous();
    let mut ledger = Ledger::default();
    clients.finish_after(3000, &mut ledger);
    assert_newest(&one);

    // With the old files once more, there are later ids, or none.
    one.stop("fast");
    one.set_build(Build::Older);
    one.up();
    let mut client = one.connect_to("not_updated");
    if let Ok(minted) = ids(&mut client, "SELECT snowflake_next_id(1) FROM generate_series(1, 1000)") {
        ledger.add(&minted);
    }
}

/// Checks that the objects of the extension are those that an installation creates.
fn assert_newest(server: &Server) {
    server.run("CREATE DATABASE fresh");
    let mut fresh = server.connect_to("fresh");
    fresh.run("CREATE EXTENSION idgen");
    assert_eq!(difference(&catalog(&mut server.connect()), &catalog(&mut fresh)), [""; 0]);
}

/// pg_upgrade moves a server's data to a new server whose clock is behind: of the same PostgreSQL or, with `make
/// upgrades`, of a newer one.
#[test]
fn pg_upgrade() {
    let Some(older) = start_older(Build::Older, &[PRELOAD]) else { return };
    let moving = Moving::from(older);
    // PostgreSQL 15.20 of Debian gives every column an option that newer versions refuse, so that pg_upgrade fails on
    // any table.
    moving.old.run("UPDATE pg_attribute SET attoptions = NULL WHERE attoptions::text LIKE '{pg_attver=%'");
    moving.old.stop("fast");
    let new = moving.old.upgraded_to(Build::Release, &[PRELOAD]);
    new.set_clock(-60.0);
    new.up();
    moving.go_on(&new);
}
