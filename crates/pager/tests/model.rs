//! Random operations against a model that recounts everything from the mappings.
//!
//! Invariant 6: a reservation's frames never exceed its size; no tenant's paging unmaps another
//! tenant's page; `free + owned + conserved = reservation`. Pages hold what was last written.

mod common;

use std::collections::BTreeSet;

use common::{Change, Watched};
use leasehold_pager::{
    Account, AreaId, AttachmentId, Beginning, Contract, Ending, Fault, Kind, PageNumber, Pager,
    Refused, ReservationId, Sharing,
};
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::strategy::Just;
use proptest::test_runner::{Config as Cases, TestCaseResult, TestRunner};
use proptest::{prop_assert, prop_assert_eq};

const FRAMES: u32 = 24;

#[derive(Debug, Clone)]
enum Op {
    Reserve {
        frames: u32,
        firm: bool,
        swap: Option<u32>,
    },
    Promise {
        frames: u32,
        firm: bool,
    },
    ReserveStep {
        beginning: usize,
        limit: u32,
    },
    Forgo {
        beginning: usize,
    },
    EndStep {
        reservation: usize,
        limit: u32,
    },
    End {
        reservation: usize,
    },
    Create {
        pages: u32,
        sharing: Sharing,
    },
    Attach {
        reservation: usize,
        area: usize,
    },
    Detach {
        attachment: usize,
    },
    Access {
        attachment: usize,
        page: PageNumber,
        write: bool,
    },
    Ahead {
        attachment: usize,
        page: PageNumber,
    },
    Copy {
        from: usize,
        page: PageNumber,
        to: usize,
        copy: PageNumber,
    },
    Pin {
        attachment: usize,
        limit: u32,
    },
    Abandon {
        area: usize,
    },
    Lock {
        area: usize,
    },
    LockStep {
        area: usize,
        limit: u32,
    },
    Unlock {
        area: usize,
    },
    Storage {
        fails: bool,
        suspends: bool,
    },
    EndWriting {
        is_written: bool,
    },
}

fn op(sharing: impl Strategy<Value = Sharing> + 'static) -> impl Strategy<Value = Op> {
    let any_of = || any::<usize>();
    let page = || (0u32..7).prop_map(PageNumber::new);
    let swap = prop_oneof![3 => Just(None), 1 => (0u32..8).prop_map(Some)];
    prop_oneof![
        4 => (0u32..9, any::<bool>(), swap)
            .prop_map(|(frames, firm, swap)| Op::Reserve { frames, firm, swap }),
        2 => (0u32..9, any::<bool>()).prop_map(|(frames, firm)| Op::Promise { frames, firm }),
        4 => (any_of(), 1u32..400)
            .prop_map(|(beginning, limit)| Op::ReserveStep { beginning, limit }),
        1 => any_of().prop_map(|beginning| Op::Forgo { beginning }),
        1 => (any_of(), 1u32..5).prop_map(|(reservation, limit)| Op::EndStep { reservation, limit }),
        1 => any_of().prop_map(|reservation| Op::End { reservation }),
        3 => (0u32..7, sharing).prop_map(|(pages, sharing)| Op::Create { pages, sharing }),
        6 => (any_of(), any_of()).prop_map(|(reservation, area)| Op::Attach { reservation, area }),
        1 => any_of().prop_map(|attachment| Op::Detach { attachment }),
        40 => (any_of(), page(), any::<bool>())
            .prop_map(|(attachment, page, write)| Op::Access { attachment, page, write }),
        6 => (any_of(), page()).prop_map(|(attachment, page)| Op::Ahead { attachment, page }),
        6 => (any_of(), page(), any_of(), page())
            .prop_map(|(from, page, to, copy)| Op::Copy { from, page, to, copy }),
        3 => (any_of(), 0u32..5).prop_map(|(attachment, limit)| Op::Pin { attachment, limit }),
        1 => any_of().prop_map(|area| Op::Abandon { area }),
        2 => any_of().prop_map(|area| Op::Lock { area }),
        3 => (any_of(), 0u32..5).prop_map(|(area, limit)| Op::LockStep { area, limit }),
        1 => any_of().prop_map(|area| Op::Unlock { area }),
        1 => (prop_oneof![1 => Just(true), 3 => Just(false)], any::<bool>())
            .prop_map(|(fails, suspends)| Op::Storage { fails, suspends }),
        4 => any::<bool>().prop_map(|is_written| Op::EndWriting { is_written }),
    ]
}

#[derive(Debug, Clone)]
struct Tenant {
    id: ReservationId,
    contract: Contract,
    ending: bool,
    /// Frames given up for locks when it began to end.
    forgone: u32,
}

