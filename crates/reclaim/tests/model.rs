//! Random operations against a simple, slow model.
//!
//! Invariant 1: charges never exceed the budget, and a refused request changes nothing.
//! Invariant 3: nothing of an ended group can be reached, and memory reads zero to its next user.

use std::collections::BTreeMap;

use leasehold_reclaim::{
    Class, Config, CostModel, Extent, GroupId, Groups, Handle, HeapBacking, LinkId, Mode, Nanos,
    Progress, Reclaim, Refused, Resource, Statement,
};
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::{Config as Cases, TestCaseResult, TestRunner};
use proptest::{prop_assert, prop_assert_eq, strategy::Just};

type Cell = Groups<HeapBacking, u32>;

const PS: [u64; 2] = [700, 40_000];
const RESOURCE_PS: u64 = 90_000;

#[derive(Debug, Clone)]
enum Op {
    OpenRoot { budget: u16 },
    OpenChild { group: usize, budget: u16 },
    Alloc { group: usize, wide: bool },
    Free { object: usize },
    Bytes { group: usize, len: usize },
    FreeBytes { extent: usize },
    Charge { group: usize, n: u8 },
    Refund { group: usize, n: u8 },
    Link { group: usize },
    Unlink { link: usize },
    Reclaim { group: usize },
    Begin { group: usize },
    Step { reclaim: usize, limit: u8 },
    Clean { pages: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    let group = || any::<usize>();
    prop_oneof![
        2 => (2_000u16..).prop_map(|budget| Op::OpenRoot { budget }),
        4 => (group(), 0u16..8_000).prop_map(|(group, budget)| Op::OpenChild { group, budget }),
        16 => (group(), any::<bool>()).prop_map(|(group, wide)| Op::Alloc { group, wide }),
        8 => group().prop_map(|object| Op::Free { object }),
        6 => (group(), prop_oneof![0usize..200, 0usize..30_000, Just(1 << 17)])
            .prop_map(|(group, len)| Op::Bytes { group, len }),
        4 => group().prop_map(|extent| Op::FreeBytes { extent }),
        4 => (group(), any::<u8>()).prop_map(|(group, n)| Op::Charge { group, n }),
        3 => (group(), any::<u8>()).prop_map(|(group, n)| Op::Refund { group, n }),
        8 => group().prop_map(|group| Op::Link { group }),
        5 => group().prop_map(|link| Op::Unlink { link }),
        2 => group().prop_map(|group| Op::Reclaim { group }),
        2 => group().prop_map(|group| Op::Begin { group }),
        8 => (group(), 1u8..6).prop_map(|(reclaim, limit)| Op::Step { reclaim, limit }),
        2 => any::<u8>().prop_map(|pages| Op::Clean { pages }),
    ]
}

/// A group as the model sees it.
#[derive(Debug, Clone, Default)]
struct Account {
    parent: Option<GroupId>,
    /// Picoseconds.
    budget: u64,
    /// Fixed cost, children's fixed costs, resources and links: known exactly.
    exact: u64,
    resources: u64,
    /// Objects of each class in use, and the most that ever were.
    used: [u64; 2],
    most: [u64; 2],
    /// Charges for chunks, extents and scrub memory, and what ended children left: observed,
    /// and checked for plausibility when observed.
    observed: u64,
    carved: u64,
}

impl Account {
    fn charged(&self) -> u64 {
        let slots: u64 = self.most.iter().zip(PS).map(|(&most, ps)| most * ps).sum();
        self.exact + slots + self.observed
    }

