//! Areas that several tenants have attached: images of programs, and data sets.
//!
//! Tenants share pages only with tenants whose lease has the same [`shared`](SharedPages) value, so
//! that no tenant's choice changes another's guarantee. An area exists as long as a tenant has it;
//! while it is being removed, a new tenant gets a new area.
//!
//! A lock makes the whole area resident (SPC §IV-B), and a tenant joins it by mapping all of it.
//! The joining tenant does this work, in steps between which it can be preempted ([`Joining`]).

use super::areas::{Content, Key, SharedArea};
use super::attaching::Attaching;
use super::parts::{Part, Prepared};
use super::state::{CellMemory, with};
use leasehold_lease::{Memory as MemoryLease, SharedPages};
use leasehold_pager::{
    AreaId, AttachmentId, Ending, PageNumber, Refused, ReservationId, Sharing, Technique,
};
use leasehold_pager_linux::{AT_ONCE, Error, Paging};
use leasehold_reclaim::GroupId;
use leasehold_wasm::image::Image;

/// Pages that are read and locked, or mapped, between two checks for preemption.
const STEP: u32 = 16;

/// The use of a shared area, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedUse {
    /// The program whose initial memory it is, or the data set, as its first sharer calls it.
    pub name: String,
    /// How its sharers keep it.
    pub technique: SharedPages,
    /// All of its pages are in memory, for good.
    pub locked: bool,
    /// Its pages, all of which a lock would take: `Max(S)`.
    pub pages: u32,
    /// Tenants that have it.
    pub sharers: u32,
    /// The most pages that one of them was seen to use.
    pub peak: u32,
    /// Pages that they use on average, added up: `n·Avg(S)`.
    pub total_average: u64,
    /// Looks that this was seen by.
    pub samples: u64,
    /// The technique that takes fewer frames, by the rule `Max(S) < n·Avg(S)` (SPC §IV-C).
    pub choice: Option<Technique>,
}

/// What a tenant shares, while it is locked or joins a lock, if it is to.
#[derive(Debug)]
pub(crate) struct Joining {
    /// `None` for an area that no other tenant can share.
    key: Option<Key>,
    area: AreaId,
    attachment: AttachmentId,
    /// The page of a locked area to map next.
    next: PageNumber,
    /// Whether the tenant wants a lock if there is none.
    to_lock: bool,
}

impl Joining {
    /// The area in the tenant's memory.
    pub(super) fn attachment(&self) -> AttachmentId {
        self.attachment
    }
}

/// Attaches an area to a reservation.
type Attach<'a> = dyn Fn(Attaching<'_>, ReservationId, AreaId) -> Result<AttachmentId, Error> + 'a;

/// How an area is made, and attached.
pub(super) struct Source<'a> {
    pub(super) content: Content,
    pub(super) name: &'a str,
    pub(super) pages: u32,
    pub(super) make: &'a dyn Fn(&Paging) -> Result<AreaId, Error>,
    pub(super) attach: &'a Attach<'a>,
}

impl CellMemory {
    /// Attaches an area to a tenant: the one that others have, if its lease lets it share.
    ///
    /// # Errors
    /// Those of attaching, and of making the area.
    pub(super) fn join(&mut self, root: GroupId, source: &Source<'_>) -> Result<Joining, Error> {
        let tenancy = self.tenancies.get(&root).ok_or(Refused::Stale)?;
        let (reservation, sharing) = (tenancy.reservation, tenancy.sharing);
        if sharing == SharedPages::Lock {
            // Before anything has changed.
            let mine = self.paging.account(reservation)?;
            fits_locked(mine.size, mine.kept, source.pages)?;
        }
        let joining = match sharing {
            SharedPages::None => self.make_area(reservation, None, source),
            _ => self.join_as(reservation, (source.content, sharing), source),
        }?;
        if let Some(tenancy) = self.tenancies.get_mut(&root) {
            tenancy.shared.push((joining.area, joining.attachment));
        }
        if joining.to_lock && sharing == SharedPages::Lock {
            // From now on its pages are among those that stay: nothing that the tenant keeps later makes the lock
            // fail, which would deny the area to others. If a sharer is ending, that is tried again.
            let _ = self.paging.lock_step(joining.area, 0);
        }
        Ok(joining)
    }

