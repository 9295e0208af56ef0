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
    1  failed or refused; the message says what was changed, if anything
    2  wrong usage
    3  the check found something
    4  interrupted in the middle; the message says how to go on";

/// Checks, enables, moves and repairs idgen on PostgreSQL servers.
#[derive(Debug, Parser)]
#[command(version, after_help = SERVERS_AND_EXIT_CODES, max_term_width = 110)]
pub struct Cli {
    /// Where the servers are
    #[command(flatten)]
    pub servers: Servers,
    /// Prints JSON for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// Makes the changes without asking
    #[arg(long, short, global = true)]
    pub yes: bool,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Where the servers are.
#[derive(Debug, Args)]
pub struct Servers {
    /// A server: a connection string or URI of libpq. Repeat it for more servers
    #[arg(long = "server", short = 's', global = true, value_name = "CONNECTION")]
    pub connections: Vec<String>,
    /// A file that names servers
    #[arg(
        long,
        short,
        global = true,
        value_name = "FILE",
        env = "IDGENCTL_FLEET",
        conflicts_with = "connections"
    )]
    pub fleet: Option<PathBuf>,
    /// Patroni's REST interface, such as http://10.0.0.1:8008, to find the members of its cluster. Repeat it for more
    /// clusters
    #[arg(long, global = true, value_name = "URL")]
    pub patroni: Vec<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Looks for whatever could stop minting or repeat ids, on all servers at once. Changes nothing
    Check,
    /// Prepares a database and its server for idgen, whose files must be installed there
    Enable(Enable),
    /// Shows who mints what, how fast, and what is refused
    Status(Status),
    /// Moves a schema with its shard to another server while clients keep working
    Move(Move),
    /// Takes the high-water mark of a cluster to another, for a dump, pg_upgrade or logical replication
    Carry(Carry),
    /// Accepts a clock that was corrected, after the error that the system clock leapt forward
    AcceptClock(On),
    /// Accepts an epoch that was changed on purpose
    AcceptEpoch(On),
    /// Removes idgen from a cluster, step by step, without loss of rows
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
    /// "target", and the list
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