#[derive(Debug, Clone)]
struct Memory {
    id: AreaId,
    sharing: Sharing,
    /// Pages from the first on that are locked; `None` if none is to be.
    lock: Option<u32>,
    abandoned: bool,
    pages: Vec<Contents>,
}

#[derive(Debug, Clone, Default)]
struct Contents {
    word: u64,
    written: bool,
    /// Its only holder ended while storage failed, or left an abandoned area.
    endangered: bool,
    /// Its sharers in the order of mapping.
    sharers: Vec<ReservationId>,
}

#[derive(Debug, Clone, Copy)]
struct View {
    id: AttachmentId,
    tenant: ReservationId,
    area: AreaId,
    /// Pages from the first on that it keeps; `None` if it was never asked to.
    kept: Option<u32>,
}

impl Memory {
    fn locked(&self) -> usize {
        self.lock.unwrap_or(0) as usize
    }
}

impl Tenant {
    fn new(id: ReservationId, contract: Contract) -> Self {
        Tenant {
            id,
            contract,
            ending: false,
            forgone: 0,
        }
    }
}

fn contract(frames: u32, firm: bool) -> Contract {
    match firm {
        true => Contract::firm(frames),
        false => Contract::hard(frames),
    }
}

struct Model {
    pager: Pager<Watched>,
    tenants: Vec<Tenant>,
    /// Those that do not have all their frames yet.
    beginning: Vec<Tenant>,
    areas: Vec<Memory>,
    views: Vec<View>,
    fails: bool,
    /// Whether accesses wait for what is written.
    suspends: bool,
    /// Whether an area without management was ever made; its effect on reservations outlives it.
    plain: bool,
    next: u64,
}

impl Model {
    fn new() -> Self {
        Model {
            pager: Pager::new(FRAMES, Watched::new(FRAMES)),
            tenants: vec![],
            beginning: vec![],
            areas: vec![],
            views: vec![],
            fails: false,
            suspends: false,
            plain: false,
            next: 1,
        }
    }

    fn tenant(&self, id: ReservationId) -> &Tenant {
        self.tenants.iter().find(|t| t.id == id).expect("a tenant")
    }

    fn area(&self, id: AreaId) -> &Memory {
        self.areas
            .iter()
            .find(|area| area.id == id)
            .expect("an area")
    }

    fn area_mut(&mut self, id: AreaId) -> &mut Memory {
        let mut areas = self.areas.iter_mut();
        areas.find(|area| area.id == id).expect("an area")
    }

    fn sharers(&self, area: AreaId) -> Vec<ReservationId> {
        let views = self.views.iter().filter(|view| view.area == area);
        views.map(|view| view.tenant).collect()
    }

    /// Pages of areas that stay with a tenant: that it keeps, or that are locked or being locked.
    fn kept(&self, id: ReservationId) -> u32 {
        let own = self.views.iter().filter(|view| view.tenant == id);
        let kept = own.filter(|view| view.kept.is_some() || self.area(view.area).lock.is_some());
        kept.map(|view| self.area(view.area).pages.len() as u32)
            .sum()
    }

    /// Locked pages that a tenant has mapped.
    fn given_up(&self, id: ReservationId) -> u32 {
        let locked = self.areas.iter();
        let locked = locked.flat_map(|area| &area.pages[..area.locked()]);
        locked.filter(|page| page.sharers.contains(&id)).count() as u32
    }

    /// Removes pages of abandoned areas that only these tenants had.
    fn lose_abandoned(&mut self, before: &[Memory]) {
        for (area, before) in self.areas.iter_mut().zip(before) {
            for (page, before) in area.pages.iter_mut().zip(&before.pages) {
                // A page with several sharers is saved when its owner leaves (first touch), or not
                // at all.
                let left = page.sharers.is_empty() && before.sharers.len() == 1;
                page.endangered |= left && area.abandoned;
            }
        }
    }

    fn account(&self, id: ReservationId) -> Account {
        self.pager.account(id).expect("a living reservation")
    }

    /// The reservations that may lose pages when frames are needed elsewhere.
    fn borrowers(&self) -> BTreeSet<ReservationId> {
        let ids = self.tenants.iter().map(|tenant| tenant.id);
        ids.filter(|&id| self.account(id).borrowed > 0).collect()
    }

