//! The kernel against a slow reference model, under random calls from several tenants.
//!
//! The model uses simple algorithms: it invalidates derived capabilities by walking all of them,
//! sums links by visiting every allowance, and ends tenants by visiting everything.

mod common;

use std::collections::{BTreeMap, VecDeque};

use common::sized;
use leasehold_kernel::{
    CAPABILITY_BYTES, DERIVATION_DEPTH, Errno, ExecutionId, HEADER_BYTES, Kernel, Outcome, Rights,
    Selector, TenantId, Wake,
};
use leasehold_reclaim::{HeapBacking, Mode};
use proptest::prelude::{Strategy, any, prop, proptest};
use proptest::test_runner::Config;

type K = Kernel<HeapBacking>;

#[derive(Debug)]
struct Tenant {
    id: TenantId,
    alive: bool,
    parent: Option<usize>,
    /// Selector to capability.
    table: BTreeMap<u32, usize>,
}

#[derive(Debug)]
struct Capability {
    holder: usize,
    object: usize,
    rights: Rights,
    parent: Option<usize>,
    depth: u8,
    /// Neither it nor anything it was derived from was dropped or revoked.
    valid: bool,
    dropped: bool,
    allowance: Option<usize>,
}

#[derive(Debug)]
struct Allowance {
    /// The tenant that is charged: the object's owner.
    payer: usize,
    holder: usize,
    left: u32,
    /// The allowance it was taken from; otherwise the owner's capability.
    above: Option<usize>,
    /// Its charge is with the payer: it was not closed, and neither was anything above it.
    live: bool,
    closed: bool,
    owner_capability: usize,
}

/// One queue: units available are kept by the object.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(usize, u32, Option<usize>)>,
    turns: Vec<(usize, u32)>,
}

#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    capabilities: Vec<(usize, bool)>,
}

#[derive(Debug)]
enum Kind {
    Semaphore(u32),
    Channel {
        capacity: u32,
        messages: VecDeque<Message>,
    },
    Child(usize),
}

#[derive(Debug)]
struct Object {
    owner: usize,
    alive: bool,
    kind: Kind,
    /// Of a semaphore the first; of a channel receivers and senders.
    queues: [Queue; 2],
}

#[derive(Debug, Default)]
struct Model {
    tenants: Vec<Tenant>,
    capabilities: Vec<Capability>,
    allowances: Vec<Allowance>,
    objects: Vec<Object>,
    /// Execution to tenant, while it is registered.
    executions: BTreeMap<usize, usize>,
    wakes: VecDeque<(u64, Wake)>,
}

const RECEIVE: usize = 0;
const SEND: usize = 1;

impl Object {
    fn available(&self, side: usize) -> u32 {
        match &self.kind {
            Kind::Semaphore(value) => *value,
            Kind::Channel { messages, .. } if side == RECEIVE => messages.len() as u32,
            Kind::Channel { capacity, messages } => {
                capacity - messages.iter().map(footprint).sum::<u32>()
            }
            Kind::Child(_) => 0,
        }
    }

    fn admits(&self, side: usize, need: u32, has_turn: bool) -> bool {
        let reserved: u32 = self.queues[side].turns.iter().map(|turn| turn.1).sum();
        (has_turn || self.queues[side].waiting.is_empty())
            && self.available(side).saturating_sub(reserved) >= need
    }
}

fn footprint(message: &Message) -> u32 {
    HEADER_BYTES + message.bytes.len() as u32 + message.capabilities.len() as u32 * CAPABILITY_BYTES
}

impl Model {
    fn own(&mut self, tenant: usize, selector: Selector, kind: Kind) {
        let queues = [Queue::default(), Queue::default()];
        self.objects.push(Object {
            owner: tenant,
            alive: true,
            kind,
            queues,
        });
        let object = self.objects.len() - 1;
        self.hold(tenant, selector, object, Rights::ALL, None);
    }

    fn hold(
        &mut self,
        holder: usize,
        selector: Selector,
        object: usize,
        rights: Rights,
        parent: Option<usize>,
    ) -> usize {
        let depth = parent.map_or(0, |parent| self.capabilities[parent].depth + 1);
        let capability = Capability {
            holder,
            object,
            rights,
            parent,
            depth,
            valid: true,
            dropped: false,
            allowance: None,
        };
        self.capabilities.push(capability);
        let number = self.capabilities.len() - 1;
        let before = self.tenants[holder].table.insert(selector.0, number);
        assert_eq!(before, None, "a selector in use was handed out again");
        number
    }

