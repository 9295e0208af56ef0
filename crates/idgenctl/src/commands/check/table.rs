//! The kinds of findings. docs/checks.md has the same table.

use std::fmt::Display;

use serde::Serialize;

use crate::idgen::preload::Keeper;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Ids are not minted, or may be repeated, now or after a promotion.
    Error,
    /// May become an error.
    Warning,
    /// Does not count for the exit code.
    Note,
}

/// What a hint asks for, which decides how it is shown where Patroni or an operator keeps the configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// Nothing that depends on who keeps the configuration.
    Any,
    /// Another value of a setting, or a restart: they have their own way to do that.
    Set,
    /// A decision that they make themselves, so only the fact is shown.
    Own,
}

/// A kind of finding.
pub struct Kind {
    /// Stable across versions.
    pub id: &'static str,
    pub severity: Severity,
    /// What was seen, with a `{}` for each part.
    text: &'static str,
    /// What to do. It may be followed in a hurry, so it must not make things worse in any state with the finding: it
    /// never asks to start, promote or drop anything, nor to restart a server whose clock may be wrong.
    hint: &'static str,
    asks: Asks,
}

impl Kind {
    pub fn message(&self, parts: &[&dyn Display]) -> String {
        let mut parts = parts.iter().map(ToString::to_string);
        let mut texts = self.text.split("{}");
        let first = texts.next().unwrap_or_default().to_owned();
        texts.fold(first, |message, text| message + &parts.next().unwrap_or_default() + text)
    }

    pub fn hint_for(&self, keeper: Keeper) -> String {
        match (self.asks, keeper) {
            (Asks::Own, Keeper::Patroni | Keeper::Operator) => String::new(),
            (Asks::Set, Keeper::Patroni) => format!(
                "{} Use patronictl edit-config, and ALTER SYSTEM RESET where a server has a value of its own.",
                self.hint
            ),
            (Asks::Set, Keeper::Operator) => format!("{} Do that where the operator keeps it.", self.hint),
            _ => self.hint.into(),
        }
    }
}

macro_rules! kinds {
    ($($name:ident: $id:literal, $severity:ident, $asks:ident, $text:literal, $hint:literal;)*) => {
        $(pub const $name: &Kind = &Kind {
            id: $id, severity: Severity::$severity, asks: Asks::$asks, text: $text, hint: $hint
        };)*

        #[cfg(test)]
        const ALL: &[&Kind] = &[$($name),*];
    };
}