    fn left(&self) -> u64 {
        self.budget - self.charged() - self.carved
    }
}

struct Model {
    cell: Cell,
    costs: CostModel,
    mode: Mode,
    narrow: Class<u64>,
    wide: Class<[u64; 9]>,
    resource: Resource,
    accounts: BTreeMap<GroupId, Account>,
    narrows: Vec<(Handle<u64>, u64)>,
    wides: Vec<(Handle<[u64; 9]>, u64)>,
    extents: Vec<(Extent, usize, u8)>,
    links: BTreeMap<u32, (LinkId, GroupId)>,
    /// What is gone for good: each must stay so.
    dead: Vec<GroupId>,
    dead_narrows: Vec<Handle<u64>>,
    dead_wides: Vec<Handle<[u64; 9]>>,
    dead_extents: Vec<Extent>,
    dead_links: Vec<LinkId>,
    /// Reclamations in progress: the group, its parent, and the groups below it.
    ending: Vec<(Reclaim, GroupId, Option<GroupId>, Account)>,
    /// Groups below children that are ending: they go stale one after another.
    unmarked: BTreeMap<GroupId, GroupId>,
    /// Links of groups that are ending: each is severed once.
    limbo: BTreeMap<u32, GroupId>,
    next: u64,
}

impl Model {
    fn new(mode: Mode, keep_resident: usize, costs: CostModel) -> Self {
        let config = Config {
            arena_bytes: 1 << 20,
            keep_resident,
            mode,
            max_groups: 24,
        };
        let mut cell = Cell::new(config, costs, HeapBacking);
        let narrow = cell.register("narrow", PS[0]);
        let wide = cell.register("wide", PS[1]);
        let resource = cell.register_resource("resource", RESOURCE_PS);
        Model {
            cell,
            costs,
            mode,
            narrow,
            wide,
            resource,
            accounts: BTreeMap::new(),
            narrows: vec![],
            wides: vec![],
            extents: vec![],
            links: BTreeMap::new(),
            dead: vec![],
            dead_narrows: vec![],
            dead_wides: vec![],
            dead_extents: vec![],
            dead_links: vec![],
            ending: vec![],
            unmarked: BTreeMap::new(),
            limbo: BTreeMap::new(),
            next: 1,
        }
    }

    fn group(&self, pick: usize) -> Option<GroupId> {
        let count = self.accounts.len();
        (count > 0).then(|| *self.accounts.keys().nth(pick % count).expect("in range"))
    }

    fn statements(&self) -> Vec<Option<Statement>> {
        self.accounts
            .keys()
            .map(|&group| self.cell.statement(group))
            .collect()
    }

    /// Checks that a refusal changed nothing, and states correct values.
    fn refused(
        &self,
        group: Option<GroupId>,
        refused: Refused,
        before: &[Option<Statement>],
    ) -> TestCaseResult {
        prop_assert_eq!(before, &self.statements()[..]);
        if let (Refused::Budget { needed, left }, Some(group)) = (refused, group) {
            prop_assert!(needed > left);
            prop_assert_eq!(left.0, self.accounts[&group].left());
        }
        Ok(())
    }

    /// Books what the group was charged beyond what the model knows.
    fn observe(&mut self, group: GroupId) -> Result<u64, proptest::test_runner::TestCaseError> {
        let charged = self.cell.statement(group).expect("alive").charged.0;
        let account = self.accounts.get_mut(&group).expect("known");
        prop_assert!(charged >= account.charged(), "something was not charged");
        let more = charged - account.charged();
        account.observed += more;
        Ok(more)
    }

    fn is_below(&self, group: GroupId, top: GroupId) -> bool {
        let mut at = Some(group);
        while let Some(group) = at {
            if group == top {
                return true;
            }
            at = self.accounts.get(&group).and_then(|account| account.parent);
        }
        false
    }

    /// Takes a group and all below it out of the model.
    fn begin(&mut self, top: GroupId) -> (Option<GroupId>, Account) {
        let tree: Vec<GroupId> = self
            .accounts
            .keys()
            .copied()
            .filter(|&group| self.is_below(group, top))
            .collect();
        let account = self.accounts[&top].clone();
        for group in &tree {
            self.accounts.remove(group);
            if account.parent.is_some() && *group != top {
                self.unmarked.insert(*group, top);
            }
        }
        let gone = |group: GroupId| tree.contains(&group);
        self.dead_narrows.extend(
            self.narrows
                .extract_if(.., |(h, _)| gone(h.raw().group()))
                .map(|(h, _)| h),
        );
        self.dead_wides.extend(
            self.wides
                .extract_if(.., |(h, _)| gone(h.raw().group()))
                .map(|(h, _)| h),
        );
        self.dead_extents.extend(
            self.extents
                .extract_if(.., |(e, ..)| gone(e.group()))
                .map(|(e, ..)| e),
        );
        for (link, (id, group)) in core::mem::take(&mut self.links) {
            if gone(group) {
                self.limbo.insert(link, top);
                self.dead_links.push(id);
            } else {
                self.links.insert(link, (id, group));
            }
        }
        (account.parent, account)
    }

    /// Settles a reclamation that is done.
    fn end(&mut self, top: GroupId, parent: Option<GroupId>, ended: &Account) -> TestCaseResult {
        self.dead.push(top);
        self.dead.extend(
            self.unmarked
                .extract_if(.., |_, at| *at == top)
                .map(|(group, _)| group),
        );
        if let Some(account) = parent.and_then(|parent| self.accounts.get_mut(&parent)) {
            account.carved -= ended.budget;
            account.exact -= self.costs.group_ps;
            let left = self.observe(parent.expect("alive"))?;
            prop_assert!(left <= ended.budget, "more was left behind than was carved");
        }
        Ok(())
    }

