//! The memory reservation, as a lease states it.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use crate::byte_size::ByteSize;
use crate::decimal::decimal;
use crate::flag_error::FlagError;

/// The reservation of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// The memory that is reserved for all linear memories of the tenant together, and the hard
    /// limit on them unless they [page](Self::paging).
    pub reserve: ByteSize,
    /// The behaviour beyond the reservation. `None`: growth is refused there.
    pub paging: Option<Paging>,
    /// The limit on the elements of all tables of the tenant together, enforced at growth;
    /// 1 to [`Memory::MAX_TABLE_ELEMENTS`].
    pub table_elements: u64,
    /// The limit on the host's memory that the tenant may take besides: stacks, instances, calls in
    /// flight, handles. `None`: [`Memory::host_limit`] follows from the reservation.
    pub host: Option<ByteSize>,
    /// The limit on the machine code of the tenant's program, and on initial memory that instances are shown.
    pub code: ByteSize,
    /// The stack of each program that the tenant runs, which a call beyond it traps;
    /// [`Memory::MIN_STACK`] to [`Memory::MAX_STACK`].
    pub stack: ByteSize,
}

impl Memory {
    /// The least stack that a lease grants, and what one grants that does not say.
    pub const MIN_STACK: ByteSize = ByteSize::new(512 << 10).expect("512 KiB is in range");

    /// The most stack that a lease grants.
    pub const MAX_STACK: ByteSize = ByteSize::new(64 << 20).expect("64 MiB is in range");

    /// The most table elements that a lease can grant: the size at which the WebAssembly
    /// JavaScript interface stops too (§"Implementation-defined limits"), 80 MB of pointers.
    pub const MAX_TABLE_ELEMENTS: u64 = 10_000_000;

    /// The least reservation of a tenant that pages: a single access may need several pages at
    /// once.
    pub const MIN_PAGING_RESERVE: ByteSize = ByteSize::new(64 << 10).expect("64 KiB is in range");

    /// The least limit on the host's memory of a tenant whose lease does not state one.
    const MIN_HOST: ByteSize = ByteSize::new(128 << 20).expect("128 MiB is in range");

    pub(crate) const KEYS: &'static str =
        "reserve, limit, kind, shared, swap, mappings, table_elements, host, code, stack";
    pub(crate) const STACK_ALLOWED: &'static str = "a size from 512KiB to 64MiB";
    pub(crate) const SWAP_ALLOWED: &'static str =
        "\"none\", or the path of a file that pages are written to";
    pub(crate) const TABLE_ELEMENTS: RangeInclusive<u64> = 1..=Self::MAX_TABLE_ELEMENTS;
    pub(crate) const TABLE_ELEMENTS_ALLOWED: &'static str = "a whole number from 1 to 10000000";

    /// How much linear memory the tenant can have, in all.
    #[must_use]
    pub fn limit(&self) -> ByteSize {
        let limit = self.paging.map(|paging| paging.limit);
        limit.map_or(self.reserve, |limit| limit.max(self.reserve))
    }

    /// How much of the host's memory the tenant can take besides its linear memory: as much as is
    /// reserved, and at least 128 MiB and four times its stack, unless the lease says.
    #[must_use]
    pub fn host_limit(&self) -> ByteSize {
        let stacks = ByteSize::new(self.stack.get().saturating_mul(4)).unwrap_or(ByteSize::MAX);
        let least = Self::MIN_HOST.max(stacks);
        self.host.unwrap_or(self.reserve.max(least))
    }

    pub(crate) fn is_stack(size: ByteSize) -> bool {
        (Self::MIN_STACK..=Self::MAX_STACK).contains(&size)
    }
}

impl Default for Memory {
    fn default() -> Self {
        const RESERVE: ByteSize = ByteSize::new(1 << 30).expect("1 GiB is in range");
        const CODE: ByteSize = ByteSize::new(512 << 20).expect("512 MiB is in range");
        Self {
            reserve: RESERVE,
            paging: None,
            table_elements: 1_000_000,
            host: None,
            code: CODE,
            stack: Self::MIN_STACK,
        }
    }
}

/// What a tenant may have beyond its reservation: pages that are not in its frames are in the swap
/// file of its cell.
///
/// As a flag: `limit=SIZE,swap=FILE`, and `kind=NAME`, `shared=NAME` or `mappings=N` if they are not
/// the defaults ([`PagingFlag`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paging {
    /// The limit on all linear memories of the tenant together, enforced at growth.
    pub limit: ByteSize,
    /// Whether it may use unreserved frames.
    pub kind: MemoryKind,
    /// How pages are managed that it shares with other tenants.
    pub shared: SharedPages,
    /// Kernel mappings that it may cause, its image, the pieces that its memories grow by, data sets
    /// and regions together: [`Paging::MAPPINGS_RANGE`].
    pub mappings: u32,
}

