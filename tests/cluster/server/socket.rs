//! A socket between the clients of a server and the server, for tests that interfere with the traffic.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

pub const SOCKET: &str = ".s.PGSQL.5432";

/// A socket in a folder of its own, and the thread that accepts connections.
pub struct Socket {
    folder: PathBuf,
    listens: Option<JoinHandle<()>>,
}

impl Socket {
    /// Passes each connection to `accept` until that returns false.
    pub fn open(mut accept: impl FnMut(UnixStream) -> bool + Send + 'static) -> Socket {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!("/tmp/idgen-{}-socket{number}", std::process::id()));
        // A run that was interrupted may have had the number of this process.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("a folder for a socket");
        let file = folder.join(SOCKET);
        let listener = UnixListener::bind(&file).expect("a socket");
        fs::set_permissions(&file, Permissions::from_mode(0o777)).expect("chmod");
        let listens = thread::spawn(move || {
            let _ = listener.incoming().flatten().all(&mut accept);
        });
        Socket { folder, listens: Some(listens) }
    }

    /// The folder, which clients use as the host.
    pub fn host(&self) -> String {
        self.folder.display().to_string()
    }
}

/// `accept` must return false from now on.
impl Drop for Socket {
    fn drop(&mut self) {
        // This connection wakes the thread.
        let _ = UnixStream::connect(self.folder.join(SOCKET));
        let _ = self.listens.take().expect("a thread").join();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