    fn step(&mut self, at: usize, limit: u32) -> TestCaseResult {
        let (mut reclaim, top, parent, account) = self.ending.swap_remove(at);
        let mut severed = vec![];
        let sever = &mut |_: &mut Cell, link: u32| severed.push(link);
        let before = reclaim.outcome();
        let progress = reclaim.step(&mut self.cell, sever, limit);
        let after = reclaim.outcome();
        prop_assert!(after.steps - before.steps <= u64::from(limit));
        prop_assert_eq!(after.scrubbed - before.scrubbed, severed.len() as u64);
        for link in severed {
            prop_assert!(
                self.limbo.remove(&link).is_some(),
                "severed twice, or in use"
            );
        }
        if progress == Progress::Working {
            self.ending.push((reclaim, top, parent, account));
        } else {
            if progress == Progress::Reusable {
                // `clean_step` does the rest.
                drop(reclaim);
            }
            self.end(top, parent, &account)?;
        }
        Ok(())
    }

    fn apply(&mut self, op: Op) -> TestCaseResult {
        let before = self.statements();
        match op {
            Op::OpenRoot { budget } => match self.cell.open_root(Nanos(u64::from(budget))) {
                Ok(group) => {
                    let (budget, exact) = (u64::from(budget) * 1_000, self.costs.root_ps);
                    self.accounts.insert(
                        group,
                        Account {
                            budget,
                            exact,
                            ..Account::default()
                        },
                    );
                }
                Err(refused) => {
                    prop_assert_eq!(refused, Refused::TooManyGroups);
                    self.refused(None, refused, &before)?;
                }
            },
            Op::OpenChild { group, budget } => {
                let Some(parent) = self.group(group) else {
                    return Ok(());
                };
                let ps = u64::from(budget) * 1_000;
                let fits = ps + self.costs.group_ps <= self.accounts[&parent].left();
                match self.cell.open_child(parent, Nanos(u64::from(budget))) {
                    Ok(child) => {
                        prop_assert!(fits);
                        let account = self.accounts.get_mut(&parent).expect("known");
                        account.exact += self.costs.group_ps;
                        account.carved += ps;
                        let parent = Some(parent);
                        self.accounts.insert(
                            child,
                            Account {
                                parent,
                                budget: ps,
                                ..Account::default()
                            },
                        );
                        prop_assert_eq!(self.cell.parent_of(child), parent);
                    }
                    Err(refused) => {
                        prop_assert!(!fits || refused == Refused::TooManyGroups);
                        self.refused(Some(parent), refused, &before)?;
                    }
                }
            }
            Op::Alloc { group, wide } => {
                let Some(group) = self.group(group) else {
                    return Ok(());
                };
                let value = self.next;
                self.next += 1;
                let made = if wide {
                    let made = self.cell.alloc(group, self.wide, [value; 9]);
                    made.map(|handle| self.wides.push((handle, value)))
                } else {
                    let made = self.cell.alloc(group, self.narrow, value);
                    made.map(|handle| self.narrows.push((handle, value)))
                };
                let account = self.accounts.get_mut(&group).expect("known");
                let class = usize::from(wide);
                let recycled = account.used[class] < account.most[class];
                match made {
                    Ok(()) => {
                        account.used[class] += 1;
                        if self.mode == Mode::Grouped {
                            account.most[class] = account.most[class].max(account.used[class]);
                        }
                        let chunk = self.observe(group)?;
                        prop_assert!(chunk == 0 || (chunk == self.costs.chunk_ps && !recycled));
                    }
                    Err(refused) => {
                        prop_assert!(!recycled, "refused although paid for");
                        self.refused(Some(group), refused, &before)?;
                    }
                }
            }
            Op::Free { object } => {
                let count = self.narrows.len() + self.wides.len();
                if count == 0 {
                    return Ok(());
                }
                let at = object % count;
                let (group, class) = if at < self.narrows.len() {
                    let (handle, value) = self.narrows.swap_remove(at);
                    prop_assert_eq!(self.cell.free(handle), Some(value));
                    self.dead_narrows.push(handle);
                    (handle.raw().group(), 0)
                } else {
                    let (handle, value) = self.wides.swap_remove(at - self.narrows.len());
                    prop_assert_eq!(self.cell.free(handle), Some([value; 9]));
                    self.dead_wides.push(handle);
                    (handle.raw().group(), 1)
                };
                self.accounts.get_mut(&group).expect("known").used[class] -= 1;
            }
            Op::Bytes { group, len } => {
                let Some(group) = self.group(group) else {
                    return Ok(());
                };
                match self.cell.alloc_bytes(group, len) {
                    Ok(extent) => {
                        let bytes = self.cell.bytes_mut(extent).expect("just made");
                        prop_assert_eq!(bytes.len(), len);
                        prop_assert!(bytes.iter().all(|&byte| byte == 0), "not zero");
                        let fill = self.next as u8 | 1;
                        self.next += 1;
                        bytes.fill(fill);
                        self.extents.push((extent, len, fill));
                        self.observe(group)?;
                    }
                    Err(refused) => self.refused(Some(group), refused, &before)?,
                }
            }
            Op::FreeBytes { extent } => {
                if !self.extents.is_empty() {
                    let at = extent % self.extents.len();
                    let (extent, ..) = self.extents.swap_remove(at);
                    prop_assert!(self.cell.free_bytes(extent));
                    self.dead_extents.push(extent);
                }
            }
            Op::Charge { group, n } => {
                let Some(group) = self.group(group) else {
                    return Ok(());
                };
                let fits = u64::from(n) * RESOURCE_PS <= self.accounts[&group].left();
                match self.cell.charge(group, self.resource, u64::from(n)) {
                    Ok(()) => {
                        prop_assert!(fits);
                        let account = self.accounts.get_mut(&group).expect("known");
                        account.resources += u64::from(n);
                        account.exact += u64::from(n) * RESOURCE_PS;
                    }
                    Err(refused) => {
                        prop_assert!(!fits);
                        self.refused(Some(group), refused, &before)?;
                    }
                }
            }
            Op::Refund { group, n } => {
                let Some(group) = self.group(group) else {
                    return Ok(());
                };
                self.cell.refund(group, self.resource, u64::from(n));
                let account = self.accounts.get_mut(&group).expect("known");
                let n = u64::from(n).min(account.resources);
                account.resources -= n;
                account.exact -= n * RESOURCE_PS;
            }
            Op::Link { group } => {
                let Some(group) = self.group(group) else {
                    return Ok(());
                };
                let link = self.next as u32;
                self.next += 1;
                match self.cell.link(group, link) {
                    Ok(id) => {
                        self.links.insert(link, (id, group));
                        let account = self.accounts.get_mut(&group).expect("known");
                        account.exact += self.costs.scrub_ps;
                        self.observe(group)?;
                    }
                    Err(refused) => self.refused(Some(group), refused, &before)?,
                }
            }
            Op::Unlink { link } => {
                let count = self.links.len();
                if count > 0 {
                    let link = *self.links.keys().nth(link % count).expect("in range");
                    let (id, group) = self.links.remove(&link).expect("there");
                    prop_assert_eq!(self.cell.unlink(id), Some(link));
                    let account = self.accounts.get_mut(&group).expect("known");
                    account.exact -= self.costs.scrub_ps;
                    self.dead_links.push(id);
                }
            }
            Op::Reclaim { group } | Op::Begin { group } => {
                let Some(group) = self.group(group) else {
                    return Ok(());
                };
                let reclaim = self.cell.begin_reclaim(group).expect("alive");
                prop_assert!(self.cell.begin_reclaim(group).is_none());
                let (parent, account) = self.begin(group);
                self.ending.push((reclaim, group, parent, account));
                if matches!(op, Op::Reclaim { .. }) {
                    let count = self.ending.len();
                    while self.ending.len() == count {
                        self.step(count - 1, u32::MAX)?;
                    }
                    prop_assert!(!self.limbo.values().any(|&top| top == group), "not severed");
                }
            }
            Op::Step { reclaim, limit } => {
                if !self.ending.is_empty() {
                    self.step(reclaim % self.ending.len(), u32::from(limit))?;
                }
            }
            Op::Clean { pages } => {
                self.cell.clean_step(usize::from(pages));
            }
        }
        self.check()
    }