    /// Applies what the backend was told, and checks that only those in `may` lost pages.
    fn follow(&mut self, may: &BTreeSet<ReservationId>) -> TestCaseResult {
        for change in std::mem::take(&mut self.pager.backend_mut().changes) {
            let (Change::Map(at, page) | Change::Unmap(at, page)) = change;
            let view = *self
                .views
                .iter()
                .find(|view| view.id == at)
                .expect("a view");
            let area = self.area_mut(view.area);
            let managed = area.sharing == Sharing::Conserve;
            let sharers = &mut area.pages[page.index()].sharers;
            if matches!(change, Change::Map(..)) {
                prop_assert!(!sharers.contains(&view.tenant), "mapped twice");
                sharers.push(view.tenant);
            } else {
                prop_assert!(
                    may.contains(&view.tenant) || !managed,
                    "{:?} lost a page",
                    view
                );
                let before = sharers.len();
                sharers.retain(|&other| other != view.tenant);
                prop_assert_eq!(sharers.len() + 1, before, "unmapped what was not mapped");
            }
        }
        Ok(())
    }

    /// Checks that every account follows from the mappings.
    fn check(&self) -> TestCaseResult {
        self.pager.audit().expect("invariants");
        let begun = self.beginning.iter().map(|tenant| self.account(tenant.id));
        let mut held = begun.map(|account| account.free).sum::<u32>();
        for tenant in &self.tenants {
            let account = self.account(tenant.id);
            prop_assert!(account.balances(), "{:?}", account);
            prop_assert_eq!(account.size, tenant.contract.frames);
            prop_assert!(tenant.contract.kind == Kind::Firm || account.borrowed == 0);
            let forgone = if tenant.ending {
                tenant.forgone
            } else {
                self.given_up(tenant.id)
            };
            prop_assert_eq!(account.locked, forgone);
            let (mut owned, mut foreign, mut returned) = (0, 0, 0);
            let pages = self.areas.iter().flat_map(|area| {
                let unlocked = &area.pages[area.locked()..];
                unlocked.iter().map(move |page| (area, page))
            });
            for (area, page) in pages {
                match page.sharers.iter().position(|&id| id == tenant.id) {
                    Some(0) => owned += 1,
                    Some(_) if area.sharing == Sharing::Conserve => foreign += 1,
                    Some(_) if area.sharing == Sharing::Plain => returned += 1,
                    _ => {}
                }
            }
            prop_assert_eq!((account.owned, account.conserved), (owned, foreign));
            prop_assert_eq!(account.returned, returned);
            held += account.free + account.owned + account.conserved;
        }
        let locked = self.areas.iter();
        let locked = locked.flat_map(|area| &area.pages[..area.locked()]);
        held += locked.filter(|page| !page.sharers.is_empty()).count() as u32;
        prop_assert_eq!(held + self.pager.unreserved(), FRAMES);
        for view in self.views.iter().filter(|v| !self.tenant(v.tenant).ending) {
            let kept = view.kept.unwrap_or(0) as usize;
            for page in &self.area(view.area).pages[..kept] {
                prop_assert!(page.sharers.contains(&view.tenant), "lost what it keeps");
            }
        }
        Ok(())
    }

    fn apply(&mut self, op: Op) -> TestCaseResult {
        match op {
            Op::Reserve { frames, firm, swap } => self.reserve(frames, firm, swap)?,
            Op::Promise { frames, firm } => self.promise(frames, firm)?,
            Op::ReserveStep { beginning, limit } => self.reserve_step(beginning, limit)?,
            Op::Forgo { beginning } => {
                if !self.beginning.is_empty() {
                    let at = beginning % self.beginning.len();
                    let gone = self.beginning.remove(at);
                    prop_assert_eq!(self.pager.end(gone.id), Ok(()));
                }
            }
            Op::EndStep { reservation, limit } => self.end(reservation, Some(limit))?,
            Op::End { reservation } => self.end(reservation, None)?,
            Op::Create { pages, sharing } => match self.pager.create_area(pages, sharing) {
                Err(refused) => prop_assert_eq!((refused, pages), (Refused::Empty, 0)),
                Ok(id) => {
                    self.plain |= sharing == Sharing::Plain;
                    self.areas.push(Memory {
                        id,
                        sharing,
                        lock: None,
                        abandoned: false,
                        pages: vec![Contents::default(); pages as usize],
                    });
                }
            },
            Op::Attach { reservation, area } => self.attach(reservation, area)?,
            Op::Detach { attachment } => self.detach(attachment)?,
            Op::Access {
                attachment,
                page,
                write,
            } => self.access(attachment, page, write)?,
            Op::Ahead { attachment, page } => self.ahead(attachment, page)?,
            Op::Copy {
                from,
                page,
                to,
                copy,
            } => self.copy(from, page, to, copy)?,
            Op::Pin { attachment, limit } => self.pin(attachment, limit)?,
            Op::Abandon { area } => self.abandon(area)?,
            Op::Lock { area } => self.lock(area, None)?,
            Op::LockStep { area, limit } => self.lock(area, Some(limit))?,
            Op::Unlock { area } => self.unlock(area)?,
            Op::Storage { fails, suspends } => {
                (self.fails, self.suspends) = (fails, suspends);
                self.pager.backend_mut().memory.set_failing(fails);
            }
            Op::EndWriting { is_written } => {
                self.pager.backend_mut().memory.end_writing(is_written);
            }
        }
        self.check()
    }

