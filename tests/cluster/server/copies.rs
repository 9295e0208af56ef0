//! Servers made from others, such as backups, standbys and upgrades, and which server follows which.

use std::fs;
use std::path::Path;

use postgres::Client;
use postgres::error::SqlState;

use crate::process::{client_program, command, output_of_run, run};
use crate::server::{Build, Server, initdb, succeeds};

impl Server {
    /// A copy of the running server, not started yet.
    pub fn base_backup(&self) -> Server {
        self.copy("backup")
    }

    /// A running standby of this server with this application_name.
    pub fn standby(&self, name: &str) -> Server {
        self.standby_by(&self.host(), name)
    }

    /// A running standby for which commits wait, and which may be promoted.
    pub fn synchronous_standby(&self, name: &str) -> Server {
        let standby = self.standby(name);
        self.make_synchronous(name);
        standby
    }

    /// A standby that reaches this server through the socket in another folder.
    pub fn standby_by(&self, host: &str, name: &str) -> Server {
        let standby = self.copy(name);
        standby.follow_by(host, name);
        standby.up();
        standby
    }

    fn copy(&self, name: &str) -> Server {
        let mut copy = Server::new(self.build);
        copy.has_disk = self.has_disk;
        let mut backup = self.pg("pg_basebackup");
        backup
            .args(["--checkpoint=fast", "--no-sync", "-D"])
            .arg(&copy.dir)
            .arg(format!("--dbname={} application_name={name}", self.target("postgres")));
        // The server may just restart after the death of a backend.
        self.reconnect();
        assert!(succeeds(&mut backup), "{backup:?}");
        copy.own_sockets();
        copy
    }

    /// A server, not started yet, whose files `write` creates in the given folder.
    pub fn made_by(&self, write: impl FnOnce(&Path)) -> Server {
        let server = Server::new(self.build);
        write(&server.dir);
        server.own_sockets();
        server
    }

    /// A server of this build, not started yet, to which pg_upgrade moves the data of this older, stopped one, with
    /// these lines in its configuration.
    pub fn upgraded_to(&self, build: Build, settings: &[&str]) -> Server {
        let new = Server::new(build);
        // Both need the same segment size, and checksums, the default from PostgreSQL 18 on.
        let mut segments = fs::read_dir(self.dir.join("pg_wal")).expect("a folder").flatten();
        let segment = segments.find(|file| file.file_name().len() == 24).expect("a segment");
        let megabytes = segment.metadata().expect("a file").len() >> 20;
        initdb(new.build, &new.dir, &["--data-checksums", &format!("--wal-segsize={megabytes}")]);
        // This fails if the older one has checksums already.
        let _ = self.pg("pg_checksums").args(["--enable", "--no-sync", "-D"]).arg(&self.dir).output();
        new.configure(&["listen_addresses = ''"]);
        new.configure(settings);
        new.own_sockets();
        let mut upgrade = new.pg("pg_upgrade");
        upgrade.args(["--no-sync", "--username=postgres", "--socketdir"]).arg(&new.sockets);
        upgrade.arg("-b").arg(self.build.bin()).arg("-d").arg(&self.dir);
        upgrade.arg("-B").arg(new.build.bin()).arg("-D").arg(&new.dir);
        upgrade.current_dir(&new.sockets); // where it leaves its scripts
        if !upgrade.output().expect("pg_upgrade").status.success() {
            let mut logs = command("find");
            logs.arg(new.dir.join("pg_upgrade_output.d"))
                .args(["-name", "*.log", "-exec", "tail", "-v", "{}", "+"]);
            panic!("pg_upgrade fails\n{}", String::from_utf8_lossy(&run(logs).stdout));
        }
        new
    }

    /// Copies the objects and rows of the database `postgres` to an empty server, by pg_dump.
    pub fn dump_to(&self, new: &Server) {
        let script = "pg_dump -d \"$0\" | psql -X -q -v ON_ERROR_STOP=1 -d \"$1\"";
        let databases = [self.target("postgres"), new.target("postgres")];
        run(client_program("bash").args(["-o", "pipefail", "-c", script]).args(databases));
        new.run(&super::path("postgres"));
    }

    /// Makes a former primary, stopped or killed, a standby of the one that was promoted.
    pub fn rewind(&self, primary: &Server, name: &str) {
        self.rewind_to(primary);
        self.follow(primary, name);
    }

