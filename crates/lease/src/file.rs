//! `lease.toml`: a table per tenant.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::addresses::{Addresses, Families, ListenAddress};
use crate::byte_size::ByteSize;
use crate::cpu::{Cpu, CpuValues, Incomplete, Policy};
use crate::disk::Disk;
use crate::error::{LeaseError, excerpt};
use crate::files::Files;
use crate::http::{self, HttpTable};
use crate::keyvalue::KeyValue;
use crate::lease::{Lease, Reclaim};
use crate::listener::Listener;
use crate::memory::{Memory, MemoryKind, MemoryValues, Paging, SharedPages};
use crate::nanoseconds::Nanoseconds;
use crate::node::{Node, Source};
use crate::order::Order;
use crate::outgoing::Outgoing;
use crate::quantity::Quantity;
use crate::regular_file::{RegularFile, RegularFileError};
use crate::restart::Restart;
use crate::tenant::{
    DataSet, Directory, EnvVar, STRINGS_BYTES, STRINGS_MOST, TenantSpec, guest_place,
};
use crate::workload::{Workload, WorkloadValues};

const FILE_KEYS: &str = "tenant, listener, cell, simulate";
const TENANT_FILE_KEYS: &str = "tenant";
const CELL_KEYS: &str = "order, memory, code";
const TENANT_KEYS: &str = "component, args, env, config, dirs, data, keyvalue, outgoing, reclaim, memory, cpu, files, disk, http, restart";
const DIRECTORY_KEYS: &str = "host, guest, write";
const DATA_KEYS: &str = "name, file";
const RECLAIM_KEYS: &str = "budget, call_bytes";

const SIMULATED_NAME: &str = "the name of a tenant of this file";
const TENANTS: &str = "at least one table [tenant.NAME]";
const TENANT_COUNT: &str = "at most 10000 tables [tenant.NAME]";
const LISTENER_COUNT: &str = "at most 64 tables [listener.NAME]";
const PATH: &str = "a path, not empty, without NUL";
const STRINGS: &str = "an array of strings without NUL";
const STRING: &str = "a string without NUL";
const ARGUMENTS: &str = "with the program's name at most 256 strings, of 64 KiB together";
const ENVIRONMENT: &str = "at most 256 strings, of 64 KiB together";
const CONFIG: &str = "at most 256 values, of 64 KiB together with their keys";
const CONFIG_VALUE: &str = "a string";
const DIRECTORIES: &str = "an array of tables { host, guest, write }";
const DATA_SETS: &str = "an array of tables { name, file }";
const DATA_NAME: &str = "a name that no other data set has: 1 to 63 bytes, without NUL";
const DATA_UNPAGED: &str = "nothing, unless `memory.limit` is more than the reserve";
const RECLAIM: &str = "a table { budget, call_bytes }";

/// The tenants of a lease file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseFile {
    /// In the order of the file; never empty, at most [`Self::MAX_TENANTS`].
    pub tenants: Vec<TenantSpec>,
    /// The addresses at which clients reach them, in the order of the file; at most
    /// [`Self::MAX_LISTENERS`].
    pub listeners: Vec<Listener>,
    /// How the cell that runs them orders their processor reservations.
    pub order: Order,
    /// What the cell holds of the host's memory for all of them. `None`: what their reservations
    /// come to.
    pub memory: Option<ByteSize>,
    /// The limit on what their programs take of the host's memory together. `None`: the cell's.
    pub code: Option<ByteSize>,
    /// What tenants do when they are simulated, by name; all of them are tenants of this file. A
    /// cell ignores it.
    pub workloads: BTreeMap<String, Workload>,
}

impl LeaseFile {
    /// The longest lease file, in bytes: room for [`Self::MAX_TENANTS`] with every key that has
    /// to do with reservations.
    pub const MAX_BYTES: usize = 4 << 20;
    /// The most tenants of one file, all of which are meant for one cell.
    pub const MAX_TENANTS: usize = 10_000;
    /// The most listeners of one file.
    pub const MAX_LISTENERS: usize = 64;

    /// How much of a file is read at most. A file longer than [`Self::MAX_BYTES`] is refused; the
    /// rest is looked at only to say how many tenants it has, since that is what made it long.
    const READ_BYTES: u64 = 32 << 20;