    /// What a tenant does that can wait for storage.
    fn suspending<R>(&mut self, access: impl FnOnce(&mut Pager<Watched>) -> R) -> R {
        self.pager.backend_mut().memory.set_suspends(self.suspends);
        let result = access(&mut self.pager);
        self.pager.backend_mut().memory.set_suspends(false);
        result
    }

    /// Frames that were not promised and can be had.
    fn left(&self) -> u32 {
        let beginning = self.beginning.iter();
        let promised = beginning.map(|tenant| self.account(tenant.id).promised);
        self.pager.unreserved() + self.pager.borrowed() - promised.sum::<u32>()
    }

    fn promise(&mut self, frames: u32, firm: bool) -> TestCaseResult {
        let contract = contract(frames, firm);
        let left = self.left();
        let result = self.pager.promise(&contract);
        self.follow(&BTreeSet::new())?;
        match result {
            Ok(id) => {
                prop_assert!(frames > 0 && frames <= left);
                self.beginning.push(Tenant::new(id, contract));
            }
            Err(Refused::Empty) => prop_assert_eq!(frames, 0),
            Err(refused) => prop_assert_eq!(
                refused,
                Refused::Frames {
                    needed: frames,
                    left
                }
            ),
        }
        Ok(())
    }

    fn reserve_step(&mut self, beginning: usize, limit: u32) -> TestCaseResult {
        if self.beginning.is_empty() {
            return Ok(());
        }
        let at = beginning % self.beginning.len();
        let id = self.beginning[at].id;
        let may = self.borrowers();
        let before = self.pager.backend().memory.traffic().writes;
        let result = self.pager.reserve_step(id, limit);
        self.follow(&may)?;
        let written = self.pager.backend().memory.traffic().writes - before;
        prop_assert!(written <= 1, "more than a cluster in a step");
        match result {
            Ok(Beginning::More) => {}
            Ok(Beginning::Done) => {
                prop_assert_eq!(self.account(id).promised, 0);
                let tenant = self.beginning.remove(at);
                self.tenants.push(tenant);
            }
            Err(Refused::Store(_)) => prop_assert!(self.fails),
            Err(other) => prop_assert!(self.is_starving(other), "{}", other),
        }
        Ok(())
    }

    fn reserve(&mut self, frames: u32, firm: bool, swap: Option<u32>) -> TestCaseResult {
        let contract = contract(frames, firm);
        let contract = swap.map_or(contract, |pages| contract.with_swap(pages));
        let left = self.left();
        let may = self.borrowers();
        let result = self.pager.reserve(&contract);
        self.follow(&may)?;
        match result {
            Ok(id) => {
                prop_assert!(frames > 0 && frames <= left);
                self.tenants.push(Tenant::new(id, contract));
            }
            Err(Refused::Empty) => prop_assert_eq!(frames, 0),
            Err(Refused::Frames { needed, left: said }) if frames > left => {
                prop_assert_eq!((needed, said), (frames, left));
            }
            Err(Refused::Store(_)) => prop_assert!(self.fails),
            Err(other) => prop_assert!(self.is_starving(other), "{}", other),
        }
        Ok(())
    }

    /// Returns whether a refusal is one of the baseline only: missing frames, and frames given back
    /// for others that were taken by tenants which lost pages.
    fn is_starving(&self, refused: Refused) -> bool {
        self.plain && matches!(refused, Refused::Starved | Refused::Frames { .. })
    }