    fn ends_with(&self, tenant: usize, other: usize) -> bool {
        tenant == other
            || self.tenants[tenant]
                .parent
                .is_some_and(|parent| self.ends_with(parent, other))
    }

    fn find(&self, tenant: usize, selector: Selector) -> Result<usize, Errno> {
        self.tenants[tenant]
            .table
            .get(&selector.0)
            .copied()
            .ok_or(Errno::BadSelector)
    }

    /// The checks of a use: what the capability is for, or why not.
    fn resolve(
        &self,
        tenant: usize,
        selector: Selector,
        class: fn(&Kind) -> bool,
        rights: Rights,
    ) -> Result<(usize, usize), Errno> {
        if selector == Selector::OWN {
            let tenants = class(&Kind::Child(0));
            return Err(if tenants {
                Errno::Rights
            } else {
                Errno::BadClass
            });
        }
        let number = self.find(tenant, selector)?;
        let capability = &self.capabilities[number];
        if !class(&self.objects[capability.object].kind) {
            return Err(Errno::BadClass);
        }
        if !capability.rights.contains(rights) {
            return Err(Errno::Rights);
        }
        if !capability.valid || !self.objects[capability.object].alive {
            return Err(Errno::Gone);
        }
        Ok((capability.object, number))
    }

    /// The nearest allowance on the way to the original.
    fn allowance_of(&self, capability: usize) -> Option<usize> {
        let mut at = Some(capability);
        while let Some(number) = at {
            let capability = &self.capabilities[number];
            if capability.allowance.is_some() {
                return capability.allowance;
            }
            at = capability.parent;
        }
        None
    }

    /// Invalidates everything derived from a capability.
    fn invalidate_below(&mut self, capability: usize) {
        for child in 0..self.capabilities.len() {
            if self.capabilities[child].parent == Some(capability) {
                self.capabilities[child].valid = false;
                self.invalidate_below(child);
            }
        }
        for message in self
            .objects
            .iter_mut()
            .filter_map(|object| match &mut object.kind {
                Kind::Channel { messages, .. } => Some(messages),
                _ => None,
            })
        {
            for (parent, valid) in message
                .iter_mut()
                .flat_map(|message| &mut message.capabilities)
            {
                *valid &= *parent != capability;
            }
        }
    }

    /// Gives up what was granted from a capability that is revoked or dropped.
    fn kill_granted_from(&mut self, capability: usize) {
        for allowance in 0..self.allowances.len() {
            let grant = &self.allowances[allowance];
            if grant.above.is_none() && grant.owner_capability == capability {
                self.kill(allowance);
            }
        }
    }

    /// The links of an allowance and those taken from it are no longer charged.
    fn kill(&mut self, allowance: usize) {
        self.allowances[allowance].live = false;
        for below in 0..self.allowances.len() {
            if self.allowances[below].above == Some(allowance) {
                self.kill(below);
            }
        }
    }

    fn close(&mut self, allowance: usize) {
        if core::mem::replace(&mut self.allowances[allowance].closed, true) {
            return;
        }
        if self.allowances[allowance].live {
            let all = self.sum(allowance);
            if let Some(above) = self.allowances[allowance].above {
                self.allowances[above].left += all;
            }
        }
        self.kill(allowance);
    }

    /// Links in an allowance and in those taken from it.
    fn sum(&self, allowance: usize) -> u32 {
        let below = (0..self.allowances.len()).filter(|&below| {
            self.allowances[below].above == Some(allowance) && self.allowances[below].live
        });
        self.allowances[allowance].left + below.map(|below| self.sum(below)).sum::<u32>()
    }

    fn drop_capability(&mut self, number: usize) {
        let Capability {
            holder,
            object,
            parent,
            allowance,
            ..
        } = self.capabilities[number];
        self.tenants[holder].table.retain(|_, held| *held != number);
        self.capabilities[number].dropped = true;
        self.capabilities[number].valid = false;
        if parent.is_none() {
            self.end_object(object);
        }
        self.invalidate_below(number);
        self.kill_granted_from(number);
        if let Some(allowance) = allowance {
            self.close(allowance);
        }
    }