    /// Reads and parses the lease file at `path`, a regular file. Reads at most 32 MiB.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or it is not a lease file: see [`LeaseFile::parse`].
    pub fn load(path: &Path) -> Result<Self, LeaseError> {
        Self::load_without(path, |_| false).map(|(file, _)| file)
    }

    /// Reads and parses the lease file at `path` as if it had no tables of the tenants that are left out. Returns the names of
    /// these, too.
    ///
    /// # Errors
    ///
    /// As [`LeaseFile::load`].
    pub fn load_without(
        path: &Path,
        is_left_out: impl Fn(&str) -> bool,
    ) -> Result<(Self, Vec<String>), LeaseError> {
        let source = |text| Source { file: path, text };
        let read = RegularFile::open(path).and_then(|file| file.read(Self::READ_BYTES));
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(RegularFileError::Length { .. }) => return Err(too_long(source(""), &[])),
            Err(error) => {
                return Err(LeaseError::Unreadable {
                    file: path.to_owned(),
                    source: error.into(),
                });
            }
        };
        if bytes.len() > Self::MAX_BYTES {
            return Err(too_long(source(""), &bytes));
        }
        match str::from_utf8(&bytes) {
            Ok(text) => Self::parse_with(text, path, None, &is_left_out),
            Err(error) => {
                let (valid, _) = bytes.split_at(error.valid_up_to());
                let text = str::from_utf8(valid).unwrap_or_default();
                let found = "bytes that are not UTF-8".to_owned();
                Err(source(text).malformed(text.len(), found, "UTF-8 text"))
            }
        }
    }

    /// Parses `text`, which was read from `origin`: errors name it, and relative paths are
    /// resolved against its directory. Nothing is opened.
    ///
    /// # Errors
    ///
    /// The first fault in the order of the file; a missing key counts where its table begins, but
    /// after every fault inside that table. Routes are compared after all tables, and what is to be
    /// simulated counts after all else.
    pub fn parse(text: &str, origin: &Path) -> Result<Self, LeaseError> {
        Self::parse_with(text, origin, None, &|_| false).map(|(file, _)| file)
    }

    /// Parses `text` with tenants for a node that has these listeners already: it may not have any of its
    /// own. Routes are compared with each other, not with those of the node's tenants.
    ///
    /// # Errors
    ///
    /// As [`LeaseFile::parse`].
    pub fn parse_tenants(
        text: &str,
        origin: &Path,
        listeners: &[Listener],
    ) -> Result<Vec<TenantSpec>, LeaseError> {
        let given = Some(listeners);
        Self::parse_with(text, origin, given, &|_| false).map(|(file, _)| file.tenants)
    }

    fn parse_with(
        text: &str,
        origin: &Path,
        given: Option<&[Listener]>,
        is_left_out: &dyn Fn(&str) -> bool,
    ) -> Result<(Self, Vec<String>), LeaseError> {
        let source = Source { file: origin, text };
        if text.len() > Self::MAX_BYTES {
            return Err(too_long(source, text.as_bytes()));
        }
        let document = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let found = format!("no TOML ({})", error.message().replace('\n', " "));
            source.malformed(at, found, "TOML")
        })?;
        let base = origin.parent().unwrap_or(Path::new(""));
        let root = Node::document(source, document.get_ref());
        let mut tenants = Vec::new();
        let mut left_out = Vec::new();
        let mut cell = CellTable::default();
        let mut simulated = Vec::new();
        let mut listeners = given.unwrap_or_default().to_vec();
        let mut http = Vec::new();
        let mut taken = Taken::default();
        for listener in &listeners {
            // Their own file was refused unless each had such an address.
            if let Ok(address) = ListenAddress::try_from(listener.address) {
                taken.addresses.take(address, Families::Both);
            }
        }
        for entry in root.entries()? {
            match entry.name() {
                "tenant" => {
                    let entries = entry.entries()?;
                    if entries.len() > Self::MAX_TENANTS {
                        let found = tables(entries.len());
                        return Err(entry.refused_as(found, TENANT_COUNT));
                    }
                    for tenant in entries {
                        if is_left_out(tenant.name()) {
                            left_out.push(tenant.name().to_owned());
                            continue;
                        }
                        let (tenant, table) = parse_tenant(&tenant, base, &mut taken)?;
                        http.push((tenant.name.clone(), table));
                        tenants.push(tenant);
                    }
                }
                _ if given.is_some() => return Err(entry.unknown(TENANT_FILE_KEYS)),
                "simulate" => simulated = entry.entries()?,
                "cell" => cell = parse_cell(&entry)?,
                "listener" => {
                    let entries = entry.entries()?;
                    if entries.len() > Self::MAX_LISTENERS {
                        let found = tables(entries.len());
                        return Err(entry.refused_as(found, LISTENER_COUNT));
                    }
                    for listener in entries {
                        listeners.push(Listener::parse(&listener, base, &mut taken.addresses)?);
                    }
                }
                _ => return Err(entry.unknown(FILE_KEYS)),
            }
        }
        if tenants.is_empty() && left_out.is_empty() {
            return Err(root.missing("tenant", TENANTS));
        }
        let http = http::assigned(http, &listeners)?;
        for (tenant, http) in tenants.iter_mut().zip(http) {
            tenant.http = http;
        }
        simulated.retain(|node| !is_left_out(node.name()));
        let workloads = parse_workloads(&simulated, &tenants)?;
        let file = Self {
            tenants,
            listeners,
            order: cell.order,
            memory: cell.memory,
            code: cell.code,
            workloads,
        };
        Ok((file, left_out))
    }

    /// The swap file of the cell, if a tenant of it pages.
    #[must_use]
    pub fn swap(&self) -> Option<&Path> {
        self.tenants
            .iter()
            .find_map(|tenant| tenant.swap.as_deref())
    }

    /// The tenant called `name`.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Option<&TenantSpec> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }
}