    fn attach(&mut self, tenant: usize, area: usize) -> TestCaseResult {
        if self.tenants.is_empty() || self.areas.is_empty() {
            return Ok(());
        }
        let tenant = self.tenants[tenant % self.tenants.len()].clone();
        let area = self.areas[area % self.areas.len()].clone();
        let pages = area.pages.len() as u32;
        let attached = self.views.iter().filter(|view| view.tenant == tenant.id);
        let attached: u32 = attached
            .map(|view| self.area(view.area).pages.len() as u32)
            .sum();
        let most = tenant.contract.frames.saturating_add(tenant.contract.swap);
        let unmanageable = area.sharing == Sharing::Plain && tenant.contract.kind == Kind::Firm;
        let result = self.pager.attach(tenant.id, area.id);
        if let Ok(id) = result {
            self.views.push(View {
                id,
                tenant: tenant.id,
                area: area.id,
                kept: None,
            });
        }
        self.follow(&BTreeSet::from([tenant.id]))?;
        match result {
            Ok(_) => {
                prop_assert!(!tenant.ending && attached + pages <= most);
                prop_assert!(!unmanageable);
                // What it keeps now has these pages in it.
                let fits = self.kept(tenant.id) < tenant.contract.frames;
                prop_assert!(area.lock.is_none() || fits);
            }
            Err(Refused::Stale) => {
                let sharers = self.sharers(area.id);
                let going = sharers.iter().all(|&id| self.tenant(id).ending);
                let gone = area.abandoned || (going && !sharers.is_empty());
                prop_assert!(tenant.ending || gone);
            }
            Err(Refused::Unmanaged) => prop_assert!(unmanageable),
            Err(Refused::Attached) => prop_assert!(self.sharers(area.id).contains(&tenant.id)),
            Err(Refused::Swap { needed, left }) => {
                prop_assert_eq!((needed, left), (pages, most - attached));
                prop_assert!(needed > left);
            }
            Err(Refused::TooSmall { needed, size }) => {
                prop_assert!(area.lock.is_some());
                prop_assert_eq!(
                    (needed, size),
                    (self.kept(tenant.id) + pages, tenant.contract.frames)
                );
                prop_assert!(needed >= size);
            }
            Err(Refused::Ending) => {
                let mut sharers = self.sharers(area.id).into_iter();
                prop_assert!(area.lock.is_some() && sharers.any(|id| self.tenant(id).ending));
            }
            Err(Refused::Store(_)) => prop_assert!(self.fails),
            Err(other) => prop_assert!(self.is_starving(other), "{}", other),
        }
        Ok(())
    }

    fn detach(&mut self, attachment: usize) -> TestCaseResult {
        if self.views.is_empty() {
            return Ok(());
        }
        let view = self.views[attachment % self.views.len()];
        let area = self.area(view.area).clone();
        let last = self.sharers(view.area).len() == 1;
        let mapped = area.pages.iter();
        let mapped = mapped.filter(|page| page.sharers.contains(&view.tenant));
        let mapped = mapped.count() as u32;
        let left = self.left();
        let mut may = self.borrowers();
        may.insert(view.tenant);
        if !self.tenant(view.tenant).ending {
            let mut views = self.views.iter_mut();
            let view = views.find(|other| other.id == view.id).expect("a view");
            view.kept = view.kept.map(|_| 0);
        }
        let before = self.areas.clone();
        let result = self.pager.detach(view.id);
        self.follow(&may)?;
        self.lose_abandoned(&before);
        match result {
            Ok(()) => {
                prop_assert!(!self.tenant(view.tenant).ending);
                self.forget(view);
            }
            Err(Refused::Stale) => prop_assert!(self.tenant(view.tenant).ending),
            Err(Refused::Frames { needed, .. }) if left < mapped => {
                prop_assert!(area.lock.is_some() && !last && needed <= mapped);
            }
            Err(Refused::Store(_)) => prop_assert!(self.fails),
            Err(other) => prop_assert!(self.is_starving(other), "{}", other),
        }
        Ok(())
    }

    /// Drops a view, and its area if it was the last one.
    fn forget(&mut self, view: View) {
        self.views.retain(|other| other.id != view.id);
        if self.sharers(view.area).is_empty() {
            self.areas.retain(|area| area.id != view.area);
        }
    }

    fn end(&mut self, tenant: usize, limit: Option<u32>) -> TestCaseResult {
        if self.tenants.is_empty() {
            return Ok(());
        }
        let tenant = tenant % self.tenants.len();
        let id = self.tenants[tenant].id;
        if !std::mem::replace(&mut self.tenants[tenant].ending, true) {
            self.tenants[tenant].forgone = self.given_up(id);
        }
        let before = self.areas.clone();
        let done = match limit {
            None => self.pager.end(id).map(|()| Ending::Done),
            Some(limit) => self.pager.end_step(id, limit),
        };
        self.follow(&BTreeSet::from([id]))?;
        if self.fails {
            for (area, before) in self.areas.iter_mut().zip(&before) {
                for (page, before) in area.pages.iter_mut().zip(&before.pages) {
                    let left = before.sharers.contains(&id) && !page.sharers.contains(&id);
                    page.endangered |= left && page.sharers.is_empty() && page.written;
                }
            }
        }
        self.lose_abandoned(&before);
        // Attachments go one by one.
        let attached = &self.pager.backend().attached;
        let views = self.views.iter().copied();
        let gone: Vec<View> = views.filter(|view| !attached.contains(&view.id)).collect();
        gone.into_iter().for_each(|view| self.forget(view));
        prop_assert!(done.is_ok());
        if done == Ok(Ending::Done) {
            prop_assert!(self.views.iter().all(|view| view.tenant != id));
            self.tenants.remove(tenant);
            prop_assert_eq!(self.pager.account(id), Err(Refused::Stale));
        }
        Ok(())
    }