    fn join_as(
        &mut self,
        reservation: ReservationId,
        key: Key,
        source: &Source<'_>,
    ) -> Result<Joining, Error> {
        let Some(shared) = self.shared.0.get(&key) else {
            return self.make_area(reservation, Some(key), source);
        };
        let (area, locked) = (shared.area, shared.locked);
        let to_lock = !locked
            && match key.1 {
                SharedPages::Lock => true,
                SharedPages::Auto => self.is_better_locked(area, shared.pages),
                SharedPages::None | SharedPages::Conserve => false,
            };
        match (source.attach)(self.attaching(), reservation, area) {
            Ok(attachment) => Ok(Joining {
                key: Some(key),
                area,
                attachment,
                next: PageNumber::FIRST,
                to_lock,
            }),
            // It is being removed, or cannot be joined until a sharer has gone.
            Err(Error::Refused(Refused::Stale | Refused::Ending)) => {
                self.make_area(reservation, Some(key), source)
            }
            // Too small for a lock that the rule chose without it.
            Err(Error::Refused(Refused::TooSmall { .. })) if key.1 == SharedPages::Auto => {
                self.join_as(reservation, (key.0, SharedPages::Conserve), source)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes an area of which the tenant is the first sharer.
    fn make_area(
        &mut self,
        reservation: ReservationId,
        key: Option<Key>,
        source: &Source<'_>,
    ) -> Result<Joining, Error> {
        let area = (source.make)(&self.paging)?;
        let attachment = match (source.attach)(self.attaching(), reservation, area) {
            Ok(attachment) => attachment,
            Err(error) => {
                // It has no attachment, so that this cannot fail.
                let _ = self.paging.discard_area(area);
                return Err(error);
            }
        };
        if let Some(key) = key {
            let (paging, name) = (&self.paging, source.name.to_owned());
            let shared = &mut self.shared.0;
            shared.retain(|_, shared| paging.sharers(shared.area).is_ok());
            let made = SharedArea {
                area,
                pages: source.pages,
                name,
                locked: false,
            };
            shared.insert(key, made);
        }
        let to_lock = key.is_some_and(|(_, sharing)| sharing == SharedPages::Lock);
        Ok(Joining {
            key,
            area,
            attachment,
            next: PageNumber::FIRST,
            to_lock,
        })
    }

    /// Applies the rule to an area with one more tenant, which is assumed to use it like the others
    /// (SPC §IV-C).
    fn is_better_locked(&self, area: AreaId, pages: u32) -> bool {
        let (Ok(usage), Ok(sharers)) = (self.paging.observe(area), self.paging.sharers(area))
        else {
            return false;
        };
        let all = usage.total_average();
        let one = all / u64::from(sharers.max(1));
        leasehold_pager::choose(pages.into(), all + one) == Technique::Spel
    }

    /// Takes the next step towards the lock of an area, or towards joining it; true if there is nothing
    /// left to do.
    fn lock_step(&mut self, joining: &mut Joining) -> Result<bool, Error> {
        let shared = joining.key.map(|key| (key, self.shared.0.get_mut(&key)));
        let Some((key, Some(shared))) = shared else {
            return Ok(true);
        };
        if shared.area != joining.area {
            return Ok(true);
        }
        let step = if shared.locked {
            let next = self.paging.prefault(joining.attachment, joining.next, STEP);
            next.map(|next| {
                joining.next = next.unwrap_or(PageNumber::new(u32::MAX));
                next.is_none()
            })
        } else if joining.to_lock {
            let locked = self.paging.lock_step(joining.area, STEP);
            locked.map(|locked| {
                shared.locked = locked == Ending::Done;
                false
            })
        } else {
            return Ok(true);
        };
        match step {
            Ok(done) => Ok(done),
            // A sharer is leaving it: retried later.
            Err(Error::Refused(Refused::Ending)) => Ok(false),
            // Others have locked all of it meanwhile.
            Err(Error::Refused(Refused::Locked)) => {
                shared.locked = true;
                Ok(false)
            }
            // Without a lock, pages are conserved, which needs no further frames.
            Err(_) if key.1 == SharedPages::Auto => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Attaches the image of a tenant's program where its memory will be made.
    fn prepare(&mut self, root: GroupId, image: &Image, name: &str) -> Result<Joining, Error> {
        let Some(range) = self.ranges.take(&self.paging) else {
            return Err(Error::System {
                doing: "find addresses for a memory",
                source: std::io::ErrorKind::OutOfMemory.into(),
            });
        };
        let first = image.first();
        let start = self.ranges.start(&range);
        let address = start.wrapping_add(first as usize * leasehold_pager::PAGE as usize);
        let pages = image.pages();
        let make = |paging: &Paging| {
            let file = image.file().map_err(|source| Error::System {
                doing: "open the image of a program",
                source,
            })?;
            paging.create_image(file, Sharing::Conserve)
        };
        let attach = |attaching: Attaching<'_>, reservation, area| {
            let paging = attaching.paging();
            let copies = paging.create_area_for(reservation, pages, Sharing::Conserve)?;
            // The range was taken for this memory: nothing is there.
            let attached = attaching.copied(reservation, (area, copies), address);
            if attached.is_err() {
                // It has no attachment, or was removed with what was undone.
                let _ = paging.discard_area(copies);
            }
            Ok(attached?.shared)
        };
        let source = Source {
            content: Content::Image(image.digest()),
            name,
            pages,
            make: &make,
            attach: &attach,
        };
        let joined = self.join(root, &source);
        let (Ok(joining), Some(tenancy)) = (&joined, self.tenancies.get_mut(&root)) else {
            self.ranges.give_back(range, &self.paging);
            return joined;
        };
        tenancy.prepared = Some(Prepared {
            range,
            first,
            part: Part::whole(joining.attachment, pages),
        });
        joined
    }
}

/// Whether a reservation of `size` frames has room for so many more locked pages, beside those that it keeps.
fn fits_locked(size: u32, kept: u32, pages: u32) -> Result<(), Refused> {
    let needed = kept.saturating_add(pages).saturating_add(AT_ONCE - 1);
    match size <= needed {
        true => Err(Refused::TooSmall { needed, size }),
        false => Ok(()),
    }
}

/// Whether a lease has room for an image of so many pages, if it is to be locked: what [`join_image`] tests first.
///
/// # Errors
/// What is needed, and what there is.
pub(crate) fn check_image(lease: &MemoryLease, pages: u32) -> Result<(), String> {
    let locks = lease
        .paging
        .is_some_and(|paging| paging.shared == SharedPages::Lock);
    if !locks || pages == 0 {
        return Ok(());
    }
    let frames = lease.reserve.get().div_ceil(leasehold_pager::PAGE);
    let fits = fits_locked(u32::try_from(frames).unwrap_or(u32::MAX), 0, pages);
    fits.map_err(|refused| why("the initial memory of the program", &refused.into()))
}

/// Makes the tenant of this top-level group share the image of its program, as its lease states;
/// `None` if it shares nothing. The tenant's memory contains the image from the start.
///
/// # Errors
/// Why it cannot be had.
pub(crate) fn join_image(
    root: GroupId,
    image: &Image,
    name: &str,
) -> Result<Option<Joining>, String> {
    let joined = with(|memory| {
        let tenancy = memory.tenancies.get(&root)?;
        tenancy.limit?;
        (tenancy.sharing != SharedPages::None).then(|| memory.prepare(root, image, name))
    });
    let joined = joined.flatten().transpose();
    joined.map_err(|error| why("the initial memory of the program", &error))
}

/// Takes the next step towards the lock of what a tenant shares, if its lease wants one: reads some
/// pages. True if there is nothing left to do.
///
/// # Errors
/// Why it cannot be locked.
pub(crate) fn lock_step(joining: &mut Joining) -> Result<bool, String> {
    let step = with(|memory| memory.lock_step(joining));
    step.unwrap_or(Ok(true))
        .map_err(|error| why("a lock on what it shares", &error))
}

/// Returns the shared areas and their use.
pub(crate) fn shared() -> Vec<SharedUse> {
    let uses = with(|memory| {
        let mut uses: Vec<_> = memory
            .shared
            .0
            .iter()
            .filter_map(|(&(_, technique), shared)| {
                let usage = memory.paging.observe(shared.area).ok()?;
                Some(SharedUse {
                    name: shared.name.clone(),
                    technique,
                    locked: shared.locked,
                    pages: shared.pages,
                    sharers: memory.paging.sharers(shared.area).ok()?,
                    peak: usage.peak(),
                    total_average: usage.total_average(),
                    samples: usage.samples(),
                    choice: usage.choice(shared.pages),
                })
            })
            .collect();
        uses.sort_by(|a, b| a.name.cmp(&b.name).then(a.pages.cmp(&b.pages)));
        uses
    });
    uses.unwrap_or_default()
}

fn why(what: &str, error: &Error) -> String {
    format!("{what}: {error}")
}