    /// What ending a group is predicted to cost is what the groups of its tree are charged, none
    /// left out, and not what the budgets of those below still allow.
    fn check_prediction(&self, group: GroupId, statement: &Statement) -> TestCaseResult {
        let predicted = statement.predicted().0;
        prop_assert!(predicted <= statement.charged.0 + statement.carved.0);
        let children = self.accounts.iter();
        let children = children.filter(|(_, account)| account.parent == Some(group));
        let below: u64 = children
            .filter_map(|(&child, _)| Some(self.cell.statement(child)?.predicted().0))
            .sum();
        // Ending groups still exist, but are no longer accounts.
        if self.ending.is_empty() {
            prop_assert_eq!(predicted, statement.charged.0 + below);
        } else {
            prop_assert!(predicted >= statement.charged.0 + below);
        }
        Ok(())
    }

    fn check(&self) -> TestCaseResult {
        for (&group, account) in &self.accounts {
            prop_assert!(self.cell.is_alive(group));
            let statement = self.cell.statement(group).expect("alive");
            prop_assert_eq!(statement.left.0, account.left());
            prop_assert_eq!(statement.carved.0, account.carved);
            let sum = statement.charged.0 + statement.carved.0 + statement.left.0;
            prop_assert_eq!(sum, statement.budget.0);
            prop_assert_eq!(statement.budget.0, account.budget);
            self.check_prediction(group, &statement)?;
        }
        for &(handle, value) in &self.narrows {
            prop_assert_eq!(self.cell.get(handle), Some(&value));
            prop_assert_eq!(self.cell.group_of(handle.raw()), Some(handle.raw().group()));
        }
        for &(handle, value) in &self.wides {
            prop_assert_eq!(self.cell.get(handle), Some(&[value; 9]));
        }
        for &(extent, len, fill) in &self.extents {
            let bytes = self.cell.bytes(extent).expect("there");
            prop_assert!(bytes.len() == len && bytes.iter().all(|&byte| byte == fill));
        }
        for &handle in &self.dead_narrows {
            prop_assert!(self.is_ending(handle.raw().group()) || self.cell.get(handle).is_none());
        }
        for &handle in &self.dead_wides {
            prop_assert!(self.is_ending(handle.raw().group()) || self.cell.get(handle).is_none());
        }
        for &extent in &self.dead_extents {
            prop_assert!(self.is_ending(extent.group()) || self.cell.bytes(extent).is_none());
        }
        for &group in &self.dead {
            prop_assert!(!self.cell.is_alive(group) && self.cell.statement(group).is_none());
        }
        Ok(())
    }