    fn access(&mut self, attachment: usize, page: PageNumber, write: bool) -> TestCaseResult {
        if self.views.is_empty() {
            return Ok(());
        }
        let view = self.views[attachment % self.views.len()];
        let tenant = self.tenant(view.tenant).clone();
        let area = self.area(view.area).clone();
        let Some(contents) = area.pages.get(page.index()) else {
            let expected = if tenant.ending {
                Refused::Stale
            } else {
                Refused::OutOfRange
            };
            let refused = self.pager.fault(view.id, page);
            prop_assert!(refused == Err(Refused::OutOfRange) || refused == Err(expected));
            return Ok(());
        };
        let others: Vec<(ReservationId, Account)> = self
            .tenants
            .iter()
            .filter(|other| other.id != tenant.id)
            .map(|other| (other.id, self.account(other.id)))
            .collect();
        let fault = self.suspending(|pager| pager.fault(view.id, page));
        self.follow(&BTreeSet::from([tenant.id]))?;
        if self
            .areas
            .iter()
            .all(|area| area.sharing == Sharing::Conserve)
        {
            // Others' frames may be swapped for equal ones; the number they have stays.
            for (id, before) in others {
                let after = self.account(id);
                prop_assert_eq!(after.free, before.free);
                prop_assert_eq!(
                    after.owned + after.conserved,
                    before.owned + before.conserved
                );
            }
        }
        match fault {
            Ok(Fault::Present) => prop_assert!(contents.sharers.contains(&tenant.id)),
            Ok(Fault::Minor) => prop_assert!(!contents.sharers.is_empty()),
            Ok(Fault::Zero) => prop_assert!(contents.sharers.is_empty() && !contents.written),
            Ok(Fault::Major) => prop_assert!(contents.sharers.is_empty() && contents.written),
            Err(Refused::Stale) => prop_assert!(tenant.ending),
            Err(Refused::Store(_)) => prop_assert!(self.fails),
            Err(Refused::Writing) => prop_assert!(self.suspends),
            Err(Refused::Lost) => prop_assert!(contents.endangered),
            Err(other) => prop_assert!(self.is_starving(other), "{}", other),
        }
        if fault.is_err() {
            return Ok(());
        }
        let word = self.pager.backend_mut().memory.load(view.id, page);
        prop_assert_eq!(word, Some(contents.word));
        if write {
            self.next += 1;
            let word = self.next;
            prop_assert!(self.pager.backend_mut().memory.store(view.id, page, word));
            let contents = &mut self.area_mut(view.area).pages[page.index()];
            (contents.word, contents.written) = (word, true);
        }
        Ok(())
    }

    fn ahead(&mut self, attachment: usize, page: PageNumber) -> TestCaseResult {
        if self.views.is_empty() {
            return Ok(());
        }
        let view = self.views[attachment % self.views.len()];
        let area = self.area(view.area).clone();
        let before = (self.account(view.tenant), self.pager.unreserved());
        let written = self.pager.backend().memory.traffic();
        let mapped = self.pager.map_ahead(view.id, page);
        // Not even its own pages go for it.
        self.follow(&BTreeSet::new())?;
        let after = (self.account(view.tenant), self.pager.unreserved());
        let now = self.pager.backend().memory.traffic();
        prop_assert_eq!((written.reads, written.writes), (now.reads, now.writes));
        prop_assert_eq!(before.1, after.1);
        let contents = area.pages.get(page.index());
        let may = contents.is_some_and(|contents| {
            let resident = !contents.sharers.is_empty();
            let unseen = !contents.sharers.contains(&view.tenant);
            let shareable = resident && area.sharing == Sharing::Conserve;
            let fresh = !resident && !contents.written && !contents.endangered;
            unseen && page.index() >= area.locked() && (shareable || fresh)
        });
        let living = !self.tenant(view.tenant).ending;
        // A page of zeros may have been saved, which the model does not know of.
        prop_assert!(!mapped || (may && living && before.0.free > 0));
        prop_assert_eq!(after.0.free, before.0.free - u32::from(mapped));
        if let Some(contents) = contents.filter(|_| mapped) {
            let word = self.pager.backend_mut().memory.load(view.id, page);
            prop_assert_eq!(word, Some(contents.word));
        }
        Ok(())
    }