    fn end_object(&mut self, object: usize) {
        self.objects[object].alive = false;
        // Senders are dismissed before receivers.
        for side in [SEND, RECEIVE] {
            while let Some((execution, _, link)) =
                self.objects[object].queues[side].waiting.pop_front()
            {
                self.give_back(link);
                self.wakes.push_back((execution as u64, Wake::Gone));
            }
        }
    }

    fn give_back(&mut self, link: Option<usize>) {
        if let Some(link) = link
            && self.allowances[link].live
        {
            self.allowances[link].left += 1;
        }
    }

    /// What an execution's last call left behind; the queue where it had a turn.
    fn resume(&mut self, execution: usize) -> Option<(usize, usize)> {
        self.wakes.retain(|wake| wake.0 != execution as u64);
        for object in 0..self.objects.len() {
            for side in [RECEIVE, SEND] {
                let queue = &mut self.objects[object].queues[side];
                if let Some(at) = queue.turns.iter().position(|turn| turn.0 == execution) {
                    queue.turns.remove(at);
                    return self.objects[object].alive.then_some((object, side));
                }
                if let Some(at) = queue.waiting.iter().position(|wait| wait.0 == execution) {
                    let (_, _, link) = queue.waiting.remove(at).expect("found");
                    self.give_back(link);
                    self.settle(object, side);
                    return None;
                }
            }
        }
        None
    }

    fn settle(&mut self, object: usize, side: usize) {
        loop {
            let at = &mut self.objects[object];
            let Some(&(execution, need, link)) = at.queues[side].waiting.front() else {
                return;
            };
            if !at.alive || !at.admits(side, need, true) {
                return;
            }
            at.queues[side].waiting.pop_front();
            at.queues[side].turns.push((execution, need));
            self.give_back(link);
            self.wakes.push_back((execution as u64, Wake::Ready));
        }
    }

    fn leave(&mut self, execution: usize) {
        if let Some((object, side)) = self.resume(execution) {
            self.settle(object, side);
        }
    }

    fn block(
        &mut self,
        tenant: usize,
        execution: usize,
        capability: usize,
        side: usize,
        need: u32,
    ) -> Result<(), Errno> {
        let object = self.capabilities[capability].object;
        let mut link = None;
        if !self.ends_with(tenant, self.objects[object].owner) {
            let allowance = self.allowance_of(capability).ok_or(Errno::Allowance)?;
            if !self.allowances[allowance].live || self.allowances[allowance].left == 0 {
                return Err(Errno::Allowance);
            }
            self.allowances[allowance].left -= 1;
            link = Some(allowance);
        }
        self.objects[object].queues[side]
            .waiting
            .push_back((execution, need, link));
        Ok(())
    }

    /// Whether an execution that ends with this tenant waits by a link of an allowance that also
    /// ends with it, of a payer that does not. Whether that link goes back to the payer's side or
    /// is lost with the allowance depends on which of the two scrub entries comes first, and both
    /// keep every account: the model cannot tell.
    fn ends_a_waiter_with_its_allowance(&self, tenant: usize) -> bool {
        let dies = |other: usize| self.ends_with(other, tenant);
        let queues = self.objects.iter().flat_map(|object| &object.queues);
        queues.flat_map(|queue| &queue.waiting).any(|wait| {
            let &(execution, _, Some(link)) = wait else {
                return false;
            };
            let grant = &self.allowances[link];
            self.executions.get(&execution).is_some_and(|of| dies(*of))
                && dies(grant.holder)
                && !dies(grant.payer)
        })
    }

    /// Ends a tenant and all below it. The order of what others notice is the kernel's choice.
    fn end(&mut self, tenant: usize) {
        let dead: Vec<bool> = (0..self.tenants.len())
            .map(|other| self.ends_with(other, tenant))
            .collect();
        for (other, dead) in dead.iter().enumerate() {
            self.tenants[other].alive &= !dead;
        }
        for capability in 0..self.capabilities.len() {
            if dead[self.capabilities[capability].holder] && !self.capabilities[capability].dropped
            {
                self.capabilities[capability].valid = false;
                self.invalidate_below(capability);
            }
        }
        for allowance in 0..self.allowances.len() {
            if dead[self.allowances[allowance].payer] {
                self.allowances[allowance].closed = true;
                self.kill(allowance);
            }
        }
        for allowance in 0..self.allowances.len() {
            if dead[self.allowances[allowance].holder] {
                self.close(allowance);
            }
        }
        let stopped: Vec<usize> = self
            .executions
            .iter()
            .filter(|of| dead[*of.1])
            .map(|of| *of.0)
            .collect();
        for object in 0..self.objects.len() {
            if dead[self.objects[object].owner] && self.objects[object].alive {
                self.end_object(object);
            }
        }
        for execution in stopped {
            self.leave(execution);
            self.executions.remove(&execution);
        }
    }