    /// Returns whether the group may still be waiting for its mark.
    fn is_ending(&self, group: GroupId) -> bool {
        self.unmarked.contains_key(&group)
    }

    /// Ends everything, and checks that nothing is left.
    fn finish(mut self) -> TestCaseResult {
        let roots: Vec<GroupId> = self
            .accounts
            .iter()
            .filter(|(_, account)| account.parent.is_none())
            .map(|(&group, _)| group)
            .collect();
        for group in roots {
            let reclaim = self.cell.begin_reclaim(group).expect("alive");
            let (parent, account) = self.begin(group);
            self.ending.push((reclaim, group, parent, account));
        }
        while let Some(last) = self.ending.len().checked_sub(1) {
            self.step(last, 3)?;
        }
        prop_assert!(self.limbo.is_empty(), "not severed: {:?}", self.limbo);
        self.check()?;
        for id in core::mem::take(&mut self.dead_links) {
            prop_assert_eq!(self.cell.unlink(id), None);
        }
        while self.cell.clean_step(7) > 0 {}
        // All records are free again.
        let root = self.cell.open_root(Nanos(1 << 40)).expect("room");
        for _ in 1..24 {
            self.cell.open_child(root, Nanos(1)).expect("room");
        }
        Ok(())
    }
}

/// Runs `cases` random sequences of up to `most` operations.
fn run(mode: Mode, keep_resident: usize, chunk_ps: u64, page_ps: u64) {
    let (cases, most) = if cfg!(miri) { (2, 40) } else { (256, 300) };
    let costs = CostModel {
        root_ps: 500_000,
        group_ps: 60_000,
        scrub_ps: 30_000,
        chunk_ps,
        page_ps,
    };
    let cases = Cases {
        cases,
        failure_persistence: None,
        ..Cases::default()
    };
    TestRunner::new(cases)
        .run(&proptest::collection::vec(op(), 1..most), |ops| {
            let mut model = Model::new(mode, keep_resident, costs);
            for op in ops {
                model.apply(op)?;
            }
            model.finish()
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn arenas_kept_resident_behave_like_the_model() {
    run(Mode::Grouped, 1 << 20, 20_000, 80_000);
}

#[test]
fn switched_arenas_behave_like_the_model() {
    run(Mode::Grouped, 0, 20_000, 80_000);
}

#[test]
fn without_charges_for_memory_nothing_but_objects_and_links_is_charged() {
    run(Mode::Grouped, 1 << 16, 0, 0);
}

#[test]
fn one_by_one_reclamation_behaves_like_the_model() {
    run(Mode::Individual, 0, 20_000, 80_000);
}
