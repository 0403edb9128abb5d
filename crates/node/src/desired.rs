//! The changes of operators to the tenants of the lease file, kept in a file so that they outlive the node.

use crate::problem::Problem;
use crate::view::ErrorKind;
use leasehold_confine::owned::{Missing, OwnedDirectory, OwnedError};
use leasehold_lease::{LeaseFile, RegularFile, RegularFileError, Route, TenantSpec};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

/// The version of the file's format.
const VERSION: u64 = 1;
/// The file, in the state directory.
const NAME: &str = "desired.json";
/// What a node locks there: no other user can open it.
const LOCK: &str = "lock";
/// The most bytes of the file that are read. The tables that operators may put take a fraction of that, however they are
/// escaped.
const MOST: u64 = 256 << 20;

/// Why there is no desired state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused it.
    #[error("{}: {source}", path.display())]
    System {
        /// What was refused.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others could have written there.
    #[error(transparent)]
    Untrusted(#[from] OwnedError),
    /// Another node has the directory.
    #[error("{}: another node uses it; allowed: a directory of this node's own", .0.display())]
    Taken(PathBuf),
    /// The file is not one of this node. It was moved away.
    #[error(
        "{}: {found}; allowed: the desired state of this lease file, as this version writes it. It was moved to {}: \
         without it the node starts with what the lease file states",
        path.display(),
        aside.display()
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
        /// The path to which the file was moved.
        aside: PathBuf,
    },
}

/// What operators have changed of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The tenant's table, if an operator put it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Whether the tenant was deleted, although the lease file has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_deleted: bool,
    /// Whether the tenant was killed or drained, and was not started again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stopped: bool,
}

/// What operators have changed, by tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Changes(BTreeMap<String, Change>);

/// The file as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u64,
    leases: PathBuf,
    tenants: Changes,
}

impl Changes {
    /// Returns the number of tenants that were changed.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what was changed of a tenant.
    pub fn of(&self, name: &str) -> Change {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// Whether the table that a lease file has for a tenant counts for nothing: it was deleted, or another one was put.
    pub fn replaces(&self, name: &str) -> bool {
        let change = self.0.get(name);
        change.is_some_and(|change| change.is_deleted || change.table.is_some())
    }

    /// Forgets what was changed of tenants that are neither in a lease file with the tenants `of_file` nor put: there is nothing
    /// to change. Returns their names.
    pub fn forget_unknown(&mut self, of_file: &BTreeSet<String>) -> Vec<String> {
        let is_known =
            |name: &str, change: &Change| change.table.is_some() || of_file.contains(name);
        let unknown = self
            .0
            .extract_if(.., |name, change| !is_known(name, change));
        unknown.map(|(name, _)| name).collect()
    }

    /// Makes these changes to the tenants of a lease file.
    ///
    /// # Errors
    /// When a table does not fit to the file.
    pub fn apply(&self, file: &mut LeaseFile, leases: &Path) -> Result<(), Problem> {
        for (name, change) in &self.0 {
            if change.is_deleted {
                file.tenants.retain(|tenant| tenant.name != *name);
            }
            let Some(text) = &change.table else { continue };
            let spec = parse(name, text, leases, file)?;
            match file.tenants.iter_mut().find(|tenant| tenant.name == *name) {
                Some(tenant) => *tenant = spec,
                None => file.tenants.push(spec),
            }
        }
        for (at, tenant) in file.tenants.iter().enumerate() {
            let before = file.tenants[..at].iter();
            for other in before {
                if let Some(route) = shared_route(tenant, other) {
                    let message = format!(
                        "tenant.{}.http.routes: found {:?}; allowed: a route that is free: tenant.{} has this one",
                        tenant.name,
                        route.to_string(),
                        other.name
                    );
                    return Err(Problem::new(ErrorKind::Conflict, message));
                }
            }
        }
        Ok(())
    }
}

/// Parses a text with one table `[tenant.NAME]`.
fn parse(name: &str, text: &str, leases: &Path, file: &LeaseFile) -> Result<TenantSpec, Problem> {
    let origin = leases.with_file_name(format!("tenant.{name}"));
    let tenants = LeaseFile::parse_tenants(text, &origin, &file.listeners)?;
    let spec = tenants.into_iter().find(|tenant| tenant.name == name);
    spec.ok_or_else(|| {
        let found = format!("tenant: found no table [tenant.{name}]; allowed: that one");
        Problem::new(ErrorKind::BadLease, found)
    })
}

/// Returns a route that two tenants have at the same listener.
pub(crate) fn shared_route<'a>(one: &'a TenantSpec, other: &TenantSpec) -> Option<&'a Route> {
    let (one, other) = one.http.as_ref().zip(other.http.as_ref())?;
    let mut listeners = one.listeners.iter();
    let meet = listeners.any(|listener| other.listeners.contains(listener));
    let mut routes = one.routes.iter();
    routes
        .find(|route| other.routes.contains(route))
        .filter(|_| meet)
}

