//! A tenant as its author describes it: a program, its surroundings, and its lease.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use crate::flag_error::FlagError;
use crate::http::Http;
use crate::keyvalue::KeyValue;
use crate::lease::Lease;
use crate::outgoing::Outgoing;
use crate::restart::Restart;

/// The most arguments of a tenant, its program's name among them, and the most variables of its
/// environment.
pub const STRINGS_MOST: usize = 256;

/// The most bytes of a tenant's arguments, and of its environment: each with the NUL behind it.
pub const STRINGS_BYTES: usize = 64 << 10;

/// One `[tenant.NAME]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSpec {
    /// The name: 1 to 63 of `A-Z a-z 0-9 - _`, unique in its file.
    pub name: String,
    /// The program, a core module or a component. A relative path in a lease file is relative to
    /// the directory of the file, and has been resolved against it here.
    pub component: PathBuf,
    /// The arguments after the program's name.
    pub args: Vec<String>,
    /// The environment, in the order of the file; names are unique.
    pub env: Vec<EnvVar>,
    /// What it is told when it asks for its configuration (`wasi:config`), in the order of the file;
    /// keys are unique.
    pub config: Vec<(String, String)>,
    /// The directories that the program can open; guest paths are unique.
    pub dirs: Vec<Directory>,
    /// The data sets that the program can map; names are unique. There are none unless the lease
    /// lets the tenant page.
    pub data: Vec<DataSet>,
    /// The store that it finds in `wasi:keyvalue`, if it has one.
    pub keyvalue: Option<KeyValue>,
    /// The HTTP requests that it may send, if it may.
    pub outgoing: Option<Outgoing>,
    /// The file that its pages are written to, if they are: there for every tenant whose lease
    /// lets it page, and the same for all tenants of a file. A relative path in a lease file has
    /// been resolved like that of the program.
    pub swap: Option<PathBuf>,
    /// How it answers requests, if it does; only a server starts such a tenant.
    pub http: Option<Http>,
    /// Whether a server starts it again when it has ended.
    pub restart: Restart,
    /// The limit on the tenant's cost.
    pub lease: Lease,
}

/// A variable of a guest's environment; as a flag: `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvVar {
    /// The name: not empty, without `=` and NUL.
    pub name: String,
    /// The value: without NUL.
    pub value: String,
}

impl TenantSpec {
    /// The name of a tenant after its program's file, without the extension: what a name may not have is `-`.
    ///
    /// ```
    /// # use leasehold_lease::TenantSpec;
    /// # use std::path::Path;
    /// assert_eq!(TenantSpec::name_of(Path::new("bin/my tool.v2.wasm")), "my-tool-v2");
    /// ```
    pub fn name_of(component: &Path) -> String {
        let stem = component.file_stem().unwrap_or_default().to_string_lossy();
        let may = |c: char| match TenantSpec::is_in_name(c) {
            true => c,
            false => '-',
        };
        let name: String = stem.chars().map(may).take(Self::NAME_MOST).collect();
        match name.is_empty() {
            true => "tenant".to_owned(),
            false => name,
        }
    }

    /// Whether `name` can be that of a tenant or a listener.
    pub fn is_name(name: &str) -> bool {
        (1..=Self::NAME_MOST).contains(&name.len()) && name.chars().all(Self::is_in_name)
    }

    /// Parses a name of a tenant, as a flag or an argument has it.
    ///
    /// # Errors
    ///
    /// Anything that [is no name](Self::is_name), with what was found and what is allowed.
    pub fn parse_name(text: &str) -> Result<String, FlagError> {
        match Self::is_name(text) {
            true => Ok(text.to_owned()),
            false => Err(FlagError::new(text, Self::NAME_ALLOWED)),
        }
    }

    pub(crate) const NAME_ALLOWED: &'static str = "1 to 63 of A-Z a-z 0-9 - _";

    /// The most characters of a name.
    pub(crate) const NAME_MOST: usize = 63;

    /// Whether a name may have this character.
    pub(crate) fn is_in_name(c: char) -> bool {
        c.is_ascii_alphanumeric() || c == '-' || c == '_'
    }
}

