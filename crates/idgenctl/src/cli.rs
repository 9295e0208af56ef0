//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The end of the help. clap breaks the lines.
const SERVERS_AND_EXIT_CODES: &str = "\
Servers:
Connect as a superuser, directly and not through a pooler. Without --server and --fleet, idgenctl connects where psql \
would. Give each server a password of its own. A fleet file names servers, including standbys, by connection strings:

    ignore = [\"asynchronous:two\"]    # findings to leave out
    [servers]
    one = \"host=10.0.0.1 user=postgres dbname=app\"
    two = \"postgresql://postgres@10.0.0.2/app\"

Exit codes:
    0  done, or nothing found
    1  failed or refused, or something is left for you to do; the message says what
    2  wrong usage
    3  the check found errors, such as a server that does not answer
    4  stopped halfway; the message says how to go on
    5  the check found warnings, and no errors
  130  ended by Ctrl-C, with nothing changed or everything undone";

/// Enables and checks idgen on PostgreSQL servers, and moves shards between them.
#[derive(Debug, Parser)]
#[command(version, after_help = SERVERS_AND_EXIT_CODES, max_term_width = 110)]
#[command(next_help_heading = "Options of every command")]
pub struct Cli {
    /// A server: a libpq connection string or URI. May be repeated
    #[arg(long = "server", short = 's', global = true, value_name = "CONNECTION")]
    pub connections: Vec<String>,
    /// A file that names servers
    #[arg(long, short, global = true, value_name = "FILE", env = "IDGENCTL_FLEET")]
    #[arg(conflicts_with = "connections")]
    pub fleet: Option<PathBuf>,
    /// Makes the changes without asking
    #[arg(long, short, global = true)]
    pub yes: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shows each server, and looks for anything that could stop minting or repeat ids. Changes nothing
    ///
    /// docs/checks.md lists the kinds of findings. List all servers: some problems only show in comparison.
    Check(Check),
    /// Prepares a database and its server for idgen, whose files must be installed there and on the standbys
    ///
    /// Give a primary with its standbys, or first each standby alone. The command shows what it will do, and asks. Restart
    /// the servers in the order shown, and run the same command again, which then says whether they mint. Decide
    /// idgen.epoch and, with several clusters, idgen.allowed_shards before the first id: see docs/reference.md.
    Enable {
        /// The database that gets the extension
        database: String,
    },
    /// Moves a schema with its shard to another server while clients keep working
    ///
    /// The command checks what could stop the move, and asks. Then it renames the schema on the source, closes the shard
    /// there, copies the schema with pg_dump, and opens the shard on the target past all ids of the source. Meanwhile
    /// clients get 3F000, 42P01 or 55000, and must try again on the target. The old rows stay on the source, in the schema
    /// SCHEMA_moved, for you to drop. If a step fails, the move is undone. If it was killed, run it again: it says how to go on.
    ///
    /// List all standbys of both servers: one that keeps the old list would repeat ids once it is promoted.
    Move(Move),
}

#[derive(Debug, Args)]
pub struct Check {
    /// Prints an object with servers and findings or, if it fails, with error and hint
    #[arg(long)]
    pub json: bool,
    /// A kind of finding to leave out, on one server or on all. May be repeated
    #[arg(long, value_name = "ID[:SERVER]")]
    pub ignore: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Move {
    /// The schema to move
    pub schema: String,
    /// The server that has it: its name in the file, or a connection string
    #[arg(long, value_name = "SERVER")]
    pub from: String,
    /// The server that gets it
    #[arg(long, value_name = "SERVER")]
    pub to: String,
    /// The shard, if no default in the schema names one
    #[arg(long)]
    pub shard: Option<u16>,
    /// How the role that owns the schema connects to both servers: parameters that replace those of the fleet, such as
    /// user=app, but no password, which both would get. It copies the schema, because a copy runs code of the owner
    #[arg(long, value_name = "PARAMETERS")]
    pub owner: Option<String>,
    /// A program that sets idgen.allowed_shards where Patroni or an operator keeps it. It is called with "source" or
    /// "target", and the list; first, as a trial, with the present lists
    #[arg(long, value_name = "PROGRAM")]
    pub set_list: Option<PathBuf>,
    /// Gives the shard back to the source after an interrupted move
    #[arg(long, conflicts_with = "finish")]
    pub undo: bool,
    /// Continues a move that broke off once the target could mint
    #[arg(long)]
    pub finish: bool,
}
