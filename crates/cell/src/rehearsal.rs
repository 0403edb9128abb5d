//! Whether tenants could be started, without starting any.
//!
//! A start is refused by the lease, by the process, or by what its surroundings name. All of this is decided by
//! functions that need no engine and run no guest: an [`Outline`] says what a program holds from the beginning, and the
//! descriptors, threads and mappings of the process are counted. A rehearsal calls the same functions on a kernel of its
//! own, so that a lease file can be tested before a cell is there.

mod stage;

use crate::build_error::BuildError;
use crate::config::CellConfig;
use crate::drift::{CostClass, PresentPrices};
use crate::host::fs::account::Account;
use crate::host::fs::limit::{self, Refused as DescriptorsRefused};
use crate::host::fs::preopen::Preopen;
use crate::host::io::Io;
use crate::host::io::pool::Promise;
use crate::host::preview1::state::{Environment, State};
use crate::local;
use crate::mappings;
use crate::memory::{self, DataSet};
use crate::meter::Held;
use crate::outline::{Limits, Outline};
use crate::outlines::{Outlines, ProgramOutline};
use crate::profile::Profile;
use crate::program::{Entry, Form, ProgramError, Purpose};
use crate::start_error::{Demands, StartError};
use crate::surroundings::Surroundings;
use crate::wasi::filesystem::files::FileSystem;
use crate::wasi::stdio::{Input, Output};
use crate::wasi::table::TableCharge;
use leasehold_kernel::{ExecutionId, TenantId};
use leasehold_lease::Lease;
use leasehold_pager_linux::Limits as AreaLimits;
use leasehold_slots::stack_class::StackClass;
use stage::on_stage;
use std::collections::{HashMap, hash_map};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wasmtime_wasi::ResourceTable;

/// Starts that are rehearsed one after the other, of the tenants of one cell in a process of its own.
#[derive(Debug)]
pub struct Rehearsal {
    config: CellConfig,
    io: Arc<Io>,
    descriptors: limit::Rehearsed,
    mappings: mappings::Rehearsed,
    /// Of the tenants until now.
    threads: Vec<Promise>,
    outlines: Arc<Outlines>,
    prices: Arc<PresentPrices>,
    /// Of the programs that can be run so.
    programs: HashMap<(PathBuf, Purpose), ProgramOutline>,
}

/// A start to be rehearsed.
#[derive(Debug)]
pub struct RehearsedStart<'a> {
    /// The program.
    pub program: &'a Path,
    /// The lease.
    pub lease: &'a Lease,
    /// What it is given. Standard streams do not matter.
    pub surroundings: &'a Surroundings,
    /// Whether it has a store of keys.
    pub has_store: bool,
    /// Whether it answers requests.
    pub is_handler: bool,
    /// Calls to other hosts that it may have under way at a time; 0 if it may make none.
    pub calls: u32,
    /// Addresses at which it may listen.
    pub addresses: usize,
}

impl Rehearsal {
    /// A cell without tenants that charges what `profile` says, for programs of which `outlines` know. With
    /// [`Profile::free`], no budget is too small.
    pub fn new(profile: Profile, outlines: Arc<Outlines>) -> Self {
        let config = CellConfig::new(profile);
        Self {
            mappings: mappings::Rehearsed::of_cell(config.max_memories),
            config,
            io: Arc::new(Io::rehearsed()),
            descriptors: limit::Rehearsed::default(),
            threads: Vec::new(),
            outlines,
            prices: Arc::default(),
            programs: HashMap::new(),
        }
    }

    /// The same in a cell whose prices are these by now.
    #[must_use]
    pub fn at(self, prices: Arc<PresentPrices>) -> Self {
        Self { prices, ..self }
    }

    /// Rehearses a listener that accepts so many connections at a time, before the tenants.
    ///
    /// # Errors
    /// When a process would not have the descriptors.
    pub fn listen(&mut self, connections: u32) -> Result<(), DescriptorsRefused> {
        self.descriptors
            .add(limit::Demand::of_listener(connections))
    }

