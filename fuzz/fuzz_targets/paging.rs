//! Any sequence of faults, copies, locks and ends, with storage that fails now and then: every
//! account adds up, and pages hold what was last written.
#![no_main]

use arbitrary::Arbitrary;
use leasehold_pager::{
    AreaId, AttachmentId, Contract, Fault, MemoryBackend, PageNumber, Pager, ReservationId, Sharing,
};
use libfuzzer_sys::fuzz_target;

const FRAMES: u32 = 40;

#[derive(Debug, Arbitrary)]
enum Step {
    Reserve {
        frames: u8,
        firm: bool,
        swap: u8,
    },
    Area {
        pages: u8,
        sharing: u8,
    },
    Attach {
        reservation: u8,
        area: u8,
    },
    Detach {
        attachment: u8,
    },
    Read {
        attachment: u8,
        page: u8,
    },
    Write {
        attachment: u8,
        page: u8,
        word: u64,
    },
    Copy {
        from: u8,
        page: u8,
        to: u8,
        copy: u8,
    },
    Lock {
        area: u8,
    },
    Unlock {
        area: u8,
    },
    Observe {
        area: u8,
    },
    EndInPart {
        reservation: u8,
        limit: u8,
    },
    Fail {
        storage: bool,
    },
}

fn pick<T: Copy>(all: &[T], at: u8) -> Option<T> {
    all.get(usize::from(at) % all.len().max(1)).copied()
}

/// A page of an area, or one that it does not have.
fn number(page: u8) -> PageNumber {
    PageNumber::new(u32::from(page % 16))
}

struct Node {
    pager: Pager<MemoryBackend>,
    reservations: Vec<ReservationId>,
    areas: Vec<AreaId>,
    attachments: Vec<AttachmentId>,
}

impl Node {
    fn step(&mut self, step: Step) -> Option<()> {
        let pager = &mut self.pager;
        match step {
            Step::Reserve { frames, firm, swap } => {
                let frames = u32::from(frames % 16);
                let contract = if firm {
                    Contract::firm(frames)
                } else {
                    Contract::hard(frames)
                };
                let contract = contract.with_swap(u32::from(swap));
                self.reservations.push(pager.reserve(&contract).ok()?);
            }
            Step::Area { pages, sharing } => {
                let sharing = match sharing {
                    0..200 => Sharing::Conserve,
                    200..228 => Sharing::Plain,
                    _ => Sharing::FirstTouch,
                };
                self.areas
                    .push(pager.create_area(u32::from(pages % 16), sharing).ok()?);
            }
            Step::Attach { reservation, area } => {
                let to = pick(&self.reservations, reservation)?;
                self.attachments
                    .push(pager.attach(to, pick(&self.areas, area)?).ok()?);
            }
            Step::Detach { attachment } => {
                pager.detach(pick(&self.attachments, attachment)?).ok()?;
            }
            Step::Read { attachment, page } => {
                let (at, page) = (pick(&self.attachments, attachment)?, number(page));
                let fault = pager.fault(at, page);
                let word = pager.backend_mut().load(at, page);
                // An ending tenant may still have pages, but gets none.
                assert!(word.is_some() || fault.is_err());
                if fault == Ok(Fault::Zero) {
                    assert_eq!(word, Some(0), "another's");
                }
            }
            Step::Write {
                attachment,
                page,
                word,
            } => {
                let (at, page) = (pick(&self.attachments, attachment)?, number(page));
                pager.fault(at, page).ok()?;
                assert!(pager.backend_mut().store(at, page, word));
                assert_eq!(pager.backend_mut().load(at, page), Some(word));
            }
            Step::Copy {
                from,
                page,
                to,
                copy,
            } => {
                let (from, to) = (pick(&self.attachments, from)?, pick(&self.attachments, to)?);
                let (page, copy) = (number(page), number(copy));
                pager.copy_on_write(from, page, to, copy).ok()?;
                assert!(pager.backend().is_mapped(to, copy));
            }
            Step::Lock { area } => drop(pager.lock(pick(&self.areas, area)?).ok()?),
            Step::Unlock { area } => pager.unlock(pick(&self.areas, area)?).ok()?,
            Step::Observe { area } => drop(pager.observe(pick(&self.areas, area)?).ok()?),
            Step::EndInPart { reservation, limit } => {
                let id = pick(&self.reservations, reservation)?;
                pager.end_step(id, limit.into()).ok()?;
            }
            Step::Fail { storage } => pager.backend_mut().set_failing(storage),
        }
        Some(())
    }
}

fuzz_target!(|script: Vec<Step>| {
    let mut node = Node {
        pager: Pager::new(FRAMES, MemoryBackend::new(FRAMES)),
        reservations: Vec::new(),
        areas: Vec::new(),
        attachments: Vec::new(),
    };
    for step in script {
        // A refused step must leave the state consistent as well.
        let _ = node.step(step);
        node.pager.audit().expect("invariants");
    }
    for id in std::mem::take(&mut node.reservations) {
        let _ = node.pager.end(id);
    }
    assert_eq!(node.pager.unreserved(), FRAMES);
});
