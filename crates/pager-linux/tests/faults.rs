//! Every system call fails once, at every place, and every kind of call permanently from every
//! place on. Only the tenant that it was made for may be refused something. No other tenant loses a
//! byte, nothing is allocated twice, and everything is given back.

mod common;

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Addresses, BYTES, MemoryStore};
use leasehold_door::Call;
use leasehold_door::faults::{Plan, arm, disarm, pass};
use leasehold_pager::{AreaId, Contract, Ending, PageNumber, ReservationId, Sharing};
use leasehold_pager_linux::{
    Answer, Error, Handlers, Limits, Locking, Options, Paging, Store, SwapFile,
};

/// A plan is the whole process's, and so is one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const FRAMES: u32 = 160;
const PLACES: u32 = 512;
const ERRNOS: [i32; 4] = [libc::ENOMEM, libc::EMFILE, libc::ENOSPC, libc::EIO];
/// Kinds of calls that a tenant's life makes; the others belong to opening.
const MADE_BY_A_TENANT: u32 = 15;
const LIMITS: Limits = Limits {
    mappings: 60,
    places: 120,
};

fn file(pages: u32) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    for page in 0..pages {
        let words = [u64::from(page) + 77; BYTES / 8];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all(&bytes).expect("room");
    }
    file
}

/// A store in memory whose calls fail like those of a swap file, and take less time.
struct Counted(MemoryStore);

impl Store for Counted {
    fn pages(&self) -> u32 {
        self.0.pages()
    }

    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        pass(Call::ReadSwap)?;
        self.0.read_at(offset, into)
    }

    fn write_at(&mut self, offset: u64, from: &[u8]) -> io::Result<usize> {
        pass(Call::WriteSwap)?;
        self.0.write_at(offset, from)
    }
}

fn options(directory: &tempfile::TempDir) -> Result<Options, String> {
    let path = directory.path().join("swap");
    let swap = SwapFile::create(&path, PLACES).map_err(|error| error.to_string())?;
    Ok(Options {
        store: Some(Box::new(swap)),
        ..settings()
    })
}

fn settings() -> Options {
    Options {
        locking: Locking::IfAllowed,
        ahead: 2,
        handlers: Handlers {
            on_denied: |_| Answer::Substitute,
            ..Handlers::default()
        },
        ..Options::new(FRAMES)
    }
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(".").expect("a directory")
}

/// A tenant that goes on throughout, with something of everything.
struct Neighbour {
    id: ReservationId,
    memory: Addresses,
    image: Addresses,
    region: Addresses,
    data: Addresses,
    areas: Shared,
}

/// What it shares.
#[derive(Clone, Copy)]
struct Shared {
    image: AreaId,
    region: AreaId,
    data: AreaId,
}

const MEMORY: u32 = 24;
const IMAGE: u32 = 10;
const REGION: u32 = 4;
const DATA: u32 = 5;

impl Neighbour {
    fn settle(paging: &Paging, space: &Space) -> Self {
        let id = paging
            .reserve_limited(&Contract::hard(30), LIMITS)
            .expect("room");
        let [memory, image, region, data] = space.neighbour.clone();
        let area = paging
            .create_area_for(id, MEMORY, Sharing::Conserve)
            .expect("an area");
        memory.attach(paging, id, area);
        for page in 0..MEMORY {
            memory.fill(page, u64::from(page));
        }
        let areas = Shared {
            image: paging
                .create_image(file(IMAGE), Sharing::Conserve)
                .expect("an area"),
            region: paging
                .create_resident_area(REGION, Sharing::Conserve)
                .expect("an area"),
            data: paging
                .create_image(file(DATA), Sharing::Conserve)
                .expect("an area"),
        };
        let copies = paging
            .create_area_for(id, IMAGE, Sharing::Conserve)
            .expect("an area");
        image.attach_copied(paging, id, areas.image, copies);
        image.store(3, 1_003);
        let kept = region.attach(paging, id, areas.region);
        while paging.pin_step(kept, 3).expect("frames") == Ending::More {}
        for page in 0..REGION {
            region.fill(page, 500 + u64::from(page));
        }
        // SAFETY: the addresses are this test's.
        unsafe { paging.attach_read_only(id, areas.data, data.start()) }.expect("attached");
        assert_eq!(data.load(1), 78);
        Neighbour {
            id,
            memory,
            image,
            region,
            data,
            areas,
        }
    }

