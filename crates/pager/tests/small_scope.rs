//! Every sequence of operations on a small node, to a depth: what random operations might miss.

use leasehold_pager::{
    AreaId, AttachmentId, Contract, Fault, MemoryBackend, PageNumber, Pager, Refused,
    ReservationId, Sharing,
};

/// The pages of an area.
const FIRST: PageNumber = PageNumber::FIRST;
const SECOND: PageNumber = PageNumber::new(1);

/// Two tenants of two frames each with a private area of two pages, and two pages that they
/// share, on a node of five frames.
#[derive(Clone)]
struct Node {
    pager: Pager<MemoryBackend>,
    tenants: [ReservationId; 2],
    private: [AttachmentId; 2],
    shared: [Option<AttachmentId>; 2],
    area: AreaId,
    /// What the pages hold: private ones by tenant, then the shared ones.
    words: [[u64; 2]; 3],
}

#[derive(Debug, Clone, Copy)]
enum Op {
    /// Writes to a private page.
    Private(usize, PageNumber),
    /// Reads a shared page.
    Read(usize, PageNumber),
    /// Writes to a shared page.
    Write(usize, PageNumber),
    /// Attaches the shared area, or detaches it.
    Toggle(usize),
    /// Locks the shared area, or unlocks it.
    Lock,
    /// Ends a tenant, and starts another in its place.
    Restart(usize),
}

fn operations() -> Vec<Op> {
    let mut all = vec![Op::Lock];
    for tenant in 0..2 {
        all.extend([Op::Toggle(tenant), Op::Restart(tenant)]);
        for page in [FIRST, SECOND] {
            let (private, read) = (Op::Private(tenant, page), Op::Read(tenant, page));
            all.extend([private, read, Op::Write(tenant, page)]);
        }
    }
    all
}

fn start(pager: &mut Pager<MemoryBackend>, frames: u32) -> (ReservationId, AttachmentId) {
    let id = pager.reserve(&Contract::hard(frames)).expect("frames");
    let area = pager.create_area(2, Sharing::Conserve).expect("an area");
    (id, pager.attach(id, area).expect("room to swap"))
}

impl Node {
    fn new(frames: u32) -> Self {
        let mut pager = Pager::new(2 * frames + 1, MemoryBackend::new(2 * frames + 1));
        let area = pager.create_area(2, Sharing::Conserve).expect("an area");
        let (first, second) = (start(&mut pager, frames), start(&mut pager, frames));
        let shared = [first.0, second.0].map(|id| pager.attach(id, area).ok());
        Node {
            pager,
            tenants: [first.0, second.0],
            private: [first.1, second.1],
            shared,
            area,
            words: [[0; 2]; 3],
        }
    }

    /// Touches a page and checks what it holds.
    fn touch(&mut self, at: AttachmentId, page: PageNumber, holds: usize, write: bool, step: u64) {
        let fault = self
            .pager
            .fault(at, page)
            .expect("a reservation has frames");
        let word = &mut self.words[holds][page.index()];
        if fault == Fault::Zero {
            assert_eq!(*word, 0);
        }
        assert_eq!(self.pager.backend_mut().load(at, page), Some(*word));
        if write {
            *word = step;
            assert!(self.pager.backend_mut().store(at, page, step));
        }
    }

    fn apply(&mut self, op: Op, step: u64, frames: u32) {
        let mapped = self.mapped();
        let mut may_lose = [false; 2];
        match op {
            Op::Private(tenant, page) => {
                self.touch(self.private[tenant], page, tenant, true, step);
                may_lose[tenant] = true;
            }
            Op::Read(tenant, page) | Op::Write(tenant, page) => {
                if let Some(at) = self.shared[tenant] {
                    self.touch(at, page, 2, matches!(op, Op::Write(..)), step);
                }
                may_lose[tenant] = true;
            }
            Op::Toggle(tenant) => {
                self.toggle(tenant);
                may_lose[tenant] = true;
            }
            Op::Lock => {
                self.lock(frames);
                // Each sharer makes room for its own copy.
                may_lose = [true; 2];
            }
            Op::Restart(tenant) => {
                self.restart(tenant, frames);
                may_lose[tenant] = true;
            }
        }
        self.pager.audit().expect("invariants");
        for (tenant, before) in mapped.into_iter().enumerate() {
            let lost = before
                .iter()
                .zip(&self.mapped()[tenant])
                .any(|(&b, &a)| b && !a);
            assert!(
                may_lose[tenant] || !lost,
                "tenant {tenant} lost a page to {op:?}"
            );
            let account = self.pager.account(self.tenants[tenant]).expect("there");
            assert_eq!(
                account.free + account.owned + account.conserved,
                frames - account.locked
            );
        }
    }

