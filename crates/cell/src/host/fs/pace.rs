//! Limits the changes that are made on the cell's thread.
//!
//! A file system on a disk buffers writes and changes of names in memory. It blocks the changing
//! thread when too much is buffered, and offers no form of these calls that does not wait. A cell
//! therefore changes at most [`Pace::MOST`] bytes in a [`Pace::WINDOW_NS`] on its own thread. After
//! a step that took long, other threads make the changes for a while. Writes and changes of names
//! are paced apart: making a directory takes some file systems longer than a step may.
//!
//! Time in which another thread of the host had the processor does not make a step long. On a busy host that
//! happens all the time, and a write that another thread makes takes some 60 times as long.

use super::class::Class;
use super::descriptor::Node;
use super::elsewhere::Elsewhere;
use crate::clock::{monotonic_ns, thread_blocks, thread_cpu_ns};
use crate::steps::{CEILING_NS, watch};
use std::cell::Cell;

/// The permission for the cell's thread to make one change now.
#[must_use = "a permit says how long the change took when it is used"]
pub(super) struct Permit(Option<(Kind, Began)>);

/// When a change began.
#[derive(Debug, Clone, Copy)]
struct Began {
    wall_ns: u64,
    /// The thread's processor time and waits just before a change of names. (For a write of a
    /// few bytes, reading them would take longer than the write.)
    thread: Option<Thread>,
}

/// The processor time and the waits of a thread so far.
#[derive(Debug, Clone, Copy)]
struct Thread {
    /// The thread's processor time.
    cpu_ns: u64,
    /// The number of times that the thread has waited for anything but the processor.
    blocks: i64,
}

thread_local! {
    /// The last reading, and when it was made.
    static READ: Cell<Option<(u64, Thread)>> = const { Cell::new(None) };
}

impl Thread {
    /// The age at which a reading still serves: both system calls of another would take a tenth of the time of
    /// creating a file. A change that is long on the clock is then taken to have had the processor for that
    /// much longer, or to have waited if the thread had just waited.
    const FRESH_NS: u64 = 50_000;

    /// Returns a recent reading.
    fn recently(wall_ns: u64) -> Self {
        READ.with(|last| match last.get() {
            Some((at, read))
                if wall_ns
                    .checked_sub(at)
                    .is_some_and(|age| age <= Self::FRESH_NS) =>
            {
                read
            }
            _ => {
                let read = Self::now();
                last.set(Some((wall_ns, read)));
                read
            }
        })
    }

    fn now() -> Self {
        Self {
            cpu_ns: thread_cpu_ns(),
            blocks: thread_blocks(),
        }
    }

    /// Returns why the thread took longer than a step may since this reading, if it did.
    fn was_long(self) -> Option<Long> {
        let now = Self::now();
        let cpu_ns = now.cpu_ns.saturating_sub(self.cpu_ns);
        match now.blocks > self.blocks {
            true => Some(Long::Waited),
            false => (cpu_ns > CEILING_NS).then_some(Long::Busy { cpu_ns }),
        }
    }
}

/// Why a change took longer than a step may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Long {
    /// The change waited for something, or may have.
    Waited,
    /// The change used the processor for so long.
    Busy { cpu_ns: u64 },
}

/// The kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The contents of files.
    Bytes,
    /// Names, and what a file system keeps of a file.
    Names,
}

impl Kind {
    /// Starts the timing of a change of this kind.
    fn begin(self, wall_ns: u64) -> Began {
        Began {
            wall_ns,
            thread: (self == Self::Names).then(|| Thread::recently(wall_ns)),
        }
    }
}

impl Began {
    /// A longer write has blocked, or the thread was preempted.
    const WAITED_NS: u64 = 1_000_000;

    /// Whether a change that ended at `now` has blocked, or held the processor for longer than a
    /// step may. A preempted change is not long: virtual machines are stopped for 10 ms at
    /// a time, and thousands of changes a second would meet every stop.
    fn was_long(self, now: u64) -> Option<Long> {
        let wall_ns = now - self.wall_ns;
        match self.thread {
            None => {
                let is_long = wall_ns > Self::WAITED_NS
                    && !watch::was_kept_waiting(wall_ns.saturating_sub(CEILING_NS));
                is_long.then_some(Long::Waited)
            }
            Some(thread) if wall_ns > CEILING_NS => thread.was_long(),
            Some(_) => None,
        }
    }
}

impl Permit {
    /// A permit for changes that cannot wait.
    pub(super) const FREE: Self = Self(None);

    /// Returns a permit to write so many bytes, unless that might wait.
    pub(super) fn for_write(node: &Node, bytes: usize) -> Option<Self> {
        if node.is_worked_on() {
            return None;
        }
        match node.class {
            Class::Memory => Some(Self(None)),
            Class::Cached | Class::Layered => Self::paced(Kind::Bytes, bytes),
            Class::Slow => None,
        }
    }