    /// It has lost nothing, and can go on.
    fn is_whole(&self, paging: &Paging, wrote: bool) {
        for page in 0..MEMORY {
            assert!(self.memory.holds(page, u64::from(page)), "page {page}");
        }
        for page in 0..IMAGE {
            let expected = if page == 3 {
                1_003
            } else {
                u64::from(page) + 77
            };
            assert_eq!(self.image.load(page), expected, "page {page} of the image");
        }
        for page in 0..REGION {
            let seed = 500 + u64::from(page);
            // The other one may have written to the first page.
            let holds = self.region.holds(page, seed);
            assert!(holds || (page == 0 && wrote), "page {page} of the region");
        }
        for page in 0..DATA {
            assert_eq!(
                self.data.load(page),
                u64::from(page) + 77,
                "page {page} of the data"
            );
        }
        assert!(paging.take_denied().is_none());
        let account = paging.account(self.id).expect("there");
        assert!(account.balances(), "{account:?}");
    }
}

/// Addresses, which are the same ones in every round.
struct Space {
    neighbour: [Addresses; 4],
    memory: Addresses,
    second: Addresses,
    image: Addresses,
    region: Addresses,
    data: Addresses,
    kept: Addresses,
}

impl Space {
    fn reserve() -> Self {
        Space {
            neighbour: [MEMORY, IMAGE, REGION, DATA].map(Addresses::reserve),
            memory: Addresses::reserve(40),
            second: Addresses::reserve(8),
            image: Addresses::reserve(IMAGE),
            region: Addresses::reserve(REGION),
            data: Addresses::reserve(DATA),
            kept: Addresses::reserve(3),
        }
    }

    fn own(&self) -> [&Addresses; 6] {
        [
            &self.memory,
            &self.second,
            &self.image,
            &self.region,
            &self.data,
            &self.kept,
        ]
    }
}

/// How the tenant concerned accesses its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    /// As guests do.
    Direct,
    /// Through the host, which asks before.
    Asked,
}

/// It was denied something, or refused.
#[derive(Debug)]
struct Stopped;

impl From<Error> for Stopped {
    fn from(_: Error) -> Self {
        Stopped
    }
}

struct Tenant<'a> {
    paging: &'a Paging,
    space: &'a Space,
    access: Access,
}

impl Tenant<'_> {
    fn fill(&self, memory: &Addresses, page: u32, seed: u64) -> Result<(), Stopped> {
        if self.access == Access::Asked {
            self.ask(memory, page, true)?;
        }
        memory.fill(page, seed);
        self.paging.take_denied().map_or(Ok(()), |_| Err(Stopped))
    }

    fn holds(&self, memory: &Addresses, page: u32, seed: u64) -> Result<(), Stopped> {
        if self.access == Access::Asked {
            self.ask(memory, page, false)?;
        }
        let holds = memory.holds(page, seed);
        self.paging.take_denied().map_or(Ok(()), |_| Err(Stopped))?;
        // Pages that were not denied hold what was written.
        assert!(holds, "page {page} is not what was written");
        Ok(())
    }

    fn reads(&self, memory: &Addresses, page: u32, word: u64) -> Result<(), Stopped> {
        if self.access == Access::Asked {
            self.ask(memory, page, false)?;
        }
        let found = memory.load(page);
        self.paging.take_denied().map_or(Ok(()), |_| Err(Stopped))?;
        assert_eq!(found, word, "page {page}");
        Ok(())
    }

    fn ask(&self, memory: &Addresses, page: u32, write: bool) -> Result<(), Stopped> {
        let start = memory.start().wrapping_add(page as usize * BYTES);
        let mapped = self.paging.touch(start, BYTES, write);
        if mapped.is_ok_and(|mapped| mapped == BYTES) {
            Ok(())
        } else {
            Err(Stopped)
        }
    }

    /// Makes every kind of call.
    fn live(&self, id: ReservationId, shared: Shared, wrote: &mut bool) -> Result<(), Stopped> {
        let (paging, space) = (self.paging, self.space);
        let area = paging.create_area_for(id, 40, Sharing::Conserve)?;
        // SAFETY: here and below, the addresses are this test's.
        let at = unsafe { paging.attach_at(id, area, space.memory.start(), 20) }?;
        for page in 0..20 {
            self.fill(&space.memory, page, 100 + u64::from(page))?;
        }
        paging.grow(at, 24)?;
        for page in (20..24).chain(0..3) {
            self.fill(&space.memory, page, 100 + u64::from(page))?;
        }
        assert_eq!(paging.trim(at)?, 16);
        // Written out, read again, and then written to: writes to clean pages trap.
        for page in 3..9 {
            self.holds(&space.memory, page, 100 + u64::from(page))?;
            self.fill(&space.memory, page, 100 + u64::from(page))?;
        }
        let second = paging.create_area_for(id, 8, Sharing::Conserve)?;
        // SAFETY: the addresses are this test's.
        let second = unsafe { paging.attach_at(id, second, space.second.start(), 8) }?;
        paging.prefault(second, PageNumber::FIRST, 4)?;
        self.fill(&space.second, 6, 9)?;

        let copies = paging.create_area_for(id, IMAGE, Sharing::Conserve)?;
        // SAFETY: the addresses are this test's.
        let image = unsafe { paging.attach_copied(id, shared.image, copies, space.image.start()) };
        let image = match image {
            Ok(image) => image,
            Err(error) => {
                // As the cell does it.
                let _ = paging.discard_area(copies);
                return Err(error.into());
            }
        };
        for page in 0..IMAGE {
            self.reads(&space.image, page, u64::from(page) + 77)?;
        }
        for page in (0..IMAGE).step_by(2) {
            self.fill(&space.image, page, 300 + u64::from(page))?;
        }
        for page in 0..IMAGE {
            if page % 2 == 0 {
                self.holds(&space.image, page, 300 + u64::from(page))?;
            } else {
                self.reads(&space.image, page, u64::from(page) + 77)?;
            }
        }

        // SAFETY: the addresses are this test's.
        let region = unsafe { paging.attach_at(id, shared.region, space.region.start(), REGION) }?;
        self.holds(&space.region, 1, 501)?;
        *wrote = true;
        self.fill(&space.region, 0, 4)?;
        // SAFETY: the addresses are this test's.
        unsafe { paging.attach_read_only(id, shared.data, space.data.start()) }?;
        for page in 0..DATA {
            self.reads(&space.data, page, u64::from(page) + 77)?;
        }
        let kept = paging.create_resident_area(3, Sharing::Conserve)?;
        // SAFETY: the addresses are this test's.
        let kept = match unsafe { paging.attach_at(id, kept, space.kept.start(), 3) } {
            Ok(at) => at,
            Err(error) => {
                let _ = paging.discard_area(kept);
                return Err(error.into());
            }
        };
        while paging.pin_step(kept, 2)? == Ending::More {}
        self.fill(&space.kept, 1, 8)?;

        for page in 0..24 {
            self.holds(&space.memory, page, 100 + u64::from(page))?;
        }
        self.holds(&space.region, 0, 4)?;
        let own = paging.create_image(file(2), Sharing::Conserve)?;
        paging.discard_area(own)?;
        while paging.detach_step(region, 2)? == Ending::More {}
        while paging.detach_step(image.shared, 3)? == Ending::More {}
        while paging.detach_step(second, 3)? == Ending::More {}
        self.holds(&space.kept, 1, 8)?;
        self.holds(&space.memory, 7, 107)
    }
}