    /// Links charged to a tenant's tree, used and unused.
    fn links_charged(&self, tenant: usize) -> (u64, u64) {
        let below = |other: usize| self.tenants[other].alive && self.ends_with(other, tenant);
        let unused = self
            .allowances
            .iter()
            .filter(|grant| grant.live && below(grant.payer));
        let unused = unused.map(|grant| u64::from(grant.left)).sum();
        let executions = self.executions.values().filter(|of| below(**of)).count();
        let foreigners = self
            .objects
            .iter()
            .filter(|object| object.alive && below(object.owner));
        let foreigners = foreigners
            .flat_map(|object| &object.queues)
            .flat_map(|queue| &queue.waiting)
            .filter(|wait| wait.2.is_some())
            .count();
        // An allowance that its payer took with it leaves its entry behind with the holder.
        let closers = self.capabilities.iter().filter(|capability| {
            !capability.dropped
                && below(capability.holder)
                && capability
                    .allowance
                    .is_some_and(|grant| self.allowances[grant].payer != capability.holder)
        });
        (unused, (executions + foreigners + closers.count()) as u64)
    }
}

/// One random call: the operation, the caller, the object, and three numbers.
type Op = (u8, u8, u8, u8, u8, u8);

struct Run {
    kernel: K,
    model: Model,
    next_execution: usize,
    /// Budgets are so small that calls are refused at any time.
    tight: bool,
}

impl Run {
    fn new(mode: Mode, budget_ns: u64) -> Self {
        let kernel = sized(mode, 1 << 20, 32);
        let mut run = Run {
            kernel,
            model: Model::default(),
            next_execution: 1,
            tight: budget_ns < 1_000,
        };
        for _ in 0..3 {
            run.admit(budget_ns);
        }
        run
    }

    fn admit(&mut self, budget_ns: u64) {
        if let Ok(id) = self.kernel.admit(budget_ns, 1 << 20) {
            let tenant = Tenant {
                id,
                alive: true,
                parent: None,
                table: BTreeMap::new(),
            };
            self.model.tenants.push(tenant);
        }
    }

    /// A selector that the tenant has, had, or never had.
    fn selector(&self, tenant: usize, number: u8) -> Selector {
        let table = &self.model.tenants[tenant].table;
        match number {
            0..4 => Selector(u32::from(number) << 12),
            4..8 => Selector(u32::from(number - 4)),
            _ if table.is_empty() => Selector::OWN,
            _ => Selector(
                *table
                    .keys()
                    .nth(usize::from(number) % table.len())
                    .expect("inside"),
            ),
        }
    }

    fn lefts(&self) -> Vec<Option<u64>> {
        let tenants = self.model.tenants.iter();
        tenants
            .map(|tenant| {
                self.kernel
                    .statement(tenant.id)
                    .ok()
                    .map(|account| account.left.0)
            })
            .collect()
    }