    /// Returns a permit for a change of one name, or of what the file system keeps of one file; unless that
    /// might wait, or copy a file from another layer.
    pub(super) fn for_change(class: Class) -> Option<Self> {
        if Elsewhere::is_any() {
            return None;
        }
        match class {
            Class::Memory => Some(Self(None)),
            Class::Cached => Self::paced(Kind::Names, Pace::CHANGE),
            Class::Layered | Class::Slow => None,
        }
    }

    /// Returns a permit to close a file that was open for writing.
    pub(super) fn for_close(node: &Node) -> Option<Self> {
        if Elsewhere::is_any() {
            return None;
        }
        match node.class {
            Class::Layered => Self::paced(Kind::Names, Pace::CHANGE),
            class => Self::for_change(class),
        }
    }

    fn paced(kind: Kind, bytes: usize) -> Option<Self> {
        Pace::permits(kind, bytes).map(|now| Self(Some((kind, kind.begin(now)))))
    }

    /// Records that `bytes` were written to blocks that were written to just before: nothing more is
    /// buffered.
    pub(super) fn used_again(self, bytes: usize) {
        if let Some((kind, _)) = self.0 {
            Pace::give_back(kind, bytes);
        }
        self.used();
    }

    /// Records that the change was made.
    pub(super) fn used(self) {
        if let Some((kind, began)) = self.0 {
            Pace::changed(kind, began);
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Pace {
    began: u64,
    bytes: usize,
    not_before: u64,
    /// For how long other threads make the changes after the next step that takes long, ns.
    pause_ns: u64,
    /// Changes since the last step that took long.
    short: u32,
}

thread_local! {
    static PACES: [Cell<Pace>; 2] = const { [Cell::new(Pace::START), Cell::new(Pace::START)] };
}

impl Pace {
    const START: Self = Self {
        began: 0,
        bytes: 0,
        not_before: 0,
        pause_ns: Self::PAUSE_NS,
        short: 0,
    };
    const WINDOW_NS: u64 = 1_000_000_000;
    const MOST: usize = 64 << 20;
    /// Bytes that a change of a name or of a file's status counts for: what it adds to a journal.
    const CHANGE: usize = 512;
    /// How long other threads make the changes after a long step. Each further long step doubles it, until a
    /// window passes without one, or so many changes that a step which only used the processor is an exception:
    /// an interrupt, or a new block of the file system.
    const PAUSE_NS: u64 = 20_000_000;
    const RARE: u32 = 256;
    /// Steps that use the processor for long have a hundredth of the time at the most.
    const BUSY: u64 = 100;
    const LONGEST_PAUSE_NS: u64 = 5_000_000_000;

    fn of(kind: Kind) -> Self {
        PACES.with(|paces| paces[kind as usize].get())
    }

    fn set(self, kind: Kind) {
        PACES.with(|paces| paces[kind as usize].set(self));
    }

    /// Returns the time, if so many bytes may be changed now.
    fn permits(kind: Kind, bytes: usize) -> Option<u64> {
        let now = monotonic_ns();
        let mut pace = Self::of(kind);
        if now - pace.began > Self::WINDOW_NS {
            (pace.began, pace.bytes) = (now, 0);
            if now > pace.not_before.saturating_add(Self::WINDOW_NS) {
                pace.pause_ns = Self::PAUSE_NS;
            }
        }
        pace.bytes += bytes;
        let permits = pace.bytes <= Self::MOST && now >= pace.not_before;
        if permits {
            pace.set(kind);
        }
        permits.then_some(now)
    }

    fn give_back(kind: Kind, bytes: usize) {
        let mut pace = Self::of(kind);
        pace.bytes = pace.bytes.saturating_sub(bytes);
        pace.set(kind);
    }

    fn changed(kind: Kind, began: Began) {
        let now = monotonic_ns();
        let mut pace = Self::of(kind);
        match began.was_long(now) {
            None => pace.short = pace.short.saturating_add(1),
            Some(long) => pace.pause(now, long),
        }
        pace.set(kind);
    }

    /// Makes other threads make the changes from `now` on, for a while.
    fn pause(&mut self, now: u64, long: Long) {
        if let Long::Busy { cpu_ns } = long {
            if self.short >= Self::RARE {
                self.pause_ns = Self::PAUSE_NS;
            }
            self.pause_ns = self.pause_ns.max(cpu_ns.saturating_mul(Self::BUSY));
        }
        self.pause_ns = self.pause_ns.min(Self::LONGEST_PAUSE_NS);
        self.not_before = now + self.pause_ns;
        self.pause_ns = (2 * self.pause_ns).min(Self::LONGEST_PAUSE_NS);
        self.short = 0;
    }
}

/// Forgets what took long on this thread.
#[cfg(test)]
pub(super) fn start_again() {
    Pace::START.set(Kind::Bytes);
    Pace::START.set(Kind::Names);
}

#[cfg(test)]
mod tests {
    use super::{Began, Kind, Long, Pace, Permit};
    use crate::clock::monotonic_ns;
    use crate::host::fs::class::Class;
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn what_may_wait_or_copy_files_is_never_changed_here() {
        assert!(Permit::for_change(Class::Slow).is_none());
        assert!(Permit::for_change(Class::Layered).is_none());
        assert!(Permit::for_change(Class::Memory).is_some());
    }

    #[test]
    fn a_change_that_took_long_sends_the_next_ones_elsewhere_for_longer_each_time() {
        Pace::START.set(Kind::Names);
        assert!(
            Permit::for_change(Class::Cached).is_some(),
            "nothing took long yet"
        );
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let permit = Permit(Some((Kind::Names, Kind::Names.begin(monotonic_ns()))));
            sleep(Duration::from_micros(200));
            permit.used();
            assert!(Permit::for_change(Class::Cached).is_none());
            pauses.push(Pace::of(Kind::Names).pause_ns);
        }
        assert_eq!(pauses[..3], [40_000_000, 80_000_000, 160_000_000]);
        assert_eq!(pauses.last(), Some(&Pace::LONGEST_PAUSE_NS));
        assert!(Permit::paced(Kind::Bytes, 1).is_some(), "writes go on");
        Pace::START.set(Kind::Names);
    }

    #[test]
    fn changes_that_use_the_processor_for_long_have_a_hundredth_of_the_time() {
        let long = |pace: &mut Pace, cpu_ns| {
            pace.pause(0, Long::Busy { cpu_ns });
            pace.not_before
        };
        let mut pace = Pace::START;
        assert_eq!(long(&mut pace, 150_000), Pace::PAUSE_NS);
        assert_eq!(long(&mut pace, 150_000), 2 * Pace::PAUSE_NS, "soon again");
        pace.short = Pace::RARE;
        assert_eq!(long(&mut pace, 150_000), Pace::PAUSE_NS, "an exception");
        pace.short = Pace::RARE;
        assert_eq!(long(&mut pace, 1_000_000), 100_000_000);
        pace.short = Pace::RARE;
        assert_eq!(long(&mut pace, 1_000_000_000), Pace::LONGEST_PAUSE_NS);
        // What waits for a disk is no exception, however rare it is.
        let mut pace = Pace::START;
        for doubled in [1, 2, 4] {
            pace.short = Pace::RARE;
            pace.pause(0, Long::Waited);
            assert_eq!(pace.not_before, doubled * Pace::PAUSE_NS);
        }
    }

    #[test]
    fn a_write_is_long_unless_the_host_is_known_to_have_had_the_processor() {
        use crate::steps::{RowBounds, watch};
        let write = || Kind::Bytes.begin(0).was_long(60_000_000_000);
        assert_eq!(write(), Some(Long::Waited), "nothing is known");
        let bounds = RowBounds::calibrated(&crate::profile::Profile::free());
        watch::enter(std::sync::Arc::new(bounds), 0);
        watch::resume(watch::Position::START);
        assert_eq!(write(), Some(Long::Waited), "it ran all the time");
        watch::suspend();
    }

    #[test]
    fn a_thread_that_was_preempted_goes_on_with_names_and_not_with_writes() {
        for (kind, goes_on) in [(Kind::Names, true), (Kind::Bytes, false)] {
            Pace::START.set(kind);
            let long_ago = monotonic_ns() - 2 * Began::WAITED_NS;
            Permit(Some((kind, kind.begin(long_ago)))).used();
            assert_eq!(Permit::paced(kind, 1).is_some(), goes_on, "{kind:?}");
            Pace::START.set(kind);
        }
    }

    #[test]
    fn what_is_written_again_counts_once() {
        Pace::START.set(Kind::Bytes);
        let bytes = 1 << 12;
        for _ in 0..4 * Pace::MOST / bytes {
            let permitted = Pace::permits(Kind::Bytes, bytes);
            assert!(permitted.is_some(), "nothing more is buffered");
            Pace::give_back(Kind::Bytes, bytes);
        }
        Pace::START.set(Kind::Bytes);
    }

    #[test]
    fn no_more_is_changed_in_a_window_than_its_most() {
        Pace::START.set(Kind::Names);
        let permits = (0..).take_while(|_| Permit::for_change(Class::Cached).is_some());
        let most = Pace::MOST / Pace::CHANGE;
        // A busy machine may need more than a window for so many.
        assert!(permits.take(4 * most).count() >= most);
        Pace::START.set(Kind::Names);
    }
}