    fn mapped(&self) -> [[bool; 4]; 2] {
        [0, 1].map(|tenant| {
            let is = |at: Option<AttachmentId>, page| {
                at.is_some_and(|at| self.pager.backend().is_mapped(at, page))
            };
            let (private, shared) = (Some(self.private[tenant]), self.shared[tenant]);
            [
                is(private, FIRST),
                is(private, SECOND),
                is(shared, FIRST),
                is(shared, SECOND),
            ]
        })
    }

    fn toggle(&mut self, tenant: usize) {
        if let Some(at) = self.shared[tenant] {
            match self.pager.detach(at) {
                Ok(()) => {
                    self.shared[tenant] = None;
                    self.renew_if_gone();
                }
                Err(Refused::Frames { needed, left }) => assert!(needed > left),
                Err(other) => panic!("{other}"),
            }
        } else {
            match self.pager.attach(self.tenants[tenant], self.area) {
                Ok(at) => self.shared[tenant] = Some(at),
                Err(Refused::TooSmall { needed, size }) => assert!(needed >= size),
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// With its last attachment the area went; the next one is another.
    fn renew_if_gone(&mut self) {
        if self.shared == [None; 2] {
            let created = self.pager.create_area(2, Sharing::Conserve);
            self.area = created.expect("an area");
            self.words[2] = [0; 2];
        }
    }

    fn lock(&mut self, frames: u32) {
        let sharers = self.shared.iter().flatten().count() as u32;
        match self.pager.lock(self.area) {
            Ok(saved) => assert_eq!(saved, 2 * (sharers - 1)),
            Err(Refused::TooSmall { .. }) => assert!(frames <= 2),
            Err(Refused::Unattached) => assert_eq!(sharers, 0),
            Err(Refused::Locked) => {
                if let Err(refused) = self.pager.unlock(self.area) {
                    assert!(matches!(refused, Refused::Frames { .. }), "{refused}");
                }
            }
            Err(other) => panic!("{other}"),
        }
    }

    fn restart(&mut self, tenant: usize, frames: u32) {
        self.pager.end(self.tenants[tenant]).expect("there");
        if self.shared[tenant].take().is_some() {
            self.renew_if_gone();
        }
        (self.tenants[tenant], self.private[tenant]) = start(&mut self.pager, frames);
        self.words[tenant] = [0; 2];
    }
}

fn explore(node: &Node, frames: u32, depth: u64, visited: &mut u64) {
    *visited += 1;
    if depth == 0 {
        return;
    }
    for op in operations() {
        let mut next = node.clone();
        next.apply(op, depth, frames);
        explore(&next, frames, depth - 1, visited);
    }
}

/// From a fresh node, and from one where both tenants have everything shared mapped.
fn explore_from(frames: u32, depth: u64) {
    for warm in [
        &[][..],
        &[
            Op::Write(0, FIRST),
            Op::Read(0, SECOND),
            Op::Read(1, FIRST),
            Op::Write(1, SECOND),
        ],
    ] {
        let mut node = Node::new(frames);
        for &op in warm {
            node.apply(op, 99, frames);
        }
        let mut visited = 0;
        explore(&node, frames, depth, &mut visited);
        let operations = operations().len() as u64;
        assert_eq!(
            visited,
            (operations.pow(depth as u32 + 1) - 1) / (operations - 1)
        );
    }
}

#[test]
fn every_short_sequence_keeps_the_invariants_when_locks_do_not_fit() {
    explore_from(2, 4);
}

#[test]
fn every_short_sequence_keeps_the_invariants_with_locks() {
    explore_from(3, 4);
}
