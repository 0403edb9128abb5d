//! Obeys the controller's commands: starts tenants, ends them, and reports on them.

use super::Executor;
use super::roots::{Root, memory_use};
use crate::clock::monotonic_ns;
use crate::command::{Command, Connect, StartRequest};
use crate::dispatch::{Processor, Promised, Share, Work};
use crate::drift::CostClass;
use crate::ending::Cause;
use crate::engine_parts::EngineParts;
use crate::execution::ExecutionTemplate;
use crate::exit::Exit;
use crate::given::Given;
use crate::host::fs::account::Account;
use crate::host::fs::limit::Promise;
use crate::local;
use crate::mappings::{self, Mappings};
use crate::memory;
use crate::pace::Pace;
use crate::pools::DirtyRanges;
use crate::start_error::StartError;
use crate::starting::{Client, Starting};
use crate::steps::{begin, step, watch};
use leasehold_kernel::{Errno, Rights, TenantId};
use leasehold_lease::Memory;
use leasehold_reclaim::{GroupId, Statement};
use leasehold_reserve::{Contract, TaskId};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

impl Executor {
    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Start {
                key,
                request,
                engine,
                promised,
                files,
                client,
            } => self.start(key, *request, engine, (promised, files), client),
            Command::Go(key) => self.go(key),
            Command::Kill {
                key,
                asked_ns,
                urgency,
            } => {
                let cause = Cause {
                    exit: Exit::Killed,
                    asked_ns,
                    urgency: Some(urgency),
                };
                self.end_root(key, cause);
            }
            Command::Call(key, call) => self.call(key, call),
            Command::FinishCalls(key) => self.finish_calls(key),
            Command::Statement(key, reply) => {
                let _ = reply.send(self.statement(key));
            }
            Command::Processors(keys, reply) => {
                let _ = reply.send(keys.iter().map(|key| self.processor(*key)).collect());
            }
            Command::Memory(key, reply) => {
                let _ = reply.send(self.alive(key).map(memory_use));
            }
            Command::Steps(reply) => {
                let _ = reply.send(watch::uses());
            }
            Command::Costs(reply) => {
                let _ = reply.send(local::with(|local| local.prices.costs()));
            }
            Command::Samples(reply) => {
                let _ = reply.send(watch::take_samples());
            }
            Command::Control(reply) => {
                let _ = reply.send(self.control_share.uses().collect());
            }
            Command::Shared(reply) => {
                let _ = reply.send(memory::shared());
            }
            Command::Connect(connect) => {
                let result = self.connect(&connect);
                let _ = connect.reply.send(result);
            }
            Command::Shutdown => {
                self.stop = true;
                let keys: Vec<_> = self.roots.keys().copied().collect();
                for &key in &keys {
                    self.end_root(key, Cause::now(Exit::Killed));
                }
                // No tenant remains that a pause would protect, and the end of the process gives
                // everything back without pauses anyway.
                for root in self.roots.values_mut() {
                    root.pace = None;
                }
                for key in keys {
                    self.keep_up(key, &mut || true);
                }
            }
        }
    }

    /// Admits a top-level tenant, whose maintenance task builds its program.
    fn start(
        &mut self,
        key: u64,
        request: StartRequest,
        engine: Arc<EngineParts>,
        promises: (Option<Promised>, Option<Promise>),
        client: Client,
    ) {
        let _step = begin(step!("cell", "admit"));
        watch::settle();
        match self.open_root(key, &request, promises) {
            Ok(tenant) => self.begin_start(key, tenant, request, engine, client),
            Err(error) => {
                local::with(|local| local.io.reaper.drop_given(request));
                client.refuse(error);
            }
        }
    }

    /// Sets up a top-level tenant's share of the processor and its maintenance task.
    fn open_root(
        &mut self,
        key: u64,
        request: &StartRequest,
        (promised, files): (Option<Promised>, Option<Promise>),
    ) -> Result<TenantId, StartError> {
        let lease = &request.lease;
        let class = CostClass::of_root(lease.memory.paging.is_some());
        let price = local::with(|local| local.prices.price(class));
        let mappings = Mappings::claim(mappings::TENANT)
            .map_err(|refused| StartError::Full(refused.to_string()))?;
        let mut thread = None;
        let surroundings = &request.surroundings;
        if surroundings.need_threads(lease, surroundings.keyvalue.is_some()) {
            let one = local::with(|local| local.io.pool.promise());
            thread = Some(one.map_err(|refused| StartError::Full(refused.to_string()))?);
        }
        let (tenant, group) = local::with(|local| {
            let files = Account::new(lease, files, thread, local.io.clone());
            let files = files.after(request.surroundings.disk_use.clone());
            local.open_root(lease, price, files)
        })?;
        let contract = promised.as_ref();
        let contract = contract.and_then(|promised| promised.contract.as_ref());
        let shared = self.open_shares(key, group, &lease.memory, contract);
        let (share, maintenance) = shared.inspect_err(|_| {
            if let Some(tenancy) = memory::end(group) {
                tenancy.give_back();
            }
            local::with(|local| local.abandon_root(tenant));
        })?;
        let pace = contract.is_none().then(Pace::default);
        self.keys.insert(tenant, key);
        self.roots.insert(
            key,
            Box::new(Root {
                tenant,
                class,
                price,
                share,
                promised,
                maintenance,
                starting: None,
                ended: false,
                teardowns: VecDeque::new(),
                dirty: DirtyRanges::default(),
                pace,
                firing: Pace::default(),
                hurried: false,
                controlled: None,
                serving: None,
                outgoing: request.surroundings.outgoing.clone(),
                mappings,
                given: Given::of(request),
            }),
        );
        Ok(tenant)
    }

    /// A top-level tenant's shares of the cell's memory, and of its processor with a maintenance task. Without the
    /// second, the first is there to be [ended](memory::end).
    fn open_shares(
        &mut self,
        key: u64,
        group: GroupId,
        memory: &Memory,
        contract: Option<&Contract>,
    ) -> Result<(Share, TaskId), StartError> {
        self.pools.retry();
        memory::admit(group, memory)?;
        let now = monotonic_ns();
        let dispatcher = &mut self.executions.dispatcher;
        let share = dispatcher.share(contract, now).and_then(|share| {
            let maintenance = dispatcher.add(&share, Work::Maintenance(key));
            let maintenance = maintenance.inspect_err(|_| dispatcher.give_back(&share, now))?;
            Ok((share, maintenance))
        });
        share.map_err(|refused| StartError::Processor(refused.to_string()))
    }

    /// Begins to build a tenant's program in the tenant's own processor time.
    fn begin_start(
        &mut self,
        key: u64,
        tenant: TenantId,
        request: StartRequest,
        engine: Arc<EngineParts>,
        client: Client,
    ) {
        let Some(root) = self.roots.get_mut(&key) else {
            return;
        };
        self.preemption.add(&engine.companion);
        let budget = request.lease.reclaim.budget;
        let outline = request.program.outline();
        let template = Rc::new(ExecutionTemplate {
            engine,
            preemption: self.preemption.clone(),
            program: request.program,
            surroundings: request.surroundings,
            limits: outline.limits(&request.lease, self.page_ps),
            log_rate: Arc::default(),
        });
        let execution = local::with(|local| {
            let execution = local.next_execution;
            local.next_execution += 1;
            execution
        });
        let starting = Starting::new(tenant, execution, template, (budget, root.price), client);
        root.starting = Some(Box::new(starting));
        self.executions
            .dispatcher
            .wake(root.maintenance, monotonic_ns());
    }

    /// A tenant's account, at the price that it pays.
    fn statement(&self, key: u64) -> Option<Statement> {
        let tenant = self.alive(key)?;
        let price = self.roots.get(&key)?.price;
        let statement = local::with(|local| local.kernel.statement(tenant).ok())?;
        Some(price.of_statement(statement))
    }

    /// The processor time that a tenant has received.
    fn processor(&self, key: u64) -> Option<Processor> {
        let root = self.roots.get(&key)?;
        let now = monotonic_ns();
        self.executions.dispatcher.processor(&root.share, now)
    }

    fn connect(&self, connect: &Connect) -> Result<(u32, u32), Errno> {
        let tenant = |key: &u64| self.alive(*key).ok_or(Errno::Gone);
        let (client, service) = (tenant(&connect.client)?, tenant(&connect.service)?);
        local::with(|local| {
            let kernel = &mut local.kernel;
            let channel = kernel.channel_create(client, connect.capacity)?;
            let rights = Rights::READ | Rights::WRITE;
            match kernel.connect(client, channel, service, rights, connect.links) {
                Ok(theirs) => Ok((channel.0, theirs.0)),
                Err(errno) => {
                    // The channel was made a moment ago, so it can be dropped.
                    let _ = kernel.capability_drop(client, channel);
                    Err(errno)
                }
            }
        })
    }
}