/// The error for a file longer than [`LeaseFile::MAX_BYTES`], of which `bytes` is what was read.
fn too_long(source: Source<'_>, bytes: &[u8]) -> LeaseError {
    // Not parsed, so a line in a string counts too. That can change the wording only: the file is
    // refused in any case.
    let header = |line: &&[u8]| line.trim_ascii_start().starts_with(b"[tenant.");
    let count = bytes.split(|byte| *byte == b'\n').filter(header).count();
    if count > LeaseFile::MAX_TENANTS {
        return source.refused(0, "tenant".to_owned(), tables(count), TENANT_COUNT);
    }
    source.malformed(
        0,
        "more than 4MiB".to_owned(),
        "a lease file of at most 4MiB",
    )
}

fn tables(count: usize) -> String {
    format!("{count} tables")
}

/// The table `[cell]`.
#[derive(Default)]
struct CellTable {
    order: Order,
    memory: Option<ByteSize>,
    code: Option<ByteSize>,
}

fn parse_cell(node: &Node<'_>) -> Result<CellTable, LeaseError> {
    let mut cell = CellTable::default();
    for entry in node.entries()? {
        match entry.name() {
            "order" => cell.order = entry.keyword(Order::ALLOWED, Order::named)?,
            "memory" => cell.memory = Some(entry.quantity()?),
            "code" => cell.code = Some(entry.quantity()?),
            _ => return Err(entry.unknown(CELL_KEYS)),
        }
    }
    Ok(cell)
}

/// What the tables before one have.
#[derive(Default)]
struct Taken {
    /// The swap file, if one of them pages.
    swap: Option<PathBuf>,
    /// The stores of tenants.
    stores: HashSet<PathBuf>,
    /// Addresses of listeners, and those at which tenants may listen.
    addresses: Addresses,
}