    /// Tests the program of a start: whether it could be loaded, as far as that is known without a look at its function
    /// bodies. The start of another one can be rehearsed as well: as much is tested as holds for any program.
    ///
    /// # Errors
    /// `Read`, and why it would not be loaded.
    pub fn check_program(&mut self, start: &RehearsedStart<'_>) -> Result<(), ProgramError> {
        self.program(start).map(drop)
    }

    /// Counts what one more tenant is promised of the process: descriptors, mappings and a thread. A part of its
    /// [start](Self::start).
    ///
    /// # Errors
    /// `Full`, when the process would not have them beside those of the tenants until now.
    pub fn promise(&mut self, start: &RehearsedStart<'_>) -> Result<(), StartError> {
        let RehearsedStart {
            lease,
            surroundings,
            ..
        } = start;
        let full = |refused: &dyn std::fmt::Display| StartError::Full(refused.to_string());
        let parts = limit::Parts {
            has_dirs: !surroundings.dirs.is_empty(),
            data_sets: surroundings.data.len(),
            has_store: start.has_store,
            has_image: start.is_handler || lease.memory.paging.is_some(),
            calls: start.calls,
            addresses: start.addresses,
        };
        if let Some(demand) = limit::Demand::of_tenant(lease, parts) {
            let promised = self.descriptors.add(demand);
            promised.map_err(|refused| full(&refused))?;
        }
        let paging = lease.memory.paging.map_or(0, |paging| {
            u64::from(paging.mappings) + u64::from(AreaLimits::SPARE)
        });
        let promised = self.mappings.add(mappings::TENANT + paging);
        promised.map_err(|refused| full(&refused))?;
        if surroundings.need_threads(lease, start.has_store) {
            let promised = self.io.pool.promise();
            self.threads
                .push(promised.map_err(|refused| full(&refused))?);
        }
        Ok(())
    }

    /// Rehearses the start of one more tenant beside those that could be started until now. Opens its directories and
    /// data sets, and closes them. Not on a cell's thread.
    ///
    /// # Errors
    /// As [`Cell::start_tenant`](crate::Cell::start_tenant), but for the processor and for what the host has of memory,
    /// which other tests are for.
    pub fn start(&mut self, start: &RehearsedStart<'_>) -> Result<(), StartError> {
        let RehearsedStart {
            lease,
            surroundings,
            ..
        } = start;
        let program = self.program(start).ok();
        let inventory = program.as_ref().map(|it| it.inventory).unwrap_or_default();
        let is_component = program.as_ref().is_some_and(|it| it.is_component);
        let memory = program.and_then(|it| it.memory);
        surroundings.check_lengths()?;
        if lease.memory.paging.is_some() && is_component {
            surroundings.check_paged(lease)?;
        }
        self.promise(start)?;
        let outline = Outline {
            inventory,
            image_pages: memory.map_or(0, |memory| u64::from(memory.pages)),
            stack: StackClass::of(lease),
            is_component,
            is_handler: start.is_handler,
            is_called: false,
            has_backtraces: false,
        };
        let pages = u32::try_from(outline.image_pages).unwrap_or(u32::MAX);
        memory::check_image(&lease.memory, pages).map_err(StartError::Memory)?;
        on_stage(&self.config, &self.io, || self.begin(&outline, start))
    }

    /// The part of a start that the tenant's own kernel objects pay for.
    fn begin(&self, outline: &Outline, start: &RehearsedStart<'_>) -> Result<(), StartError> {
        let lease = start.lease;
        let price = self
            .prices
            .of(CostClass::of_root(lease.memory.paging.is_some()));
        let (tenant, account) = local::with(|local| {
            let account = Account::new(lease, None, None, self.io.clone());
            let (tenant, root) = local.open_root(lease, price, account)?;
            Ok((tenant, local.files.get(&root).cloned()))
        })?;
        let begun = self.begin_as(tenant, account, outline, start);
        local::with(|local| {
            local.holdings.remove(&EXECUTION);
            local.abandon_root(tenant);
        });
        begun
    }