impl Paging {
    /// The mappings of a tenant whose lease does not say: enough for an image of which every second
    /// page is written to, in 127 blocks, and a memory that grows from one page to 4 GiB.
    pub const MAPPINGS: u32 = 256;

    /// The values that a lease may state.
    pub const MAPPINGS_RANGE: RangeInclusive<u64> = 16..=4096;

    pub(crate) const MAPPINGS_ALLOWED: &'static str = "a whole number from 16 to 4096";
}

/// How pages that tenants share are kept (SPC §IV): the initial contents of a program that several
/// tenants run, and data sets. Tenants share pages only with tenants whose lease has the same
/// `shared` value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum SharedPages {
    /// Nothing is shared: the tenant has copies of its own.
    None,
    /// *Shared-Page Conservation*: for each page that another tenant owns, the tenant keeps a frame
    /// of its own aside. The default: its promise is paid for by the tenant's own reservation,
    /// independently of the other tenants, and unused pages are left out of memory.
    #[default]
    Conserve,
    /// *Shared-Page Eviction Lock*: the pages are locked: one frame each for all tenants, never
    /// paged out. It takes as many frames of each tenant's reservation, which has to be larger, and
    /// gives those of all tenants but one to the node.
    Lock,
    /// Conservation, until a lock takes fewer frames by the paper's rule (SPC §IV-C). The rule is
    /// applied when a tenant joins.
    Auto,
}

impl SharedPages {
    pub(crate) const ALLOWED: &'static str = "\"none\", \"spc\", \"spel\" or \"auto\"";

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "spc" => Some(Self::Conserve),
            "spel" => Some(Self::Lock),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }
}

/// The name in a lease.
impl fmt::Display for SharedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Conserve => "spc",
            Self::Lock => "spel",
            Self::Auto => "auto",
        })
    }
}

/// The behaviour of a tenant whose frames are used up (SPC §II-B).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MemoryKind {
    /// Pages of its own make room, even if the node has unreserved frames.
    #[default]
    Hard,
    /// It borrows unreserved frames, and gives them back when they are reserved.
    Firm,
}

impl MemoryKind {
    pub(crate) const ALLOWED: &'static str = "\"hard\" or \"firm\"";

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "hard" => Some(Self::Hard),
            "firm" => Some(Self::Firm),
            _ => None,
        }
    }
}

/// The name in a lease.
impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hard => "hard",
            Self::Firm => "firm",
        })
    }
}

/// The value of a flag that has a tenant page: `limit=SIZE,swap=FILE`, and `kind=NAME`, `shared=NAME`
/// and `mappings=N`, in any order, each at most once. A path that contains a comma cannot be stated.
///
/// ```
/// use leasehold_lease::{MemoryKind, PagingFlag};
///
/// let flag: PagingFlag = "limit=64MiB,swap=/var/tmp/swap,kind=firm".parse()?;
/// assert_eq!(flag.paging.limit.get(), 64 << 20);
/// assert_eq!(flag.paging.kind, MemoryKind::Firm);
/// assert!("limit=64MiB".parse::<PagingFlag>().is_err());
/// # Ok::<(), leasehold_lease::FlagError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagingFlag {
    /// What the tenant may have.
    pub paging: Paging,
    /// The file that pages are written to.
    pub swap: PathBuf,
}

impl FromStr for PagingFlag {
    type Err = FlagError;