/// The tenant is given its `http` table when all listeners are known.
fn parse_tenant<'a>(
    node: &Node<'a>,
    base: &Path,
    taken: &mut Taken,
) -> Result<(TenantSpec, Option<HttpTable<'a>>), LeaseError> {
    let name = node.name();
    if !TenantSpec::is_name(name) {
        return Err(node.misnamed(TenantSpec::NAME_ALLOWED));
    }
    let mut component = None;
    let mut args = (Vec::new(), None);
    let mut env = Vec::new();
    let mut dirs = Vec::new();
    let mut config = Vec::new();
    let mut data = (Vec::new(), None);
    let mut keyvalue = None;
    let mut outgoing = None;
    let mut reclaim = None;
    let mut memory = (Memory::default(), None);
    let mut cpu = None;
    let mut files = Files::default();
    let mut disk = Disk::default();
    let mut http = None;
    let mut restart = Restart::default();
    for entry in node.entries()? {
        match entry.name() {
            "component" => component = Some(base.join(entry.string(PATH, is_path)?)),
            "args" => args = (parse_args(&entry)?, Some(entry)),
            "env" => env = parse_env(&entry)?,
            "config" => config = parse_config(&entry)?,
            "dirs" => dirs = parse_dirs(&entry, base)?,
            "data" => data = (parse_data(&entry, base)?, Some(entry)),
            "keyvalue" => keyvalue = Some(KeyValue::parse(&entry, base, &mut taken.stores)?),
            "outgoing" => outgoing = Some(Outgoing::parse(&entry, base, &mut taken.addresses)?),
            "reclaim" => reclaim = Some(parse_reclaim(&entry)?),
            "memory" => memory = parse_memory(&entry, base, &mut taken.swap)?,
            "cpu" => cpu = Some(parse_cpu(&entry)?),
            "files" => files = parse_files(&entry)?,
            "disk" => disk = parse_disk(&entry)?,
            "http" => http = Some(HttpTable::parse(entry)?),
            "restart" => restart = entry.keyword(Restart::ALLOWED, Restart::named)?,
            _ => return Err(entry.unknown(TENANT_KEYS)),
        }
    }
    if let (Some(stated), None) = (data.1.filter(|_| !data.0.is_empty()), memory.0.paging) {
        return Err(stated.refused(DATA_UNPAGED));
    }
    let component = component.ok_or_else(|| node.missing("component", PATH))?;
    if let (args, Some(stated)) = &args {
        let program = component.file_name().map_or(0, OsStr::len);
        let lengths = args.iter().map(String::len).chain([program]);
        check_strings(stated, lengths, ARGUMENTS)?;
    }
    let tenant = TenantSpec {
        name: name.to_owned(),
        component,
        args: args.0,
        env,
        config,
        dirs,
        data: data.0,
        keyvalue,
        outgoing,
        swap: memory.1,
        lease: Lease {
            reclaim: reclaim.ok_or_else(|| node.missing("reclaim", RECLAIM))?,
            memory: memory.0,
            cpu,
            files,
            disk,
        },
        http: None,
        restart,
    };
    Ok((tenant, http))
}

fn parse_args(node: &Node<'_>) -> Result<Vec<String>, LeaseError> {
    let argument = |node: &Node<'_>| node.string(STRING, is_c_string).map(str::to_owned);
    node.elements(STRINGS)?.iter().map(argument).collect()
}

fn parse_env(node: &Node<'_>) -> Result<Vec<EnvVar>, LeaseError> {
    let variable = |node: &Node<'_>| {
        if !EnvVar::is_name(node.name()) {
            return Err(node.misnamed(EnvVar::NAME));
        }
        let value = node.string(STRING, is_c_string)?.to_owned();
        Ok(EnvVar {
            name: node.name().to_owned(),
            value,
        })
    };
    let env: Vec<EnvVar> = node
        .entries()?
        .iter()
        .map(variable)
        .collect::<Result<_, _>>()?;
    // The NUL is counted there; `=` stands between name and value.
    let lengths = env.iter().map(|it| it.name.len() + 1 + it.value.len());
    check_strings(node, lengths, ENVIRONMENT)?;
    Ok(env)
}

fn parse_config(node: &Node<'_>) -> Result<Vec<(String, String)>, LeaseError> {
    let entry = |node: &Node<'_>| {
        let value = node.string(CONFIG_VALUE, |_| true)?.to_owned();
        Ok((node.name().to_owned(), value))
    };
    let entries = node.entries()?;
    let config: Vec<(String, String)> = entries.iter().map(entry).collect::<Result<_, _>>()?;
    let lengths = config.iter().map(|(key, value)| key.len() + value.len());
    check_strings(node, lengths, CONFIG)?;
    Ok(config)
}

/// Checks how many strings there are, and how long they are together with a NUL behind each.
fn check_strings(
    node: &Node<'_>,
    lengths: impl Iterator<Item = usize>,
    allowed: &str,
) -> Result<(), LeaseError> {
    let (count, bytes) = lengths.fold((0, 0), |(count, bytes), length| {
        (count + 1, bytes + length + 1)
    });
    if count > STRINGS_MOST || bytes > STRINGS_BYTES {
        let found = format!("{count} strings of {bytes} bytes");
        return Err(node.refused_as(found, allowed));
    }
    Ok(())
}