    fn apply(&mut self, (what, who, on, a, b, c): Op) {
        let alive: Vec<usize> = (0..self.model.tenants.len())
            .filter(|&at| self.model.tenants[at].alive)
            .collect();
        if alive.is_empty() {
            return self.admit(40_000);
        }
        let tenant = alive[usize::from(who) % alive.len()];
        let id = self.model.tenants[tenant].id;
        let selector = self.selector(tenant, on);
        let rights = Rights::from_bits(u32::from(b) % 16).expect("four bits");
        let running: Vec<usize> = self
            .model
            .executions
            .iter()
            .filter(|of| *of.1 == tenant)
            .map(|of| *of.0)
            .collect();
        let execution =
            (!running.is_empty()).then(|| running[usize::from(c) % running.len().max(1)]);
        let before = self.lefts();
        let refused = match what % 18 {
            0 => {
                let made = self.kernel.semaphore_create(id, u32::from(a) % 3);
                if let Ok(selector) = made {
                    self.model
                        .own(tenant, selector, Kind::Semaphore(u32::from(a) % 3));
                }
                made.err()
            }
            1 => {
                let capacity = u32::from(a);
                let made = self.kernel.channel_create(id, capacity);
                if capacity < HEADER_BYTES {
                    assert_eq!(made, Err(Errno::Invalid));
                }
                if let Ok(selector) = made {
                    let messages = VecDeque::new();
                    self.model
                        .own(tenant, selector, Kind::Channel { capacity, messages });
                }
                made.err().filter(|&errno| errno != Errno::Invalid)
            }
            2 => {
                let made = self.kernel.tenant_create(id, u64::from(a) * 40, 0);
                if let Ok(selector) = made {
                    let child = self.kernel.tenant_of(id, selector).expect("it is new");
                    let (parent, table) = (Some(tenant), BTreeMap::new());
                    self.model.tenants.push(Tenant {
                        id: child,
                        alive: true,
                        parent,
                        table,
                    });
                    let number = self.model.tenants.len() - 1;
                    self.model.own(tenant, selector, Kind::Child(number));
                }
                made.err()
            }
            3 => {
                let number = self.next_execution;
                let made = self
                    .kernel
                    .register_execution(id, ExecutionId(number as u64));
                if made.is_ok() {
                    self.next_execution += 1;
                    self.model.executions.insert(number, tenant);
                }
                made.err()
            }
            4 | 5 => self.derive(tenant, selector, rights),
            6 => {
                self.drop_capability(tenant, selector);
                None
            }
            7 => {
                let expected = match selector {
                    Selector::OWN => Err(Errno::Rights),
                    _ => self.model.find(tenant, selector),
                };
                let result = self.kernel.capability_revoke(id, selector);
                assert_eq!(result, expected.map(|_| ()));
                if let Ok(number) = expected {
                    self.model.invalidate_below(number);
                    self.model.kill_granted_from(number);
                }
                None
            }
            8 | 9 => {
                let to = alive[usize::from(a) % alive.len()];
                self.connect(tenant, selector, to, rights, u32::from(c) % 4)
            }
            10 => {
                let class = |kind: &Kind| matches!(kind, Kind::Semaphore(_));
                let expected = self.model.resolve(tenant, selector, class, Rights::WRITE);
                let n = u32::from(a) % 4;
                let result = self.kernel.semaphore_up(id, selector, n);
                assert_eq!(result, expected.map(|_| ()));
                if let Ok((object, _)) = expected {
                    if let Kind::Semaphore(value) = &mut self.model.objects[object].kind {
                        *value += n;
                    }
                    self.model.settle(object, RECEIVE);
                }
                None
            }
            11 | 12 => {
                self.down(tenant, execution, selector);
                None
            }
            13 | 14 => {
                self.send(tenant, execution.filter(|_| a % 2 == 0), selector, a, b);
                None
            }
            15 => {
                self.receive(tenant, execution.filter(|_| a % 2 == 0), selector, a);
                None
            }
            16 => {
                if let Some(execution) = execution {
                    let id = ExecutionId(execution as u64);
                    if a % 2 == 0 {
                        self.kernel.cancel_wait(id);
                        self.model.leave(execution);
                    } else {
                        self.kernel.execution_finished(id, i32::from(b));
                        self.model.leave(execution);
                        self.model.executions.remove(&execution);
                    }
                }
                None
            }
            _ => {
                if a % 4 == 0 {
                    self.end(tenant);
                }
                None
            }
        };
        if let Some(errno) = refused {
            assert!(matches!(
                errno,
                Errno::Budget | Errno::Memory | Errno::Limit | Errno::Depth
            ));
            if errno != Errno::Memory {
                assert_eq!(self.lefts(), before, "a refused call changes nothing");
            }
        }
        self.check();
    }

    fn derive(&mut self, tenant: usize, selector: Selector, rights: Rights) -> Option<Errno> {
        let id = self.model.tenants[tenant].id;
        let expected = self.grantable(tenant, selector);
        let made = self.kernel.capability_derive(id, selector, rights);
        match (expected, made) {
            (Ok(parent), Ok(made)) => {
                let Capability {
                    object,
                    rights: held,
                    ..
                } = self.model.capabilities[parent];
                self.model
                    .hold(tenant, made, object, rights & held, Some(parent));
                None
            }
            (Ok(_), Err(refused)) => Some(refused),
            (expected, made) => {
                assert_eq!(made.err(), expected.err());
                None
            }
        }
    }