    fn from_str(text: &str) -> Result<Self, FlagError> {
        const FORM: &str = "limit=SIZE,swap=FILE, then kind=hard or kind=firm, shared=none, \
                            shared=spc, shared=spel or shared=auto, and mappings=N, if wanted, \
                            each at most once, the file not empty and without NUL";
        let (mut limit, mut swap, mut kind, mut shared) = (None, None, None, None);
        let mut mappings = None;
        for part in text.split(',') {
            let malformed = || FlagError::new(part, FORM);
            let (key, value) = part.split_once('=').ok_or_else(malformed)?;
            let seen = match key {
                "limit" => limit.replace(value.parse::<ByteSize>()?).is_some(),
                "swap" if !value.is_empty() && !value.contains('\0') => {
                    swap.replace(PathBuf::from(value)).is_some()
                }
                "kind" => {
                    let named = MemoryKind::named(value);
                    let allowed = || FlagError::new(part, MemoryKind::ALLOWED);
                    kind.replace(named.ok_or_else(allowed)?).is_some()
                }
                "shared" => {
                    let named = SharedPages::named(value);
                    let allowed = || FlagError::new(part, SharedPages::ALLOWED);
                    shared.replace(named.ok_or_else(allowed)?).is_some()
                }
                "mappings" => {
                    let number = decimal::<u64>(value);
                    let number = number.filter(|n| Paging::MAPPINGS_RANGE.contains(n));
                    let number = number.and_then(|n| u32::try_from(n).ok());
                    let allowed = || FlagError::new(part, Paging::MAPPINGS_ALLOWED);
                    mappings.replace(number.ok_or_else(allowed)?).is_some()
                }
                _ => true,
            };
            if seen {
                return Err(malformed());
            }
        }
        let incomplete = || FlagError::new(text, FORM);
        Ok(Self {
            paging: Paging {
                limit: limit.ok_or_else(incomplete)?,
                kind: kind.unwrap_or_default(),
                shared: shared.unwrap_or_default(),
                mappings: mappings.unwrap_or(Paging::MAPPINGS),
            },
            swap: swap.ok_or_else(incomplete)?,
        })
    }
}

/// The values of a reservation as they are read, before their validation.
#[derive(Default)]
pub(crate) struct MemoryValues {
    pub(crate) reserve: Option<ByteSize>,
    pub(crate) limit: Option<ByteSize>,
    pub(crate) kind: Option<MemoryKind>,
    pub(crate) shared: Option<SharedPages>,
    pub(crate) swap: Option<PathBuf>,
    pub(crate) mappings: Option<u32>,
    pub(crate) table_elements: Option<u64>,
    pub(crate) host: Option<ByteSize>,
    pub(crate) code: Option<ByteSize>,
    pub(crate) stack: Option<ByteSize>,
}

/// A value that the others do not allow.
pub(crate) struct MemoryFault {
    pub(crate) key: &'static str,
    pub(crate) allowed: String,
}

impl MemoryValues {
    /// The reservation, and the swap file if its tenant pages.
    pub(crate) fn reservation(self) -> Result<(Memory, Option<PathBuf>), MemoryFault> {
        let defaults = Memory::default();
        let reserve = self.reserve.unwrap_or(defaults.reserve);
        let limit = self.limit.unwrap_or(reserve);
        let kind = self.kind.unwrap_or_default();
        let fault = |key, allowed: String| Err(MemoryFault { key, allowed });
        let stack = self.stack.unwrap_or(defaults.stack);
        if !Memory::is_stack(stack) {
            return fault("stack", Memory::STACK_ALLOWED.to_owned());
        }
        if limit < reserve {
            return fault("limit", format!("at least the reserve, which is {reserve}"));
        }
        if limit > reserve && reserve < Memory::MIN_PAGING_RESERVE {
            return fault("reserve", "at least 64KiB if `limit` is more".to_owned());
        }
        // A value that would never be used is not part of a contract.
        if limit == reserve && kind == MemoryKind::Firm {
            let allowed = "\"hard\", unless `limit` is more than the reserve";
            return fault("kind", allowed.to_owned());
        }
        if limit == reserve
            && self
                .shared
                .is_some_and(|shared| shared != SharedPages::None)
        {
            let allowed = "\"none\", unless `limit` is more than the reserve";
            return fault("shared", allowed.to_owned());
        }
        if limit == reserve && self.swap.is_some() {
            let allowed = "\"none\", unless `limit` is more than the reserve";
            return fault("swap", allowed.to_owned());
        }
        if limit == reserve && self.mappings.is_some() {
            let allowed = "no such key, unless `limit` is more than the reserve";
            return fault("mappings", allowed.to_owned());
        }
        if limit > reserve && self.swap.is_none() {
            let allowed =
                format!("at most the reserve, which is {reserve}, unless `swap` names a file");
            return fault("limit", allowed);
        }
        let memory = Memory {
            reserve,
            paging: (limit > reserve).then_some(Paging {
                limit,
                kind,
                shared: self.shared.unwrap_or_default(),
                mappings: self.mappings.unwrap_or(Paging::MAPPINGS),
            }),
            table_elements: self.table_elements.unwrap_or(defaults.table_elements),
            host: self.host,
            code: self.code.unwrap_or(defaults.code),
            stack,
        };
        Ok((memory, self.swap))
    }
}