    /// The same of a tenant that is admitted.
    fn begin_as(
        &self,
        tenant: TenantId,
        account: Option<Arc<Account>>,
        outline: &Outline,
        start: &RehearsedStart<'_>,
    ) -> Result<(), StartError> {
        let lease = start.lease;
        let limits = outline.limits(lease, self.config.profile.charge_ps(Held::HostPage));
        let mut demands = Demands {
            budget: lease.reclaim.budget,
            enough_ns: None,
            host_kib: outline.host_kib(&limits),
            call_bytes: limits.call_bytes,
            host_is_short: false,
            opens_files: false,
        };
        let page = match lease.memory.paging {
            Some(_) => Held::PagedPage,
            None => Held::MemoryPage,
        };
        let charged = start.surroundings.check_strings().and_then(|()| {
            local::with(|local| {
                // What it shares is charged beside an execution.
                if outline.is_handler && outline.image_pages > 0 {
                    local.hold(tenant, EXECUTION, Held::PagedPage, outline.image_pages)?;
                }
                local.begin((tenant, EXECUTION), outline, &limits, page)
            })
        });
        let built = charged.map_err(BuildError::from).and_then(|()| {
            // Of a program that answers requests, executions are built when there are some.
            let Some(account) = account.filter(|_| !outline.is_handler) else {
                return Ok(None);
            };
            demands.opens_files = true;
            surround(start.surroundings, (outline, &limits), tenant, account).map(Some)
        });
        let enough = |demands: &mut Demands| {
            local::with(|local| {
                demands.enough_ns = local.budget_refused(tenant);
                demands.host_is_short = local.host_is_short(tenant);
            });
        };
        match built {
            Ok(None) => Ok(()),
            Ok(Some(_held)) => {
                let execution = ExecutionId(EXECUTION);
                let taken = local::with(|local| local.kernel.register_execution(tenant, execution));
                taken.map_err(|errno| {
                    enough(&mut demands);
                    demands.not_taken(errno)
                })
            }
            Err(error) => {
                enough(&mut demands);
                Err(demands.refused(&error))
            }
        }
    }

    fn program(&mut self, start: &RehearsedStart<'_>) -> Result<ProgramOutline, ProgramError> {
        let purpose = Purpose {
            entry: match start.is_handler {
                true => Entry::Handler,
                false => Entry::Command,
            },
            form: Form::under(start.lease),
        };
        Ok(
            match self.programs.entry((start.program.to_owned(), purpose)) {
                hash_map::Entry::Occupied(known) => known.get().clone(),
                hash_map::Entry::Vacant(free) => {
                    let outline = self.outlines.of(start.program, purpose)?;
                    free.insert(outline).clone()
                }
            },
        )
    }
}

/// The number of the execution: each tenant is alone in the kernel here.
const EXECUTION: u64 = 1;

/// Opens what a program is given, and charges for its table of descriptors.
fn surround(
    surroundings: &Surroundings,
    (outline, limits): (&Outline, &Limits),
    tenant: TenantId,
    account: Arc<Account>,
) -> Result<Surrounded, BuildError> {
    let preopen = |directory: &crate::surroundings::Directory| {
        let opened = Preopen::open(&directory.host, &directory.guest, directory.write);
        opened.map_err(|errno| BuildError::Directory {
            path: directory.host.clone(),
            source: errno.into(),
        })
    };
    let preopens = surroundings.dirs.iter().map(preopen);
    let preopens = preopens.collect::<Result<Vec<_>, _>>()?;
    for (name, path) in &surroundings.data {
        DataSet::open(name, path).map_err(|source| BuildError::Data {
            path: path.clone(),
            source,
        })?;
    }
    let identity = (tenant, EXECUTION);
    if outline.is_component {
        let files = FileSystem::new(identity, account, preopens, limits.call_bytes)?;
        let mut table = ResourceTable::new();
        let charge = TableCharge::start(&mut table, tenant, EXECUTION)?;
        return Ok(Surrounded::Component { files, charge });
    }
    let environment = Environment {
        args: Vec::new(),
        env: Vec::new(),
        stdin: Input::Empty,
        stdout: Output::Discard,
        stderr: Output::Discard,
    };
    let state = State::new(identity, account, environment, preopens)?;
    Ok(Surrounded::Module(Box::new(state)))
}

/// What was opened and charged for a program, which holds it until it is dropped.
#[expect(dead_code, reason = "held to be dropped")]
enum Surrounded {
    Module(Box<State>),
    Component {
        files: FileSystem,
        charge: TableCharge,
    },
}