    /// The checks of a delegation.
    fn grantable(&self, tenant: usize, selector: Selector) -> Result<usize, Errno> {
        if selector == Selector::OWN {
            return Err(Errno::Rights);
        }
        let number = self.model.find(tenant, selector)?;
        let capability = &self.model.capabilities[number];
        if !capability.rights.contains(Rights::GRANT) {
            return Err(Errno::Rights);
        }
        if capability.depth >= DERIVATION_DEPTH {
            return Err(Errno::Depth);
        }
        if !capability.valid || !self.model.objects[capability.object].alive {
            return Err(Errno::Gone);
        }
        Ok(number)
    }

    fn drop_capability(&mut self, tenant: usize, selector: Selector) {
        let id = self.model.tenants[tenant].id;
        let expected = match selector {
            Selector::OWN => Err(Errno::Rights),
            _ => self.model.find(tenant, selector).and_then(|number| {
                let Capability { object, parent, .. } = self.model.capabilities[number];
                match self.model.objects[object].kind {
                    Kind::Child(child) if parent.is_none() && self.model.tenants[child].alive => {
                        Err(Errno::Busy)
                    }
                    _ => Ok(number),
                }
            }),
        };
        let result = self.kernel.capability_drop(id, selector);
        assert_eq!(result, expected.map(|_| ()));
        if let Ok(number) = expected {
            self.model.drop_capability(number);
        }
    }

    fn connect(
        &mut self,
        from: usize,
        selector: Selector,
        to: usize,
        rights: Rights,
        links: u32,
    ) -> Option<Errno> {
        let (id, other) = (self.model.tenants[from].id, self.model.tenants[to].id);
        let expected = self.grantable(from, selector);
        let made = self.kernel.connect(id, selector, other, rights, links);
        let parent = match (expected, made) {
            (Ok(parent), _) => parent,
            (expected, made) => {
                assert_eq!(made.err(), expected.err());
                return None;
            }
        };
        let Capability {
            object,
            rights: held,
            ..
        } = self.model.capabilities[parent];
        let payer = self.model.objects[object].owner;
        let above = if payer == from {
            None
        } else {
            self.model.allowance_of(parent)
        };
        if links > 0 && payer != from {
            let has = above.map(|above| &self.model.allowances[above]);
            let enough = has.is_some_and(|grant| grant.live && grant.left >= links);
            if !enough && made != Err(Errno::Budget) && made != Err(Errno::Memory) {
                assert_eq!(made, Err(Errno::Allowance));
                return None;
            }
        }
        let made = match made {
            Ok(made) => made,
            Err(refused) => return Some(refused),
        };
        let number = self
            .model
            .hold(to, made, object, rights & held, Some(parent));
        if links > 0 {
            if let Some(above) = above {
                self.model.allowances[above].left -= links;
            }
            self.model.allowances.push(Allowance {
                payer,
                holder: to,
                left: links,
                above,
                live: true,
                closed: false,
                owner_capability: parent,
            });
            self.model.capabilities[number].allowance = Some(self.model.allowances.len() - 1);
        }
        None
    }

    fn down(&mut self, tenant: usize, execution: Option<usize>, selector: Selector) {
        let id = self.model.tenants[tenant].id;
        let class = |kind: &Kind| matches!(kind, Kind::Semaphore(_));
        let result = match execution {
            Some(execution) => {
                self.kernel
                    .semaphore_down(id, ExecutionId(execution as u64), selector)
            }
            None => self
                .kernel
                .semaphore_try_down(id, selector)
                .map(Outcome::Done),
        };
        let turn = execution.and_then(|execution| self.model.resume(execution));
        let expected = self.model.resolve(tenant, selector, class, Rights::READ);
        let expected = expected.and_then(|(object, capability)| {
            let at = &mut self.model.objects[object];
            if at.admits(RECEIVE, 1, turn == Some((object, RECEIVE))) {
                if let Kind::Semaphore(value) = &mut at.kind {
                    *value -= 1;
                }
                return Ok(Outcome::Done(()));
            }
            let Some(execution) = execution else {
                return Err(Errno::Empty);
            };
            if self.refused(&result) {
                return Err(Errno::Allowance);
            }
            self.model
                .block(tenant, execution, capability, RECEIVE, 1)?;
            Ok(Outcome::Blocked)
        });
        assert_eq!(result, expected);
        if let Some((object, side)) = turn {
            self.model.settle(object, side);
        }
    }