/// Lines of the memory map that show pages of areas at these addresses.
fn shown_at(addresses: &Addresses, pages: usize) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let (start, end) = (
        addresses.start() as usize,
        addresses.start() as usize + pages * BYTES,
    );
    let within = |line: &&str| {
        let range = line.split(' ').next().expect("a range");
        let (from, to) = range.split_once('-').expect("a range");
        let number = |text| usize::from_str_radix(text, 16).expect("an address");
        number(from) < end && number(to) > start
    };
    let lines = maps.lines().filter(within);
    lines
        .filter(|line| !line.contains("---p"))
        .map(str::to_owned)
        .collect()
}

/// Runs everything under a plan; returns how many calls were counted, and whether anything was
/// refused.
fn run(space: &Space, access: Access, plan: Plan) -> (u64, bool) {
    let options = Options {
        store: Some(Box::new(Counted(MemoryStore::new(PLACES)))),
        ..settings()
    };
    let paging = Paging::open(options).expect("userfaultfd");
    let unpromised = paging.unpromised();
    let neighbour = Neighbour::settle(&paging, space);
    paging.audit();

    arm(plan);
    let tenant = Tenant {
        paging: &paging,
        space,
        access,
    };
    let mut wrote = false;
    let id = paging.reserve_limited(&Contract::hard(12), LIMITS);
    let lived = match &id {
        Ok(id) => tenant.live(*id, neighbour.areas, &mut wrote),
        Err(_) => Err(Stopped),
    };
    let mut ended = id.is_err();
    let mut refused = lived.is_err();
    if let Ok(id) = id {
        for _ in 0..100 {
            // The host may have no memory now, which is no tenant's matter.
            let _ = paging.refill(4);
            match paging.end_step(id, 5) {
                Ok(Ending::Done) => {
                    ended = true;
                    break;
                }
                Ok(Ending::More) => {}
                Err(_) => refused = true,
            }
        }
    }
    let counted = disarm();
    paging.take_denied();

    neighbour.is_whole(&paging, wrote);
    if let Ok(id) = id {
        while !ended {
            ended = paging.end_step(id, 5).expect("nothing fails any more") == Ending::Done;
        }
    }
    for addresses in space.own() {
        assert_eq!(
            shown_at(addresses, addresses.pages() as usize),
            [""; 0],
            "{plan:?}"
        );
    }
    assert_eq!(paging.account(neighbour.id).expect("there").size, 30);
    assert_eq!(paging.unreserved(), FRAMES - 30, "{plan:?}");
    assert_eq!(paging.unpromised(), unpromised - LIMITS.places, "{plan:?}");

    // The next tenant has the same addresses and frames, and sees nothing of this one.
    let next = paging
        .reserve_limited(&Contract::hard(40), LIMITS)
        .expect("room");
    let area = paging
        .create_area_for(next, 40, Sharing::Conserve)
        .expect("an area");
    space.memory.attach(&paging, next, area);
    for page in 0..40 {
        assert!(
            space.memory.is_zero(page),
            "{plan:?}: page {page} of the next tenant"
        );
        space.memory.fill(page, 1);
    }
    neighbour.is_whole(&paging, wrote);
    assert!(paging.is_settled(), "{plan:?}");
    paging.audit();
    for id in [next, neighbour.id] {
        while paging.end_step(id, 50).expect("there") == Ending::More {}
    }
    assert_eq!(
        (paging.unreserved(), paging.unpromised()),
        (FRAMES, unpromised)
    );
    paging.audit();
    (counted, refused)
}