fn parse_dirs(node: &Node<'_>, base: &Path) -> Result<Vec<Directory>, LeaseError> {
    let mut taken = HashSet::new();
    let mut dirs = Vec::new();
    for element in node.elements(DIRECTORIES)? {
        let mut host = None;
        let mut guest = None;
        let mut write = false;
        for entry in element.entries()? {
            match entry.name() {
                "host" => host = Some(base.join(entry.string(PATH, is_path)?)),
                "guest" => {
                    let path = entry.string(PATH, is_path)?;
                    if !taken.insert(guest_place(path)) {
                        return Err(entry.refused("a guest path that no other directory has"));
                    }
                    guest = Some(path.to_owned());
                }
                "write" => write = entry.boolean()?,
                _ => return Err(entry.unknown(DIRECTORY_KEYS)),
            }
        }
        dirs.push(Directory {
            host: host.ok_or_else(|| element.missing("host", PATH))?,
            guest: guest.ok_or_else(|| element.missing("guest", PATH))?,
            write,
        });
    }
    Ok(dirs)
}

fn parse_data(node: &Node<'_>, base: &Path) -> Result<Vec<DataSet>, LeaseError> {
    let mut taken = HashSet::new();
    let mut sets = Vec::new();
    for element in node.elements(DATA_SETS)? {
        let (mut name, mut file) = (None, None);
        for entry in element.entries()? {
            match entry.name() {
                "name" => {
                    let stated = entry.string(DATA_NAME, DataSet::is_name)?;
                    if !taken.insert(stated) {
                        return Err(entry.refused(DATA_NAME));
                    }
                    name = Some(stated.to_owned());
                }
                "file" => file = Some(base.join(entry.string(PATH, is_path)?)),
                _ => return Err(entry.unknown(DATA_KEYS)),
            }
        }
        sets.push(DataSet {
            name: name.ok_or_else(|| element.missing("name", DATA_NAME))?,
            file: file.ok_or_else(|| element.missing("file", PATH))?,
        });
    }
    Ok(sets)
}

fn parse_reclaim(node: &Node<'_>) -> Result<Reclaim, LeaseError> {
    let mut budget = None;
    let mut call_bytes = None;
    for entry in node.entries()? {
        match entry.name() {
            "budget" => budget = Some(entry.quantity()?),
            "call_bytes" => call_bytes = Some(entry.quantity()?),
            _ => return Err(entry.unknown(RECLAIM_KEYS)),
        }
    }
    let budget = budget.ok_or_else(|| node.missing("budget", Nanoseconds::GRAMMAR.allowed))?;
    Ok(Reclaim { budget, call_bytes })
}

fn parse_memory(
    node: &Node<'_>,
    base: &Path,
    swap: &mut Option<PathBuf>,
) -> Result<(Memory, Option<PathBuf>), LeaseError> {
    let entries = node.entries()?;
    let mut values = MemoryValues::default();
    for entry in &entries {
        match entry.name() {
            "reserve" => values.reserve = Some(entry.quantity()?),
            "limit" => values.limit = Some(entry.quantity()?),
            "host" => values.host = Some(entry.quantity()?),
            "code" => values.code = Some(entry.quantity()?),
            "stack" => values.stack = Some(entry.quantity()?),
            "kind" => {
                values.kind = Some(entry.keyword(MemoryKind::ALLOWED, MemoryKind::named)?);
            }
            "shared" => {
                values.shared = Some(entry.keyword(SharedPages::ALLOWED, SharedPages::named)?);
            }
            "swap" => values.swap = parse_swap(entry, base, swap)?,
            "mappings" => {
                let mappings = entry.integer(Paging::MAPPINGS_RANGE, Paging::MAPPINGS_ALLOWED)?;
                values.mappings = u32::try_from(mappings).ok();
            }
            "table_elements" => {
                let elements =
                    entry.integer(Memory::TABLE_ELEMENTS, Memory::TABLE_ELEMENTS_ALLOWED)?;
                values.table_elements = Some(elements);
            }
            _ => return Err(entry.unknown(Memory::KEYS)),
        }
    }
    values.reservation().map_err(|fault| {
        let stated = entries.iter().find(|entry| entry.name() == fault.key);
        stated.unwrap_or(node).refused(&fault.allowed)
    })
}

/// A cell has one swap file, which `cell` becomes if no tenant before has named it.
fn parse_swap(
    node: &Node<'_>,
    base: &Path,
    cell: &mut Option<PathBuf>,
) -> Result<Option<PathBuf>, LeaseError> {
    let path = match node.string(Memory::SWAP_ALLOWED, is_path)? {
        "none" => return Ok(None),
        path => base.join(path),
    };
    match cell {
        Some(other) if *other != path => {
            let file = excerpt(&other.to_string_lossy());
            Err(node.refused(&format!(
                "\"none\", or the file {file} that a tenant before it names: a cell has one"
            )))
        }
        _ => Ok(Some(cell.insert(path).clone())),
    }
}