kinds! {
    // Servers and databases.
    UNREACHABLE: "unreachable", Error, Any, "the server cannot be reached: {}",
        "If another may have taken its place, start it only as a standby. A start accepts its clock, right or wrong.";
    SERVER_NOT_SEEN: "server-not-seen", Error, Any, "the server cannot be examined: {}",
        "The check needs a superuser.";
    DATABASE_NOT_SEEN: "database-not-seen", Error, Any, "the database cannot be examined: {}",
        "It may mint for shards of another server.";
    NO_PRIMARY: "no-primary", Warning, Any, "the primary of this standby is not known, so they are not compared",
        "If it is not in the fleet, add it.";
    STANDBY_NOT_IN_FLEET: "standby-not-in-fleet", Warning, Any, "its standby {} at {} is not in the fleet",
        "Add it, so that it is compared.";
    TWO_PRIMARIES: "two-primaries", Error, Any,
        "{} and this server are primaries of one cluster, on timelines {} and {}, and mint the same ids",
        "Find out which of them clients must use, and see that the other stops and stays stopped. A copy that is to \
         remain needs shards of its own. Change nothing else before.";
    SAME_SERVER: "same-server", Error, Any, "it and {} say that they are one server",
        "If they are, name it once. If not, one lies.";

    // Shards and epochs.
    LISTS_OVERLAP: "lists-overlap", Error, Set, "other clusters may mint for the same shards: {}",
        "Take them out of all lists but one (an empty list means all). In databases of your own, have that server \
         snowflake_advance past what snowflake_close_shard returns on the others.";
    LISTS_DIFFER: "lists-differ", Error, Set,
        "its idgen.allowed_shards is {}, and that of {}, which may be its primary, is {}",
        "Once it receives WAL from that server, and no shard is moving, give it that list, without shards of other servers, \
         up or down.";
    SHARD_NOT_ALLOWED: "shard-not-allowed", Error, Any, "the server may not mint for {}",
        "INSERTs there fail. Add a shard only if no other server mints for it, and its ids are all in the past.";
    SHARD_CLOSED: "shard-closed", Error, Any, "shards of its list are closed: {}",
        "A move may be under way. Reopen them only if no other server has minted for them since.";
    SHARD_UNSET: "shard-unset", Note, Any, "no idgen.shard is set for the defaults of {}",
        "Each session has to set it.";
    EPOCH_DIFFERS: "epoch-differs", Error, Any, "idgen.epoch is {} here, and {}",
        "The epoch of ids never changes: correct a server whose epoch is not that of its ids.";

    COLUMN_TOO_SMALL: "column-too-small", Error, Any, "ids do not fit into {}",
        "Have their owners make them bigint, which rewrites the tables under a lock.";
    RIGHTS_MISSING: "rights-missing", Error, Any, "roles that may insert into columns that mint lack privileges: {}",
        "Grant them, if these roles are to mint.";
    PORTABLE_EDITION: "portable-edition", Error, Any,
        "the portable edition mints for shards for which others mint, too: {}",
        "Let clients use only one of them, and have the owner of its database make it mint past the ids of the other.";
    MOVE_NOT_ENDED: "move-not-ended", Error, Any,
        "a move of schema {} is under way or was interrupted",
        "If nobody is moving it, run the same move again, which says how to go on.";

    // The library.
    LIBRARY_MISSING: "library-missing", Error, Any, "the library of idgen does not show its state: {}",
        "Install the version that the rest of the cluster has.";
    LIBRARY_FAILS: "library-fails", Error, Any, "its library says {} ({})",
        "Run idgenctl enable, once its clock is right. Leave a router that must not mint out of the fleet.";
    VERSIONS_DIFFER: "versions-differ", Warning, Any,
        "its library is of version {}, and that of {}, which may be its primary, of {}",
        "Finish the upgrade, standbys first.";
    UPDATE_OUTSTANDING: "update-outstanding", Warning, Any, "the extension is of version {}, and the library of {}",
        "Once the whole cluster runs the newer library, run ALTER EXTENSION idgen UPDATE there.";
    NOT_PRELOADED: "not-preloaded", Warning, Any,
        "idgen is not preloaded, or will not be from the next start on: it mints only with its default settings",
        "Run idgenctl enable, once its clock is right.";

    // Durability and clocks.
    FSYNC_OFF: "fsync-off", Error, Set, "fsync is off: after a crash of the machine, ids may be repeated",
        "Set fsync = on.";
    ASYNCHRONOUS: "asynchronous", Note, Own, "no standby is synchronous: a failover may repeat ids",
        "If it must not, name one that streams in synchronous_standby_names.";
    SYNC_NAME_UNKNOWN: "sync-name-unknown", Warning, Own, "synchronous_standby_names contains unknown names: {}",
        "Correct a name that no server has. Add another one to the fleet under it.";
    SYNC_NOT_A_STANDBY: "sync-not-a-standby", Warning, Own,
        "{} may acknowledge in the place of a standby, and cannot be promoted",
        "Once the standbys stream, name only them in synchronous_standby_names.";
    CLOCK_DIFFERS: "clock-differs", Error, Any, "the clock is at least {} {} this machine's",
        "Compare both with one that you trust, and correct the wrong one. Restart and promote nothing before.";
    MAX_AHEAD_WIDE: "max-ahead-wide", Warning, Set, "idgen.max_ahead is {}: ids may be that far in the future",
        "Set it back to 1s once no id is ahead.";
    PREPARED_TRANSACTIONS: "prepared-transactions", Warning, Any,
        "{} prepared transactions, up to {} old, stop snowflake_safe_horizon()",
        "Have the program that prepared them end them: by hand, half of one may be lost.";
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// Promise: docs/checks.md lists each kind with its severity, text and hint.
    #[test]
    fn the_page_has_the_table() {
        let page = include_str!("../../../../../docs/checks.md");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let listed: Vec<String> = page.split("\n- ").skip(1).map(words).collect();
        let line = |kind: &&super::Kind| {
            let severity = format!("{:?}", kind.severity).to_lowercase();
            format!("**{}** ({severity}): {}. {}", kind.id, kind.text.replace("{}", "…"), kind.hint)
        };
        assert_eq!(listed, ALL.iter().map(line).collect::<Vec<_>>());
    }
}
