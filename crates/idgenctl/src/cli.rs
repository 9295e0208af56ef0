//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The end of the help. The library breaks the lines.
const SERVERS_AND_EXIT_CODES: &str = "\
Servers:
Connect as a superuser, to the servers themselves and not to a pooler. Without --server and --fleet, the server is the \
one that psql would connect to, by PGHOST, PGSERVICE and so on. A fleet is a file that names servers, each with a \
connection string of libpq:

    [servers]
    one = \"host=10.0.0.1 user=postgres dbname=app\"
    two = \"postgresql://postgres@10.0.0.2/app\"

List standbys too. idgenctl sees for itself which servers are a cluster, and which of them is the primary. A connection \
string with several hosts stands for a server each. Passwords are read from where libpq reads them, such as ~/.pgpass, \
or asked for once.

Exit codes:
    0  done, or nothing found
    1  failed or refused, or something is left for you to do; the message says what
    2  wrong usage
    3  the check found something, or a database could not be looked at
    4  broken off in the middle; the message says how to go on
  130  ended by Ctrl-C, with nothing changed or everything undone";

/// What the help says above the options that every command has.
const GLOBAL: &str = "Options of every command";

/// Checks, enables, moves and repairs idgen on PostgreSQL servers.
#[derive(Debug, Parser)]
#[command(version, after_help = SERVERS_AND_EXIT_CODES, max_term_width = 110)]
pub struct Cli {
    /// Where the servers are
    #[command(flatten)]
    pub servers: Servers,
    /// Prints JSON for programs
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// Makes the changes without asking
    #[arg(long, short, global = true, help_heading = GLOBAL)]
    pub yes: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Where the servers are.
#[derive(Debug, Args)]
pub struct Servers {
    /// A server: a connection string or URI of libpq. Repeat it for more servers
    #[arg(long = "server", short = 's', global = true, value_name = "CONNECTION", help_heading = GLOBAL)]
    pub connections: Vec<String>,
    /// A file that names servers
    #[arg(
        long,
        short,
        global = true,
        value_name = "FILE",
        env = "IDGENCTL_FLEET",
        conflicts_with = "connections",
        help_heading = GLOBAL
    )]
    pub fleet: Option<PathBuf>,
    /// Patroni's REST interface, such as http://10.0.0.1:8008, to find the members of its cluster. Repeat it for more
    /// clusters
    #[arg(long, global = true, value_name = "URL", help_heading = GLOBAL)]
    pub patroni: Vec<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Looks for whatever could stop minting or repeat ids, on all servers at once. Changes nothing
    ///
    /// It compares the servers with each other: versions, the preload, idgen.epoch, the lists of shards of clusters and
    /// of standbys, the clocks, and the marks. On each server it looks for warnings, for columns whose shard the server
    /// may not mint for, for room for the mark, and for what a failover and the way back need. List all servers, or it
    /// cannot see what they have in common.
    ///
    /// Each finding is a line: how bad it is, where, what is wrong, its kind in brackets, and what to do. The exit code is
    /// 0 if nothing but notes is found, and otherwise 3, so that it can run as a job. Run it before production, after
    /// each change of settings, before a failover and after it.
    ///
    /// --json prints an array of objects with severity (error, warning or note), id, server, database, message and hint.
    /// If the check itself fails, as every other command with --json, it prints an object with error and hint instead.
    ///
    /// Example: idgenctl --fleet fleet.toml check
    Check,
    /// Prepares a database and its server for idgen, whose files must be installed there
    ///
    /// Install the files on the primary and its standbys first, and give all of them. It checks that each server can load
    /// the library, and has room for the high-water mark. Then it shows what it will do, and asks: it creates the extension
    /// in the schema idgen, lets everybody use that schema, appends it to the search_path of the database, and adds idgen
    /// to shared_preload_libraries, after the libraries that are there. Where Patroni or an operator keeps that list, it
    /// says what to set there.
    ///
    /// The library is loaded when a server starts: restart the servers in the order that it says, and run the same
    /// command again, which then says whether they mint. Running it twice does no harm.
    ///
    /// Two settings of postgresql.conf are decided before the first id, with the same value on the primary and its
    /// standbys: idgen.epoch, such as '2025-01-01T00:00:00Z' (the default), equal on all servers whose ids are compared;
    /// and, with several clusters, the shards of each in idgen.allowed_shards, such as '0-99,200', out of 0 to 8191. An
    /// empty list means all shards.
    ///
    /// Example: idgenctl --server 'host=10.0.0.1 user=postgres' enable app
    Enable(Enable),
    /// Shows who mints what, how fast, and what is refused
    ///
    /// For each server: the shards that it may mint for; how far its mark is ahead of its clock, where less than zero says
    /// for how long nothing has been minted; ids a second and since the server started, with those that were reserved and
    /// not used; refused calls, waiting sessions and the warning. For the busiest shards: their layout, schemas and ids.
    /// It changes nothing.
    ///
    /// Example: idgenctl --fleet fleet.toml status --watch
    Status(Status),
    /// Moves a schema with its shard to another server while clients keep working
    ///
    /// It first checks whatever could stop the move, on both servers and their standbys, and asks. Then it renames the
    /// schema on the source, takes the shard out of idgen.allowed_shards there, waits until no session mints for it,
    /// copies the schema with pg_dump, raises the mark of the target, and adds the shard to the list of the target.
    /// Meanwhile, for a little more than a second plus the time of the copy, clients get 3F000, 42P01 or 55000, and must
    /// try again on the target. The old rows stay in the schema SCHEMA_moved of the source, for you to drop; before that,
    /// the schema cannot be moved back.
    ///
    /// If a step fails, it undoes the move and says so. If it was killed, run it again: it says what there is. --undo
    /// gives the shard back to the source, as long as the target cannot have minted for it, and --finish goes on.
    ///
    /// List all standbys of both servers: one that keeps the old list would repeat ids once it is promoted. A schema
    /// that does not belong to superusers is restored by its owner: name a connection of that role with --owner.
    ///
    /// Example: idgenctl --fleet fleet.toml move insta5 --to two
    Move(Move),
    /// Takes the high-water mark of a cluster to another, for a dump, pg_upgrade or logical replication
    ///
    /// These leave the mark behind, and without it ids can repeat if the clock of the new server is behind. Run it when
    /// the data is in the new server, the clients of the old one have gone, and those of the new one have not come. Both
    /// servers need the same idgen.epoch: set it and idgen.allowed_shards on the new server, preload idgen and restart it
    /// first. It reads the ids in the tables of the new server, in every database, asks, and
    /// raises the mark of the new server past that of the old one and past these ids. At the end it proves that no id of
    /// before can come again; or it says to restart the server, and to run the same command again.
    ///
    /// Without an old server, it raises the mark past the ids in the tables, as after a restore.
    ///
    /// Example: idgenctl --fleet fleet.toml carry --from one --to two
    ///
    /// If both cannot run at once: idgenctl --fleet fleet.toml carry --from one --save mark, and later
    /// idgenctl --fleet fleet.toml carry --load mark --to two
    Carry(Carry),
    /// Accepts a clock that was corrected, after the error that the system clock jumped forward
    ///
    /// Use it only if the clock is right now, and was behind before, as after a pause of the machine: compare it with a clock
    /// that you trust. If it is wrong, correct it instead, and minting resumes at once. It shows the clocks of all
    /// servers, refuses if that of the primary is ahead of another by more than idgen.max_clock_jump, asks, accepts the
    /// clock as it is, and checks that the server mints.
    ///
    /// Example: idgenctl --fleet fleet.toml accept-clock
    AcceptClock(On),
    /// Accepts an epoch that was changed on purpose
    ///
    /// First set idgen.epoch, such as '2025-01-01T00:00:00Z', on the primary and its standbys, and restart them, the
    /// standbys first. Old ids decode to
    /// other times from then on. If the change was not intended, set it back instead. It compares the servers, says
    /// what changes, asks, accepts the epoch that is set, and checks that the server mints.
    ///
    /// Example: idgenctl --fleet fleet.toml accept-epoch
    AcceptEpoch(On),
    /// Removes idgen from a cluster, step by step, without loss of rows
    ///
    /// It shows what depends on idgen in every database, refuses if you have to change or drop some of it first, such as
    /// a view, and asks. Then it makes shard_of a function of its own, so that
    /// whatever is partitioned or indexed by it stays, drops the defaults that mint, turns generated columns into plain
    /// ones, and takes idgen out of shared_preload_libraries, or says in which file you have to. Restart the servers when
    /// it says so, and run the same command again, which removes the mark and the extension. Ids and rows stay, but an
    /// INSERT must supply its id from the first step on. At the end it lists what is left, such as settings. Remove the
    /// files of idgen last.
    ///
    /// Example: idgenctl --fleet fleet.toml remove
    Remove(On),
}

