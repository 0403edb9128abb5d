//! The same operations on this backend and on the one in memory: the same decisions, and pages
//! that hold the same.

mod common;

use common::{Addresses, Fails, MemoryStore};
use leasehold_pager::{
    AreaId, AttachmentId, Contract, Ending, MemoryBackend, PageNumber, Pager, Refused,
    ReservationId, Sharing,
};
use leasehold_pager_linux::{Error, Locking, Options, Paging};
use proptest::prelude::{Strategy, any, prop, prop_oneof};
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use proptest::{prop_assert, prop_assert_eq};

const FRAMES: u32 = 24;
const PAGES: u32 = 7;

#[derive(Debug, Clone)]
enum Op {
    Reserve { frames: u32, firm: bool },
    End { tenant: usize, limit: u32 },
    Create { pages: u32 },
    Attach { tenant: usize, area: usize },
    Detach { view: usize },
    Touch { view: usize, page: u32, write: bool },
    Pin { view: usize, limit: u32 },
    Abandon { area: usize },
    Lock { area: usize },
    LockStep { area: usize, limit: u32 },
    Unlock { area: usize },
    Storage { fails: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let any_of = || any::<usize>();
    prop_oneof![
        4 => (1u32..9, any::<bool>()).prop_map(|(frames, firm)| Op::Reserve { frames, firm }),
        1 => (any_of(), 1u32..9).prop_map(|(tenant, limit)| Op::End { tenant, limit }),
        4 => (1..=PAGES).prop_map(|pages| Op::Create { pages }),
        7 => (any_of(), any_of()).prop_map(|(tenant, area)| Op::Attach { tenant, area }),
        1 => any_of().prop_map(|view| Op::Detach { view }),
        60 => (any_of(), 0..PAGES, any::<bool>())
            .prop_map(|(view, page, write)| Op::Touch { view, page, write }),
        3 => (any_of(), 1..=PAGES).prop_map(|(view, limit)| Op::Pin { view, limit }),
        1 => any_of().prop_map(|area| Op::Abandon { area }),
        2 => any_of().prop_map(|area| Op::Lock { area }),
        2 => (any_of(), 1..=PAGES).prop_map(|(area, limit)| Op::LockStep { area, limit }),
        1 => any_of().prop_map(|area| Op::Unlock { area }),
        1 => prop_oneof![1 => any::<bool>(), 3 => proptest::strategy::Just(false)]
            .prop_map(|fails| Op::Storage { fails }),
    ]
}

/// One attachment, here and there.
struct View {
    real: AttachmentId,
    model: AttachmentId,
    tenant: usize,
    area: usize,
    memory: Addresses,
}

struct Tenant {
    real: ReservationId,
    model: ReservationId,
    ending: bool,
}

struct Both {
    real: Paging,
    store: MemoryStore,
    model: Pager<MemoryBackend>,
    tenants: Vec<Option<Tenant>>,
    areas: Vec<(AreaId, AreaId, u32)>,
    views: Vec<View>,
    next: u64,
}

fn same<T, U>(real: &Result<T, Error>, model: &Result<U, Refused>) -> TestCaseResult {
    match (real, model) {
        (Ok(_), Ok(_)) => {}
        (Err(Error::Refused(real)), Err(model)) => prop_assert_eq!(real, model),
        (real, model) => prop_assert!(
            false,
            "{:?} and {:?}",
            real.as_ref().err(),
            model.as_ref().err()
        ),
    }
    Ok(())
}

impl Both {
    fn new() -> Self {
        let store = MemoryStore::new(4096);
        let real = Paging::open(Options {
            store: Some(Box::new(store.clone())),
            ahead: 0,
            locking: Locking::Never,
            ..Options::new(FRAMES)
        });
        Both {
            real: real.expect("a kernel with userfaultfd"),
            store,
            model: Pager::new(FRAMES, MemoryBackend::new(FRAMES)),
            tenants: vec![],
            areas: vec![],
            views: vec![],
            next: 0,
        }
    }