/// The state directory of a node, which is this process's as long as this is there.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    directory: File,
    leases: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl StateFile {
    /// Opens the state directory, makes it if there is none, and reads what was changed under this lease
    /// file. A file that cannot be used is moved aside.
    ///
    /// # Errors
    /// When the directory cannot be used, or the file is damaged or that of another node.
    pub fn open(directory: &Path, leases: &Path) -> Result<(Self, Changes), StateError> {
        let failed = |source| StateError::System {
            path: directory.to_owned(),
            source,
        };
        let owned = OwnedDirectory::open(directory, Missing::Create)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.mode(0o600);
        let lock = options.open(directory.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StateError::Taken(directory.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let file = Self {
            path: directory.join(NAME),
            directory: File::open(directory).map_err(failed)?,
            leases: leases.canonicalize().unwrap_or_else(|_| leases.to_owned()),
            _lock: lock,
        };
        let changes = file.read(&owned)?;
        Ok((file, changes))
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read(&self, directory: &OwnedDirectory) -> Result<Changes, StateError> {
        let path = self.path.clone();
        let failed = |source| StateError::System {
            path: path.clone(),
            source,
        };
        let trusted = directory.open_file(OsStr::new(NAME), MOST);
        let changes = match RegularFile::open(&path).and_then(|file| file.read(MOST)) {
            Ok(_)
                if let Err(error @ (OwnedError::Owner { .. } | OwnedError::Shared { .. })) =
                    trusted =>
            {
                Err(format!("found what others may have written ({error})"))
            }
            Ok(bytes) => self.parse(&bytes),
            Err(RegularFileError::System(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Changes::default());
            }
            Err(RegularFileError::System(error)) => return Err(failed(error)),
            Err(other) => Err(other.to_string()),
        };
        changes.or_else(|found| {
            let aside = (1..)
                .map(|number| path.with_extension(format!("json.refused-{number}")))
                .find(|aside| !aside.exists())
                .unwrap_or_default();
            std::fs::rename(&path, &aside).map_err(failed)?;
            Err(StateError::Unusable {
                path: path.clone(),
                found,
                aside,
            })
        })
    }

    fn parse(&self, bytes: &[u8]) -> Result<Changes, String> {
        let damaged = |error: serde_json::Error| format!("found a damaged file ({error})");
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(damaged)?;
        match &value["version"] {
            version if *version == VERSION => {}
            serde_json::Value::Null => return Err("found a file without a version".to_owned()),
            other => return Err(format!("found version {other}")),
        }
        let stored: Stored = serde_json::from_value(value).map_err(damaged)?;
        // No node writes a name that no tenant can have: the file is damaged.
        let mut names = stored.tenants.0.keys();
        if let Some(name) = names.find(|name| !TenantSpec::is_name(name)) {
            return Err(format!("found a damaged file (a tenant {name:?})"));
        }
        match stored.leases == self.leases {
            true => Ok(stored.tenants),
            false => Err(format!("found that of {}", stored.leases.display())),
        }
    }

    /// Writes what was changed, so that the file is the old or the new one at every instant.
    fn write(&self, changes: Changes) -> io::Result<()> {
        let stored = Stored {
            version: VERSION,
            leases: self.leases.clone(),
            tenants: changes,
        };
        let partial = self.path.with_extension("json.partial");
        // What a process that was killed left there, or anything else.
        match std::fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&partial)?;
        file.write_all(&serde_json::to_vec_pretty(&stored)?)?;
        file.sync_all()?;
        std::fs::rename(partial, &self.path)?;
        self.directory.sync_all()
    }
}

/// The last write: its number, and why it failed.
type Written = (u64, Option<String>);

/// Writes what operators have changed, on a thread of its own: a slow disk delays answers, and nothing else.
pub struct Keeper {
    /// The file.
    path: PathBuf,
    changes: Changes,
    /// The tenants of the lease file.
    of_file: BTreeSet<String>,
    deleted: BTreeSet<String>,
    saves: Saves,
    writes: Sender<(u64, Changes)>,
    /// The parts of the thread, until it begins.
    writer: Option<Writer>,
}

/// The parts of the thread that writes.
struct Writer {
    file: StateFile,
    waiting: Receiver<(u64, Changes)>,
    written: watch::Sender<Written>,
}

/// Tells when what was changed is in the file.
#[derive(Clone)]
pub struct Saves {
    newest: Arc<AtomicU64>,
    written: watch::Receiver<Written>,
}

impl Saves {
    /// Waits until all that was changed so far is in the file.
    ///
    /// # Errors
    /// When it could not be written.
    pub(crate) async fn settled(&self) -> Result<(), Problem> {
        let newest = self.newest.load(Ordering::Acquire);
        let mut written = self.written.clone();
        let internal = |message: String| Problem::new(ErrorKind::Internal, message);
        let last = written.wait_for(|(number, _)| *number >= newest).await;
        let last =
            last.map_err(|_| internal("the thread that keeps changes has ended".to_owned()))?;
        match &last.1 {
            None => Ok(()),
            Some(error) => Err(internal(format!(
                "the change was made, and does not outlive the node: {error}"
            ))),
        }
    }
}

impl Keeper {
    /// Keeps changes of a lease file with these tenants in this file, where there are some already.
    pub fn new(file: StateFile, changes: Changes, of_file: BTreeSet<String>) -> Self {
        let (writes, waiting) = channel();
        let (sender, written) = watch::channel((0, None));
        let deleted = changes.0.iter().filter(|(_, change)| change.is_deleted);
        Self {
            path: file.path().to_owned(),
            deleted: deleted.map(|(name, _)| name.clone()).collect(),
            changes,
            of_file,
            saves: Saves {
                newest: Arc::new(AtomicU64::new(0)),
                written,
            },
            writes,
            writer: Some(Writer {
                file,
                waiting,
                written: sender,
            }),
        }
    }

    /// Returns the path of the file that keeps the changes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells when what was changed is in the file.
    pub fn saves(&self) -> Saves {
        self.saves.clone()
    }

    /// Whether nothing was changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Starts the thread that writes, confined as the calling one.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let Writer {
            file,
            waiting,
            written,
        } = writer;
        let thread = std::thread::Builder::new().name("leasehold-state".to_owned());
        thread.spawn(move || {
            while let Ok(mut newest) = waiting.recv() {
                while let Ok(newer) = waiting.try_recv() {
                    newest = newer;
                }
                let (number, changes) = newest;
                let error = file.write(changes).err();
                let error = error.map(|error| format!("{}: {error}", file.path().display()));
                written.send_replace((number, error));
            }
        })?;
        Ok(())
    }

    /// Records that a tenant was deleted.
    pub(crate) fn deleted(&mut self, name: &str) {
        if self.of_file.contains(name) {
            self.deleted.insert(name.to_owned());
        }
    }

    /// Records a reload: the tenants are those of the lease file, `of_file`, except what was deleted since it was
    /// asked for.
    pub(crate) fn reloaded(
        &mut self,
        of_file: BTreeSet<String>,
        is_deleted: impl Fn(&str) -> bool,
    ) {
        let deleted = of_file.iter().filter(|name| is_deleted(name));
        self.deleted = deleted.cloned().collect();
        self.of_file = of_file;
    }

    /// Has the changes of the known tenants written.
    pub(crate) fn keep(&mut self, tenants: impl Iterator<Item = (String, Change)>) {
        let gone = self.deleted.iter().map(|name| {
            let is_deleted = true;
            let change = Change {
                is_deleted,
                ..Change::default()
            };
            (name.clone(), change)
        });
        let there = tenants.filter(|(_, change)| *change != Change::default());
        let changes = Changes(gone.chain(there).collect());
        if changes == self.changes {
            return;
        }
        self.changes.clone_from(&changes);
        let number = self.saves.newest.fetch_add(1, Ordering::Release) + 1;
        // If the writing thread has ended, the code that waits for the number learns of that.
        let _ = self.writes.send((number, changes));
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, Changes, Keeper, StateError, StateFile};
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// Without another process, which would have what is locked until it runs its own program.
    fn make_fifo(path: &Path) {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let made = rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0);
        made.expect("a FIFO");
    }

    #[test]
    fn what_was_deleted_while_the_lease_file_was_read_again_stays_deleted() {
        let directory = tempfile::tempdir().expect("a directory");
        let leases = directory.path().join("leases.toml");
        let (file, changes) = StateFile::open(directory.path(), &leases).expect("no state yet");
        let of_file = ["kept", "deleted"].map(str::to_owned);
        let of_file = BTreeSet::from(of_file);
        let mut keeper = Keeper::new(file, changes, of_file.clone());
        keeper.deleted("deleted");
        keeper.reloaded(of_file.clone(), |name| name == "deleted");
        keeper.keep(std::iter::empty());
        assert!(keeper.changes.0["deleted"].is_deleted);
        assert!(!keeper.changes.0.contains_key("kept"));
        // One that was deleted before is of the file again.
        keeper.reloaded(of_file, |_| false);
        keeper.keep(std::iter::empty());
        assert!(keeper.is_empty());
    }

    #[test]
    fn what_was_changed_of_a_tenant_that_is_not_there_is_forgotten() {
        let of_file = BTreeSet::from(["there".to_owned()]);
        let stopped = Change {
            is_stopped: true,
            ..Change::default()
        };
        let deleted = Change {
            is_deleted: true,
            ..Change::default()
        };
        let put = Change {
            table: Some(String::new()),
            ..Change::default()
        };
        let all = [
            ("there", stopped.clone()),
            ("gone", stopped),
            ("absent", deleted),
            ("put", put),
        ];
        let all = all.map(|(name, change)| (name.to_owned(), change));
        let mut changes = Changes(all.into());
        let replaced =
            ["there", "gone", "absent", "put", "none"].map(|name| changes.replaces(name));
        assert_eq!(replaced, [false, false, true, true, false]);
        assert_eq!(changes.forget_unknown(&of_file), ["absent", "gone"]);
        assert_eq!(changes.0.keys().collect::<Vec<_>>(), ["put", "there"]);
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_refused_and_what_lies_in_the_way_of_a_write_is_not_followed()
     {
        let place = tempfile::tempdir().expect("a directory");
        let (leases, state) = (place.path().join("leases.toml"), place.path().join("state"));
        let mode = |mode| fs::set_permissions(&state, fs::Permissions::from_mode(mode));
        fs::create_dir(&state).expect("a directory");
        mode(0o777).expect("allowed");
        let error = StateFile::open(&state, &leases).expect_err("it is refused");
        assert!(matches!(error, StateError::Untrusted(_)), "{error}");
        mode(0o755).expect("allowed");
        let (file, _) = StateFile::open(&state, &leases).expect("opened");
        // Others cannot open what is locked, and so cannot lock it.
        let lock = fs::metadata(state.join("lock")).expect("there");
        assert_eq!(lock.permissions().mode() & 0o777, 0o600);
        let (target, partial) = (
            place.path().join("target"),
            state.join("desired.json.partial"),
        );
        fs::write(&target, "as it was").expect("written");
        std::os::unix::fs::symlink(&target, &partial).expect("a link");
        file.write(Changes::default()).expect("written");
        make_fifo(&partial);
        file.write(Changes::default())
            .expect("written, without waiting");
        assert_eq!(fs::read_to_string(target).expect("read"), "as it was");
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o666)).expect("allowed");
        drop(file);
        let error = StateFile::open(&state, &leases).expect_err("it is refused");
        assert!(matches!(error, StateError::Unusable { .. }), "{error}");
    }

    #[test]
    fn what_is_written_is_read_and_a_file_that_is_not_ours_is_kept_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        let leases = directory.path().join("leases.toml");
        fs::write(&leases, "").expect("written");
        let state = directory.path().join("state");
        let (file, changes) = StateFile::open(&state, &leases).expect("opened");
        assert!(changes.is_empty());
        assert!(matches!(
            StateFile::open(&state, &leases),
            Err(StateError::Taken(_))
        ));
        let change = Change {
            table: Some("[tenant.a]".to_owned()),
            is_stopped: true,
            ..Change::default()
        };
        let written = Changes([("a".to_owned(), change)].into());
        file.write(written.clone()).expect("written");
        let path = file.path().to_owned();
        drop(file);
        let (file, read) = StateFile::open(&state, &leases).expect("opened");
        assert_eq!(read, written);
        drop(file);
        let text = fs::read_to_string(&path).expect("read");
        let rows = [
            (text[..20].to_owned(), "a damaged file"),
            (String::new(), "a damaged file"),
            (
                text.replace("\"version\": 1", "\"version\": 2"),
                "version 2",
            ),
            ("{}".to_owned(), "without a version"),
            (text.replace("leases.toml", "other.toml"), "other.toml"),
            (text.replace("is_stopped", "is_asleep"), "is_asleep"),
            (text.replace("\"a\": {", "\"../x\": {"), "a tenant \"../x\""),
            (text.replace("\"a\": {", "\"\": {"), "a tenant \"\""),
        ];
        for (number, (bad, said)) in rows.into_iter().enumerate() {
            fs::write(&path, &bad).expect("written");
            let error = StateFile::open(&state, &leases).expect_err("it is refused");
            let error = error.to_string();
            assert!(
                error.contains(said) && error.contains("desired.json"),
                "{error}"
            );
            let aside = state.join(format!("desired.json.refused-{}", number + 1));
            assert_eq!(fs::read_to_string(aside).expect("kept"), bad, "{said}");
            let (_, changes) = StateFile::open(&state, &leases).expect("opened");
            assert!(changes.is_empty());
        }
        make_fifo(&path);
        let error = StateFile::open(&state, &leases).expect_err("it is refused");
        assert!(error.to_string().contains("found a FIFO"), "{error}");
        assert!(!path.exists(), "it is moved aside");
    }
}
