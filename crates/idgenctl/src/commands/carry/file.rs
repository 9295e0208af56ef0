//! The file in which a mark waits until the new server runs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process;

use idgen_ids::epoch::utc;
use idgen_ids::id::MAX_TICK;
use idgen_ids::{Epoch, Tick};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The mark of a cluster.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// The name of the server, for messages.
    pub server: String,
    /// The system identifier of its cluster.
    pub system_identifier: String,
    /// idgen.epoch, as the setting takes it.
    pub epoch: String,
    /// The mark, in milliseconds since the epoch.
    pub mark: Tick,
    /// The mark as a time. It follows from the two before, so a file that was damaged or changed by hand is noticed.
    pub mark_at: String,
    /// When it was saved, by the clock of the server.
    pub saved_at: String,
}

impl Saved {
    /// The epoch.
    ///
    /// # Errors
    /// That it is out of range.
    pub fn epoch(&self) -> Result<Epoch> {
        Epoch::parse(&self.epoch).map_err(|_| Error::Usage(format!("{} is no epoch", self.epoch)))
    }

    /// Writes it, as a whole or not at all. Replaces an older one, but no other file.
    ///
    /// # Errors
    /// Those of the file system, and that another file is there.
    pub fn write(&self, path: &Path) -> Result {
        if path.exists() && Saved::read(path).is_err() {
            return Err(Error::refused(
                format!("{} is there, and is not the file of a mark", path.display()),
                "Nothing was written. Choose another name.",
            ));
        }
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(path, &error))?;
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}.new", process::id()));
        let new = PathBuf::from(new);
        // It follows no link that somebody else has made in a folder of all.
        let mut file = fs::File::create_new(&new).map_err(|error| failed(&new, &error))?;
        let mut write = || {
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&new);
            failed(path, &error)
        })
    }

    /// Reads it.
    ///
    /// # Errors
    /// That it cannot be read, or is damaged.
    pub fn read(path: &Path) -> Result<Saved> {
        let text = fs::read_to_string(path).map_err(|error| failed(path, &error))?;
        let damaged = |why: &str| {
            Error::refused(
                format!("{} is not the whole file of a mark: {why}", path.display()),
                "Nothing was changed. Write it again, with idgenctl carry --save on the old server.",
            )
        };
        let saved: Saved = serde_json::from_str(&text).map_err(|error| damaged(&error.to_string()))?;
        let epoch = Epoch::parse(&saved.epoch).map_err(|_| damaged("its epoch is none"))?;
        if saved.mark > MAX_TICK + 1 || time_of(epoch, saved.mark) != saved.mark_at {
            return Err(damaged("mark and mark_at differ"));
        }
        Ok(saved)
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::refused(format!("{}: {error}", path.display()), "Nothing was changed.")
}

/// A tick as a time, to the millisecond.
pub fn time_of(epoch: Epoch, tick: Tick) -> String {
    let ms = epoch.unix_ms_of(tick);
    match utc(ms).as_deref().and_then(|text| text.strip_suffix(" UTC")) {
        Some(second) => format!("{second}.{:03} UTC", ms.rem_euclid(1000)),
        None => format!("{ms} ms since 1970"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digit that is lost or changed is noticed, wherever it is.
    #[test]
    fn a_damaged_file_is_noticed() {
        let folder = std::env::temp_dir().join(format!("idgenctl-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a file");
        let path = folder.join("mark");
        let epoch = Epoch::parse("2025-01-01T00:00:00Z").expect("a file");
        let saved = Saved {
            server: "one".into(),
            system_identifier: "7".into(),
            epoch: "2025-01-01T00:00:00Z".into(),
            mark: 60_123_456_789,
            mark_at: time_of(epoch, 60_123_456_789),
            saved_at: String::new(),
        };
        let other = folder.join("mark.new");
        fs::write(&other, "other").expect("a file");
        saved.write(&path).expect("a file");
        saved.write(&path).expect("a file");
        assert_eq!(fs::read_to_string(&other).expect("a file"), "other");
        assert_eq!(Saved::read(&path).expect("a file").mark, saved.mark);
        let text = fs::read_to_string(&path).expect("a file");
        for end in 0..text.trim_end().len() {
            fs::write(&path, &text[..end]).expect("a file");
            assert!(Saved::read(&path).is_err(), "{}", &text[..end]);
        }
        for (from, to) in [("789,", "798,"), ("456,", "465,"), ("60123", "6012"), ("01-01T", "01-02T")] {
            let changed = text.replacen(from, to, 1);
            fs::write(&path, &changed).expect("a file");
            assert_eq!(changed == text, Saved::read(&path).is_ok(), "{changed}");
        }
        assert!(saved.write(&path).is_err(), "what is there is not the file of a mark");
        fs::remove_dir_all(&folder).expect("a file");
    }
}