    fn apply(&mut self, op: &Op) -> TestCaseResult {
        match *op {
            Op::Reserve { frames, firm } => {
                let contract = if firm {
                    Contract::firm(frames)
                } else {
                    Contract::hard(frames)
                };
                let real = self.real.reserve(&contract);
                let model = self.model.reserve(&contract);
                same(&real, &model)?;
                if let (Ok(real), Ok(model)) = (real, model) {
                    let ending = false;
                    self.tenants.push(Some(Tenant {
                        real,
                        model,
                        ending,
                    }));
                }
            }
            Op::Create { pages } => {
                let real = self.real.create_area(pages, Sharing::Conserve);
                let model = self.model.create_area(pages, Sharing::Conserve);
                self.areas
                    .push((real.expect("places"), model.expect("pages"), pages));
            }
            Op::Attach { tenant, area } => self.attach(tenant, area)?,
            Op::Detach { view } if !self.views.is_empty() => {
                let at = view % self.views.len();
                let view = &self.views[at];
                let real = self.real.detach(view.real);
                same(&real, &self.model.detach(view.model))?;
                if real.is_ok() {
                    self.views.remove(at);
                }
            }
            Op::Touch { view, page, write } if !self.views.is_empty() => {
                self.touch(view % self.views.len(), page, write)?;
            }
            Op::End { tenant, limit } if !self.tenants.is_empty() => self.end(tenant, limit)?,
            Op::Pin { view, limit } if !self.views.is_empty() => {
                let view = &self.views[view % self.views.len()];
                let real = self.real.pin_step(view.real, limit);
                same(&real, &self.model.pin_step(view.model, limit))?;
            }
            Op::Abandon { area } if !self.areas.is_empty() => {
                let (real, model, _) = self.areas[area % self.areas.len()];
                same(&self.real.abandon(real), &self.model.abandon(model))?;
            }
            Op::Lock { area } if !self.areas.is_empty() => {
                let (real, model, _) = self.areas[area % self.areas.len()];
                same(&self.real.lock(real), &self.model.lock(model))?;
            }
            Op::LockStep { area, limit } if !self.areas.is_empty() => {
                let (real, model, _) = self.areas[area % self.areas.len()];
                let real = self.real.lock_step(real, limit);
                same(&real, &self.model.lock_step(model, limit))?;
            }
            Op::Unlock { area } if !self.areas.is_empty() => {
                let (real, model, _) = self.areas[area % self.areas.len()];
                same(&self.real.unlock(real), &self.model.unlock(model))?;
            }
            Op::Storage { fails } => {
                self.store
                    .set(if fails { Fails::Device } else { Fails::Not });
                self.model.backend_mut().set_failing(fails);
            }
            _ => {}
        }
        self.compare()
    }

    fn attach(&mut self, tenant: usize, area: usize) -> TestCaseResult {
        if self.tenants.is_empty() || self.areas.is_empty() {
            return Ok(());
        }
        let (tenant, area) = (tenant % self.tenants.len(), area % self.areas.len());
        let Some(Tenant { real, model, .. }) = &self.tenants[tenant] else {
            return Ok(());
        };
        let memory = Addresses::reserve(self.areas[area].2);
        let got = memory.try_attach(&self.real, *real, self.areas[area].0);
        let expected = self.model.attach(*model, self.areas[area].1);
        same(&got, &expected)?;
        if let (Ok(real), Ok(model)) = (got, expected) {
            self.views.push(View {
                real,
                model,
                tenant,
                area,
                memory,
            });
        }
        Ok(())
    }

    fn touch(&mut self, at: usize, page: u32, write: bool) -> TestCaseResult {
        let view = &self.views[at];
        let ending = self.tenants[view.tenant].as_ref().is_none_or(|t| t.ending);
        if ending || page >= self.areas[view.area].2 {
            return Ok(());
        }
        let number = PageNumber::new(page);
        let model = self.model.fault(view.model, number);
        let start = view.memory.start().wrapping_add(page as usize * 4096);
        // An access that is refused would be a signal.
        match (self.real.touch(start, 1, write), model) {
            (Ok(bytes), Ok(_)) => prop_assert_eq!(bytes, 1),
            (Err(denied), Err(refused)) => {
                prop_assert_eq!(denied.reason, refused.into());
                return Ok(());
            }
            (real, model) => prop_assert!(false, "{:?} and {:?}", real, model),
        }
        let backend = self.model.backend_mut();
        let held = backend.load(view.model, number);
        prop_assert_eq!(Some(view.memory.load(page)), held);
        if write {
            self.next += 1;
            view.memory.store(page, self.next);
            prop_assert!(backend.store(view.model, number, self.next));
        }
        Ok(())
    }

    /// To the end: here the addresses go first, there the pages.
    fn end(&mut self, tenant: usize, limit: u32) -> TestCaseResult {
        let tenant = tenant % self.tenants.len();
        let Some(Tenant { real, model, .. }) = self.tenants[tenant].take() else {
            return Ok(());
        };
        while self.real.end_step(real, limit).expect("there") == Ending::More {}
        self.model.end(model).expect("there");
        self.views.retain(|view| view.tenant != tenant);
        prop_assert!(self.real.end_step(real, limit).is_err());
        Ok(())
    }

    fn compare(&mut self) -> TestCaseResult {
        self.real.audit();
        prop_assert_eq!(self.real.unreserved(), self.model.unreserved());
        for tenant in self.tenants.iter().flatten() {
            prop_assert_eq!(
                self.real.account(tenant.real),
                self.model.account(tenant.model)
            );
            prop_assert_eq!(
                self.real.counts(tenant.real),
                self.model.counts(tenant.model)
            );
        }
        Ok(())
    }
}

#[test]
fn both_backends_make_the_policy_decide_alike_and_keep_the_same_pages() {
    let mut runner = TestRunner::new(Config {
        cases: 150,
        ..Config::default()
    });
    runner
        .run(&prop::collection::vec(op(), 0..150), |ops| {
            let mut both = Both::new();
            ops.iter().try_for_each(|op| both.apply(op))
        })
        .expect("the same");
}