    fn copy(
        &mut self,
        from: usize,
        page: PageNumber,
        to: usize,
        copy: PageNumber,
    ) -> TestCaseResult {
        if self.views.is_empty() {
            return Ok(());
        }
        let from = self.views[from % self.views.len()];
        // Mostly of the same tenant.
        let own: Vec<View> = self
            .views
            .iter()
            .copied()
            .filter(|view| view.tenant == from.tenant || to.is_multiple_of(8))
            .collect();
        let to = own[to % own.len()];
        let ending = self.tenant(from.tenant).ending;
        let source = self.area(from.area).pages.get(page.index()).cloned();
        let target = self.area(to.area).pages.get(copy.index()).cloned();
        let fault = self.suspending(|pager| pager.copy_on_write(from.id, page, to.id, copy));
        self.follow(&BTreeSet::from([to.tenant]))?;
        let (Some(source), Some(target)) = (source, target) else {
            prop_assert!(fault == Err(Refused::OutOfRange) || fault == Err(Refused::Foreign));
            return Ok(());
        };
        let untouched = target.sharers.is_empty() && !target.written;
        match fault {
            Err(Refused::Foreign) => prop_assert!(from.tenant != to.tenant),
            Err(Refused::Stale) => prop_assert!(ending),
            Err(Refused::Store(_)) => prop_assert!(self.fails),
            Err(Refused::Writing) => prop_assert!(self.suspends),
            Err(Refused::Lost) => prop_assert!(source.endangered || target.endangered),
            Err(Refused::Locked) => {
                prop_assert!(copy.index() < self.area(to.area).locked());
            }
            Err(other) => prop_assert!(self.is_starving(other), "{}", other),
            Ok(fault) => {
                if untouched {
                    prop_assert!(fault != Fault::Present);
                    let page = &mut self.area_mut(to.area).pages[copy.index()];
                    (page.word, page.written) = (source.word, fault != Fault::Zero);
                    prop_assert!(fault != Fault::Zero || source.word == 0);
                }
                let word = self.area(to.area).pages[copy.index()].word;
                let held = self.pager.backend_mut().memory.load(to.id, copy);
                prop_assert_eq!(held, Some(word));
            }
        }
        Ok(())
    }

    fn pin(&mut self, attachment: usize, limit: u32) -> TestCaseResult {
        if self.views.is_empty() {
            return Ok(());
        }
        let at = attachment % self.views.len();
        let view = self.views[at];
        let (tenant, area) = (
            self.tenant(view.tenant).clone(),
            self.area(view.area).clone(),
        );
        let pages = area.pages.len() as u32;
        let stays = self.kept(tenant.id);
        let result = self.pager.pin_step(view.id, limit);
        self.follow(&BTreeSet::from([tenant.id]))?;
        let refused = matches!(
            result,
            Err(Refused::Locked | Refused::Unmanaged | Refused::Stale | Refused::TooSmall { .. })
        );
        if !refused {
            let mapped = area
                .pages
                .len()
                .min((view.kept.unwrap_or(0) + limit) as usize);
            let now = self.area(view.area).pages[..mapped].iter();
            let kept = now
                .take_while(|page| page.sharers.contains(&tenant.id))
                .count() as u32;
            self.views[at].kept = Some(kept.max(view.kept.unwrap_or(0)));
        }
        match result {
            Ok(ending) => {
                let kept = self.views[at].kept.unwrap_or(0);
                prop_assert_eq!(kept, pages.min(view.kept.unwrap_or(0) + limit));
                prop_assert_eq!(ending == Ending::Done, kept == pages);
                prop_assert!(view.kept.is_some() || stays + pages < tenant.contract.frames);
            }
            Err(Refused::Locked) => prop_assert!(area.lock.is_some()),
            Err(Refused::Unmanaged) => prop_assert!(area.sharing != Sharing::Conserve),
            Err(Refused::TooSmall { needed, size }) => {
                prop_assert_eq!((needed, size), (stays + pages, tenant.contract.frames));
                prop_assert!(needed >= size && view.kept.is_none());
            }
            Err(Refused::Stale) => prop_assert!(tenant.ending),
            Err(Refused::Store(_)) => prop_assert!(self.fails),
            Err(Refused::Lost) => prop_assert!(area.pages.iter().any(|page| page.endangered)),
            Err(other) => prop_assert!(self.is_starving(other), "{}", other),
        }
        Ok(())
    }

    fn abandon(&mut self, area: usize) -> TestCaseResult {
        if self.areas.is_empty() {
            return Ok(());
        }
        let at = area % self.areas.len();
        prop_assert_eq!(self.pager.abandon(self.areas[at].id), Ok(()));
        self.areas[at].abandoned = true;
        self.follow(&BTreeSet::new())
    }