fn parse_cpu(node: &Node<'_>) -> Result<Cpu, LeaseError> {
    let entries = node.entries()?;
    let mut values = CpuValues::default();
    for entry in &entries {
        match entry.name() {
            "budget" => values.budget = Some(entry.quantity_of(Cpu::BUDGET_ALLOWED)?),
            "period" => values.period = Some(entry.quantity_of(Cpu::PERIOD_ALLOWED)?),
            "priority" => {
                let priority = entry.integer(Cpu::PRIORITY, Cpu::PRIORITY_ALLOWED)?;
                values.priority = u8::try_from(priority).ok();
            }
            "nonpreemptive" => values.nonpreemptive = Some(entry.quantity()?),
            "policy" => values.policy = Some(entry.keyword(Policy::ALLOWED, Policy::named)?),
            "replenishments" => {
                let count = entry.integer(Cpu::REPLENISHMENTS, Cpu::REPLENISHMENTS_ALLOWED)?;
                values.replenishments = u8::try_from(count).ok();
            }
            "slice" => values.slice = Some(entry.quantity()?),
            _ => return Err(entry.unknown(Cpu::KEYS)),
        }
    }
    values.reservation().map_err(|error| match error {
        Incomplete::Missing(key, allowed) => node.missing(key, allowed),
        Incomplete::Fault(fault) => {
            let stated = entries.iter().find(|entry| entry.name() == fault.key());
            stated.unwrap_or(node).refused(fault.allowed())
        }
    })
}

fn parse_files(node: &Node<'_>) -> Result<Files, LeaseError> {
    let mut files = Files::default();
    for entry in node.entries()? {
        match entry.name() {
            // The range is of 32 bits.
            "open" => files.open = entry.integer(Files::OPEN, Files::OPEN_ALLOWED)? as u32,
            _ => return Err(entry.unknown(Files::KEYS)),
        }
    }
    Ok(files)
}

fn parse_disk(node: &Node<'_>) -> Result<Disk, LeaseError> {
    let mut disk = Disk::default();
    for entry in node.entries()? {
        match entry.name() {
            "bytes" => disk.bytes = entry.quantity()?,
            // The range is of 32 bits.
            "files" => disk.files = entry.integer(Disk::FILES, Disk::FILES_ALLOWED)? as u32,
            _ => return Err(entry.unknown(Disk::KEYS)),
        }
    }
    Ok(disk)
}

/// The workloads of tenants, all of which have to be there.
fn parse_workloads(
    nodes: &[Node<'_>],
    tenants: &[TenantSpec],
) -> Result<BTreeMap<String, Workload>, LeaseError> {
    let names: HashSet<&str> = tenants.iter().map(|tenant| &*tenant.name).collect();
    let mut workloads = BTreeMap::new();
    for node in nodes {
        if !names.contains(node.name()) {
            return Err(node.misnamed(SIMULATED_NAME));
        }
        workloads.insert(node.name().to_owned(), parse_workload(node)?);
    }
    Ok(workloads)
}

fn parse_workload(node: &Node<'_>) -> Result<Workload, LeaseError> {
    let mut values = WorkloadValues::default();
    for entry in node.entries()? {
        match entry.name() {
            "tasks" => {
                let tasks = entry.integer(Workload::TASKS, Workload::TASKS_ALLOWED)?;
                values.tasks = u8::try_from(tasks).ok();
            }
            "seed" => {
                let seed = entry.integer(Workload::SEED, Workload::SEED_ALLOWED)?;
                values.seed = u32::try_from(seed).ok();
            }
            name => match values.time(name) {
                Some(place) => *place = Some(entry.quantity()?),
                None => return Err(entry.unknown(Workload::KEYS)),
            },
        }
    }
    let refused = |allowed: &str| node.refused_as("another combination".to_owned(), allowed);
    values.workload().map_err(refused)
}

/// Whether the host's and the guest's C interfaces can carry `text`.
fn is_c_string(text: &str) -> bool {
    !text.contains('\0')
}

fn is_path(text: &str) -> bool {
    !text.is_empty() && is_c_string(text)
}