/// Which server, if there are several clusters.
#[derive(Debug, Args)]
pub struct On {
    /// The server, if the servers belong to several clusters: its name in the file
    #[arg(long, value_name = "SERVER")]
    pub on: Option<String>,
}

/// The arguments of `idgenctl enable`.
#[derive(Debug, Args)]
pub struct Enable {
    /// The database that gets the extension
    pub database: String,
    /// Which server
    #[command(flatten)]
    pub on: On,
}

/// The arguments of `idgenctl status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Shows it again every so many seconds, 2 if the number is left out, until Ctrl-C
    #[arg(long, short, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    pub watch: Option<f64>,
}

/// The arguments of `idgenctl move`.
#[derive(Debug, Args)]
pub struct Move {
    /// The schema
    pub schema: String,
    /// The server that gets it: its name in the file, or a connection string
    #[arg(long, value_name = "SERVER")]
    pub to: String,
    /// The server that has it; otherwise the only other primary that is given
    #[arg(long, value_name = "SERVER")]
    pub from: Option<String>,
    /// The shard, if no default in the schema names one
    #[arg(long)]
    pub shard: Option<u16>,
    /// The target, as the role that owns the schema, unless that is a superuser: a connection string
    #[arg(long, value_name = "CONNECTION")]
    pub owner: Option<String>,
    /// A program that sets idgen.allowed_shards where Patroni or an operator keeps it. It is called with "source" or
    /// "target", and the list; first with the lists that there are, to try it
    #[arg(long, value_name = "PROGRAM")]
    pub set_list: Option<PathBuf>,
    /// Gives the shard back to the source after a move that broke off
    #[arg(long, conflicts_with = "finish")]
    pub undo: bool,
    /// Continues a move that broke off
    #[arg(long)]
    pub finish: bool,
}

/// The arguments of `idgenctl carry`.
#[derive(Debug, Args)]
pub struct Carry {
    /// The old server: its name in the file, or a connection string. Without it and --load, only the ids in the tables of
    /// the new server count, as after a restore
    #[arg(long, value_name = "SERVER", conflicts_with = "load")]
    pub from: Option<String>,
    /// The new server; otherwise the only other primary that is given
    #[arg(long, value_name = "SERVER", conflicts_with = "save")]
    pub to: Option<String>,
    /// Writes the mark of the old server into a file, if both cannot run at once
    #[arg(long, value_name = "FILE", conflicts_with = "load")]
    pub save: Option<PathBuf>,
    /// Reads the mark of the old server from that file
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
}