    /// All of an area, or the next pages of it.
    fn lock(&mut self, area: usize, limit: Option<u32>) -> TestCaseResult {
        if self.areas.is_empty() {
            return Ok(());
        }
        let area = self.areas[area % self.areas.len()].clone();
        let (pages, sharers) = (area.pages.len() as u32, self.sharers(area.id));
        let ending = sharers.iter().any(|&id| self.tenant(id).ending);
        let is_small = |tenant: &Tenant| self.kept(tenant.id) + pages >= tenant.contract.frames;
        let mut all = sharers.iter().map(|&id| self.tenant(id));
        let small = area.lock.is_none() && all.any(is_small);
        let mut views = self.views.iter();
        let kept = views.any(|view| view.area == area.id && view.kept.is_some());
        let result = match limit {
            None => {
                let locked = self.pager.lock(area.id);
                locked.map(|saved| (Ending::Done, Some(saved)))
            }
            Some(limit) => {
                let done = self.pager.lock_step(area.id, limit);
                done.map(|done| (done, None))
            }
        };
        let locked = self.pager.locked(area.id).expect("there");
        self.area_mut(area.id).lock = match result {
            Ok(_) => Some(locked),
            // It is cancelled if it can be.
            Err(Refused::Store(_) | Refused::Lost | Refused::Starved) => {
                let begun = limit.is_some() || locked > 0;
                area.lock.or(begun.then_some(0)).map(|_| locked)
            }
            Err(_) => area.lock,
        };
        let mut may: BTreeSet<ReservationId> = sharers.iter().copied().collect();
        may.extend(self.borrowers());
        self.follow(&may)?;
        match result {
            Ok((done, saved)) => {
                let begun = area.lock.unwrap_or(0);
                let expected = limit.map_or(pages, |limit| pages.min(begun + limit));
                prop_assert_eq!(locked, expected);
                prop_assert_eq!(done == Ending::Done, locked == pages);
                prop_assert!(begun < pages && !small && !ending && !sharers.is_empty());
                prop_assert!(!kept || area.lock.is_some());
                let copies = (sharers.len() as u32 - 1) * (locked - begun);
                prop_assert_eq!(saved.unwrap_or(copies), copies);
            }
            Err(Refused::Locked) => prop_assert_eq!(area.lock, Some(pages)),
            Err(Refused::Unmanaged) => prop_assert!(area.sharing != Sharing::Conserve),
            Err(Refused::Unattached) => prop_assert!(sharers.is_empty()),
            Err(Refused::Ending) => prop_assert!(ending),
            Err(Refused::Kept) => prop_assert!(kept),
            Err(Refused::TooSmall { .. }) => prop_assert!(small),
            Err(Refused::Store(_)) => prop_assert!(self.fails),
            Err(Refused::Lost) => prop_assert!(area.pages.iter().any(|page| page.endangered)),
            Err(other) => prop_assert!(self.is_starving(other), "{}", other),
        }
        Ok(())
    }

    fn unlock(&mut self, area: usize) -> TestCaseResult {
        if self.areas.is_empty() {
            return Ok(());
        }
        let area = self.areas[area % self.areas.len()].clone();
        let sharers = self.sharers(area.id);
        let locked = area.pages[..area.locked()].iter();
        let copies = locked.map(|page| page.sharers.len().saturating_sub(1) as u32);
        let copies: u32 = copies.sum();
        let left = self.left();
        let result = {
            let may = self.borrowers();
            let result = self.pager.unlock(area.id);
            self.follow(&may)?;
            result
        };
        match result {
            Ok(()) => {
                prop_assert!(area.lock.is_some() && copies <= left);
                self.area_mut(area.id).lock = None;
            }
            Err(Refused::NotLocked) => prop_assert!(area.lock.is_none()),
            Err(Refused::Ending) => {
                prop_assert!(sharers.iter().any(|&id| self.tenant(id).ending));
            }
            Err(Refused::Frames { needed, left: said }) if copies > left => {
                prop_assert_eq!((needed, said), (copies, left));
            }
            Err(Refused::Store(_)) => prop_assert!(self.fails),
            Err(other) => prop_assert!(self.is_starving(other), "{}", other),
        }
        Ok(())
    }
}

fn run(cases: u32, sharing: impl Strategy<Value = Sharing> + Clone + 'static) {
    let cases = Cases {
        cases,
        failure_persistence: None,
        ..Cases::default()
    };
    let script = proptest::collection::vec(op(sharing), 0..250);
    let result = TestRunner::new(cases).run(&script, |script| {
        let mut model = Model::new();
        script.into_iter().try_for_each(|op| model.apply(op))
    });
    if let Err(failed) = result {
        panic!("{failed}");
    }
}

#[test]
fn managed_reservations_do_what_the_model_does() {
    run(1_000, Just(Sharing::Conserve));
}

#[test]
fn baselines_beside_managed_areas_do_what_the_model_does() {
    let sharing = [Sharing::Conserve, Sharing::Plain, Sharing::FirstTouch];
    run(1_000, proptest::sample::select(sharing.to_vec()));
}