    /// Rewinds a former primary, stopped or killed, to the promotion of the other server.
    pub fn rewind_to(&self, primary: &Server) {
        // pg_rewind does not see a promotion before the first checkpoint after it.
        primary.until_done("CHECKPOINT");
        let mut rewind = self.pg("pg_rewind");
        rewind.args(["--no-sync", "--target-pgdata"]).arg(&self.dir);
        rewind.arg(format!("--source-server={}", primary.target("postgres")));
        assert!(succeeds(&mut rewind), "{rewind:?}");
        self.forget_journals();
        self.own_sockets();
    }

    /// Makes a former primary that was shut down cleanly a standby.
    pub fn follow(&self, primary: &Server, name: &str) {
        self.follow_by(&primary.host(), name);
    }

    /// Makes the server a standby that connects through the socket in this folder.
    pub fn follow_by(&self, host: &str, name: &str) {
        if !self.follows() {
            self.forget_timelines();
        }
        self.configure(&[&format!("primary_conninfo = 'host={host} user=postgres application_name={name}'")]);
        run(command("touch").arg(self.dir.join("standby.signal")));
    }

    /// Removes files of timelines newer than the server's own. A primary that was killed during its promotion has such
    /// files, and another server may use the number of that timeline.
    fn forget_timelines(&self) {
        let control = output_of_run(self.pg("pg_controldata").env("LC_ALL", "C").arg(&self.dir));
        let timeline = |name: &str| -> u32 {
            let value = control.lines().find_map(|line| line.strip_prefix(name)).expect(name);
            value.trim().parse().expect("a number")
        };
        // Its WAL may have a later timeline than its last checkpoint.
        let own =
            timeline("Latest checkpoint's TimeLineID:").max(timeline("Min recovery ending loc's timeline:"));
        for file in fs::read_dir(self.dir.join("pg_wal")).expect("WAL").flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            let timeline = name.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            if timeline.is_some_and(|timeline| timeline > own) {
                fs::remove_file(file.path()).expect("a file of WAL");
            }
        }
    }

    /// Checks that a standby refuses to mint, and returns the session.
    pub fn refuses(&self) -> Client {
        let mut client = self.reconnect();
        let refused = client.batch_execute("SELECT snowflake_next_id(900)").expect_err("a standby mints");
        let right = refused.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
        assert!(right, "a standby refuses an id for another reason: {refused:?}");
        client
    }

    /// Whether it starts as a standby.
    pub fn follows(&self) -> bool {
        self.dir.join("standby.signal").exists()
    }

    pub fn promote(&self) {
        run(self.pg("pg_ctl").args(["promote", "--wait", "--silent", "-D"]).arg(&self.dir));
    }

    pub fn begin_promotion(&self) {
        run(self.pg("pg_ctl").args(["promote", "--no-wait", "--silent", "-D"]).arg(&self.dir));
    }

    /// Makes the standby of this name synchronous, and waits until commits wait for it and it has caught up. From then
    /// on it may be promoted.
    pub fn make_synchronous(&self, standby: &str) {
        self.make_synchronous_as(standby, &[standby]);
    }

    /// Makes these standbys synchronous by this value of `synchronous_standby_names`, which names all of them.
    pub fn make_synchronous_as(&self, names: &str, standbys: &[&str]) {
        self.configure(&[&format!("synchronous_standby_names = '{names}'")]);
        self.reload("synchronous_standby_names", names);
        let named = format!("application_name IN ('{}')", standbys.join("', '"));
        // Each WAL sender reads the setting at a time of its own. Until then, standbys named before still acknowledge.
        self.wait_until(&format!(
            "SELECT count(*) FILTER (WHERE {named}) = {} AND bool_and({named} = (sync_state <> 'async'))
             FROM pg_stat_replication",
            standbys.len()
        ));
        // Commits wait once the checkpointer has read the setting, which it does before it answers.
        self.until_done("CHECKPOINT");
        self.until_followed(standbys);
    }

    /// Waits until these standbys have received all WAL that this server has flushed so far. The position of the next
    /// record would not do: at the end of a page it is behind the next page's header, which an idle server does not
    /// write.
    pub fn until_followed(&self, standbys: &[&str]) {
        let flushed: String = self.answer("SELECT pg_current_wal_flush_lsn()::text");
        self.wait_until(&format!(
            "SELECT count(*) = {} FROM pg_stat_replication
             WHERE application_name IN ('{}') AND flush_lsn >= '{flushed}'",
            standbys.len(),
            standbys.join("', '")
        ));
    }

    /// Makes commits wait for no standby.
    pub fn make_asynchronous(&self) {
        self.set("synchronous_standby_names", "");
    }
}