impl EnvVar {
    pub(crate) const NAME: &'static str = "a name that is not empty and has no \"=\" and no NUL";

    pub(crate) fn is_name(name: &str) -> bool {
        !name.is_empty() && !name.contains(['=', '\0'])
    }
}

impl FromStr for EnvVar {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        match text.split_once('=') {
            Some((name, value)) if EnvVar::is_name(name) && !value.contains('\0') => Ok(Self {
                name: name.to_owned(),
                value: value.to_owned(),
            }),
            _ => Err(FlagError::new(
                text,
                "NAME=VALUE, where NAME is not empty, without NUL",
            )),
        }
    }
}

/// A file of the host whose pages a guest can have in its linear memory, to read; as a flag:
/// `NAME=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSet {
    /// How the guest calls it: 1 to 63 bytes, without NUL.
    pub name: String,
    /// The file. A relative path in a lease file is relative to the directory of the file, and has
    /// been resolved against it here.
    pub file: PathBuf,
}

impl DataSet {
    pub(crate) fn is_name(name: &str) -> bool {
        (1..=63).contains(&name.len()) && !name.contains('\0')
    }
}

impl FromStr for DataSet {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        match text.split_once('=') {
            Some((name, file))
                if DataSet::is_name(name) && !file.is_empty() && !file.contains('\0') =>
            {
                Ok(Self {
                    name: name.to_owned(),
                    file: file.into(),
                })
            }
            _ => Err(FlagError::new(
                text,
                "NAME=FILE, where NAME has 1 to 63 bytes and FILE is not empty, without NUL",
            )),
        }
    }
}

/// A host directory that a guest sees; as a flag: `HOST[::GUEST[::ro]]`.
///
/// The flag means what it means to `wasmtime run`: the guest path is the host path unless given,
/// and the directory is writable, unless `::ro` is added. A lease file says `write = true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// The directory on the host. A relative path in a lease file is relative to the directory of
    /// the file, and has been resolved against it here.
    pub host: PathBuf,
    /// Where the guest finds it.
    pub guest: String,
    /// Whether the guest may create, change and delete.
    pub write: bool,
}

impl Directory {
    /// The first of `directories` whose guest path another one before it has: a guest could reach only one
    /// of them.
    pub fn twice(directories: &[Directory]) -> Option<&Directory> {
        let mut taken = HashSet::new();
        let mut directories = directories.iter();
        directories.find(|directory| !taken.insert(guest_place(&directory.guest)))
    }
}

/// The directory that a guest path names: guests drop a leading `/` and `./`.
pub(crate) fn guest_place(path: &str) -> PathBuf {
    let components = Path::new(path).components();
    let named = components.filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
    named.collect()
}

impl FromStr for Directory {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        let parts: Vec<&str> = text.splitn(4, "::").collect();
        let (host, guest, write) = match parts[..] {
            [host] => (host, host, true),
            [host, guest] => (host, guest, true),
            [host, guest, "ro"] => (host, guest, false),
            _ => ("", "", false),
        };
        if host.is_empty() || guest.is_empty() || text.contains('\0') {
            return Err(FlagError::new(
                text,
                "HOST, HOST::GUEST or HOST::GUEST::ro, without NUL",
            ));
        }
        Ok(Self {
            host: host.into(),
            guest: guest.to_owned(),
            write,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Directory;

    #[test]
    fn two_directories_that_are_one_to_the_guest_are_found() {
        let directories = |guests: [&str; 2]| {
            guests.map(|guest| {
                format!("/srv::{guest}")
                    .parse::<Directory>()
                    .expect("a flag")
            })
        };
        for twice in [["/", "."], ["/a", "/a"], ["/a", "a/"], ["/a/b", "./a//b"]] {
            let directories = directories(twice);
            assert_eq!(
                Directory::twice(&directories),
                Some(&directories[1]),
                "{twice:?}"
            );
        }
        for apart in [["/a", "/b"], ["/a", "/a/b"], ["/", "/a"]] {
            assert_eq!(Directory::twice(&directories(apart)), None, "{apart:?}");
        }
    }
}