    fn send(&mut self, tenant: usize, execution: Option<usize>, selector: Selector, a: u8, b: u8) {
        let id = self.model.tenants[tenant].id;
        let bytes = vec![a; usize::from(a) / 4];
        let carried: Vec<Selector> = (0..b % 3)
            .map(|at| self.selector(tenant, b.wrapping_add(at * 7)))
            .collect();
        let result = match execution {
            Some(execution) => {
                let execution = ExecutionId(execution as u64);
                self.kernel
                    .channel_send(id, execution, selector, &bytes, &carried)
            }
            None => self
                .kernel
                .channel_try_send(id, selector, &bytes, &carried)
                .map(Outcome::Done),
        };
        let turn = execution.and_then(|execution| self.model.resume(execution));
        let class = |kind: &Kind| matches!(kind, Kind::Channel { .. });
        let expected = self.model.resolve(tenant, selector, class, Rights::WRITE);
        let expected = expected.and_then(|(object, capability)| {
            let mut capabilities = Vec::new();
            for &carried in &carried {
                capabilities.push((self.grantable(tenant, carried)?, true));
            }
            let message = Message {
                bytes,
                capabilities,
            };
            let need = footprint(&message);
            let at = &mut self.model.objects[object];
            let admits = at.admits(SEND, need, turn == Some((object, SEND)));
            let Kind::Channel { capacity, messages } = &mut at.kind else {
                unreachable!()
            };
            if need > *capacity {
                return Err(Errno::TooLarge);
            }
            if let Err(refused @ (Errno::Budget | Errno::Memory)) = result {
                // The owner cannot pay for the parcel.
                assert!(!message.capabilities.is_empty());
                return Err(refused);
            }
            if admits {
                messages.push_back(message);
                self.model.settle(object, RECEIVE);
                return Ok(Outcome::Done(()));
            }
            let Some(execution) = execution else {
                return Err(Errno::Full);
            };
            if self.refused(&result) {
                return Err(Errno::Allowance);
            }
            self.model
                .block(tenant, execution, capability, SEND, need)?;
            Ok(Outcome::Blocked)
        });
        assert_eq!(result, expected);
        if let Some((object, side)) = turn {
            self.model.settle(object, side);
        }
    }

    fn receive(&mut self, tenant: usize, execution: Option<usize>, selector: Selector, a: u8) {
        let id = self.model.tenants[tenant].id;
        let mut bytes = vec![0; usize::from(a)];
        let mut selectors = [Selector::OWN; 2];
        let result = match execution {
            Some(execution) => {
                let execution = ExecutionId(execution as u64);
                self.kernel
                    .channel_receive(id, execution, selector, &mut bytes, &mut selectors)
            }
            None => self
                .kernel
                .channel_try_receive(id, selector, &mut bytes, &mut selectors)
                .map(Outcome::Done),
        };
        let turn = execution.and_then(|execution| self.model.resume(execution));
        let class = |kind: &Kind| matches!(kind, Kind::Channel { .. });
        let resolved = self.model.resolve(tenant, selector, class, Rights::READ);
        match resolved {
            Err(errno) => assert_eq!(result, Err(errno)),
            Ok((object, capability)) => {
                let at = &mut self.model.objects[object];
                let admits = at.admits(RECEIVE, 1, turn == Some((object, RECEIVE)));
                let Kind::Channel { messages, .. } = &mut at.kind else {
                    unreachable!()
                };
                let first = if admits { messages.front() } else { None };
                match (first, execution) {
                    (Some(first), _) if first.bytes.len() > bytes.len() => {
                        assert_eq!(result, Err(Errno::TooLarge));
                    }
                    (Some(first), _) => match result {
                        Err(Errno::Budget | Errno::Memory) => {
                            assert!(!first.capabilities.is_empty());
                        }
                        _ => {
                            let first = messages.pop_front().expect("there");
                            let Ok(Outcome::Done(received)) = result else {
                                panic!("{result:?} with a message there")
                            };
                            assert_eq!(received.length as usize, first.bytes.len());
                            assert_eq!(bytes[..first.bytes.len()], first.bytes);
                            assert_eq!(received.capabilities as usize, first.capabilities.len());
                            for (&made, (parent, valid)) in selectors.iter().zip(first.capabilities)
                            {
                                let Capability { object, rights, .. } =
                                    self.model.capabilities[parent];
                                let number =
                                    self.model.hold(tenant, made, object, rights, Some(parent));
                                self.model.capabilities[number].valid = valid;
                            }
                            self.model.settle(object, SEND);
                        }
                    },
                    (None, None) => assert_eq!(result, Err(Errno::Empty)),
                    (None, Some(execution)) => {
                        let expected = match self.refused(&result) {
                            true => Err(Errno::Allowance),
                            false => self.model.block(tenant, execution, capability, RECEIVE, 1),
                        };
                        assert_eq!(result, expected.map(|()| Outcome::Blocked));
                    }
                }
            }
        }
        if let Some((object, side)) = turn {
            self.model.settle(object, side);
        }
    }