fn once(after: u64, errno: i32) -> Plan {
    Plan {
        after,
        failures: 1,
        errno,
        only: None,
    }
}

#[test]
fn any_call_may_fail_once_and_no_other_tenant_loses_anything() {
    let _alone = alone();
    let space = Space::reserve();
    for access in [Access::Direct, Access::Asked] {
        let (calls, refused) = run(&space, access, once(u64::MAX, libc::EIO));
        assert!(calls > 300 && !refused, "{calls}");
        let mut refusals = 0;
        for after in 0..calls {
            for errno in ERRNOS {
                refusals += u32::from(run(&space, access, once(after, errno)).1);
            }
        }
        println!(
            "{access:?}: {calls} calls failed in turn, each with {} errors; {refusals} of these refused something",
            ERRNOS.len()
        );
        assert!(refusals > 50);
    }
}

#[test]
fn any_kind_of_call_may_fail_for_good_and_no_other_tenant_loses_anything() {
    let _alone = alone();
    let space = Space::reserve();
    let mut kinds = 0;
    for &only in Call::ALL {
        let plan = |after| Plan {
            after,
            failures: u64::MAX,
            errno: libc::ENOMEM,
            only: Some(only),
        };
        let (calls, refused) = run(&space, Access::Direct, plan(u64::MAX));
        assert!(!refused);
        for after in 0..calls {
            run(&space, Access::Direct, plan(after));
        }
        kinds += u32::from(calls > 0);
        println!("{only:?}: failed for good from each of {calls} calls on");
    }
    assert!(kinds >= MADE_BY_A_TENANT, "{kinds}");
}

#[test]
fn all_calls_may_fail_for_a_while_and_no_other_tenant_loses_anything() {
    let _alone = alone();
    let space = Space::reserve();
    let plan = |after, failures| Plan {
        after,
        failures,
        errno: libc::ENOMEM,
        only: None,
    };
    let (calls, _) = run(&space, Access::Asked, plan(u64::MAX, 0));
    for after in 0..calls {
        for failures in [2, 7, u64::MAX] {
            run(&space, Access::Asked, plan(after, failures));
        }
    }
}

#[test]
fn opening_may_fail_at_any_call_and_leaves_nothing_behind() {
    let _alone = alone();
    let count = |path: &str| std::fs::read_dir(path).expect("proc").count();
    let mappings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
        maps.lines().count()
    };
    let open = || -> Result<(), String> {
        let directory = directory();
        let paging = Paging::open(options(&directory)?).map_err(|error| error.to_string())?;
        let id = paging
            .reserve(&Contract::hard(4))
            .map_err(|error| error.to_string())?;
        paging.end_step(id, 1).map_err(|error| error.to_string())?;
        Ok(())
    };
    open().expect("nothing fails");
    let (descriptors, mut mapped) = (count("/proc/self/fd"), mappings());
    let mut failed = 0;
    for after in 0.. {
        let mut counted = 0;
        for errno in ERRNOS {
            arm(once(after, errno));
            let opened = open();
            counted = disarm();
            failed += u32::from(opened.is_err());
            assert_eq!(
                count("/proc/self/fd"),
                descriptors,
                "after {after}: {opened:?}"
            );
            // Once it was opened, a call that fails is one of giving back.
            let now = mappings();
            assert!(
                opened.is_ok() || now <= mapped + 1,
                "after {after}: {opened:?}"
            );
            mapped = now;
        }
        if counted <= after {
            break;
        }
    }
    assert!(failed > 40, "{failed}");
}