    fn end(&mut self, tenant: usize) {
        if self.model.ends_a_waiter_with_its_allowance(tenant) {
            return;
        }
        self.check_wakes();
        let mut stopped = Vec::new();
        let id = self.model.tenants[tenant].id;
        self.kernel
            .end(id, &mut |id: ExecutionId| stopped.push(id.0))
            .expect("alive");
        let executions = self.model.executions.iter();
        let mut expected: Vec<u64> = executions
            .filter(|of| self.model.ends_with(*of.1, tenant))
            .map(|of| *of.0 as u64)
            .collect();
        stopped.sort_unstable();
        expected.sort_unstable();
        assert_eq!(stopped, expected, "stopped once each");
        self.model.end(tenant);
        // The kernel chooses the order in which links are severed, but not the woken executions.
        // Executions of ended tenants are never reported.
        self.model
            .wakes
            .retain(|wake| self.model.executions.contains_key(&(wake.0 as usize)));
        let mut expected: Vec<_> = self.model.wakes.drain(..).collect();
        let mut woken: Vec<_> = core::iter::from_fn(|| self.kernel.next_wake())
            .map(|wake| (wake.0.0, wake.1))
            .collect();
        expected.sort_by_key(|wake| wake.0);
        woken.sort_by_key(|wake| wake.0);
        assert_eq!(woken, expected);
        if self
            .model
            .tenants
            .iter()
            .filter(|tenant| tenant.alive)
            .count()
            < 3
        {
            self.admit(40_000);
        }
    }

    /// Whether a wait was refused because the object's owner cannot pay for the link's memory.
    fn refused<T>(&self, result: &Result<Outcome<T>, Errno>) -> bool {
        self.tight && matches!(result, Err(Errno::Allowance))
    }

    fn check_wakes(&mut self) {
        while let Some((execution, wake)) = self.kernel.next_wake() {
            assert_eq!(self.model.wakes.pop_front(), Some((execution.0, wake)));
        }
        assert!(
            self.model.wakes.is_empty(),
            "not woken: {:?}",
            self.model.wakes
        );
    }

    fn check(&mut self) {
        self.check_wakes();
        for number in 0..self.model.tenants.len() {
            let tenant = &self.model.tenants[number];
            let Ok(statement) = self.kernel.statement(tenant.id) else {
                assert!(!tenant.alive, "a tenant has vanished");
                continue;
            };
            assert!(tenant.alive, "an ended tenant can be reached");
            let sum = statement.charged.0 + statement.carved.0 + statement.left.0;
            assert_eq!(sum, statement.budget.0, "charged beyond the budget");
            let row = |name| {
                statement
                    .rows
                    .iter()
                    .find(|row| row.name == name)
                    .map_or(0, |row| row.count)
            };
            let (unused, entries) = self.model.links_charged(number);
            assert_eq!(row("granted link"), unused);
            assert_eq!(row("scrub entry"), entries);
        }
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(any::<Op>(), 1..300)
}

proptest! {
    #![proptest_config(Config { cases: 256, ..Config::default() })]

    #[test]
    fn the_kernel_does_what_the_model_does(ops in ops()) {
        let mut run = Run::new(Mode::Grouped, 10_000_000);
        ops.into_iter().for_each(|op| run.apply(op));
    }

    #[test]
    fn the_kernel_does_what_the_model_does_when_budgets_are_tight(ops in ops()) {
        let mut run = Run::new(Mode::Grouped, 45);
        ops.into_iter().for_each(|op| run.apply(op));
    }

    #[test]
    fn the_baseline_does_what_the_model_does(ops in ops()) {
        let mut run = Run::new(Mode::Individual, 10_000_000);
        ops.into_iter().for_each(|op| run.apply(op));
    }
}
