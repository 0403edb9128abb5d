//! Failing system calls on purpose, and letting some wait.

use super::Call;
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// No number.
const NONE: u64 = u64::MAX;

/// Calls of the kinds that count since the plan was made.
static PASSED: AtomicU64 = AtomicU64::new(0);
/// The first call that fails, from 0, and the one after the last.
static FROM: AtomicU64 = AtomicU64::new(NONE);
static TO: AtomicU64 = AtomicU64::new(NONE);
static ERRNO: AtomicI32 = AtomicI32::new(0);
/// A bit for each kind that counts.
static KINDS: AtomicU64 = AtomicU64::new(u64::MAX);
/// The kind of the first call that was to fail, from 1 on.
static MET: AtomicU64 = AtomicU64::new(0);
/// The thread whose calls alone count; [`NONE`]: those of all.
static CALLER: AtomicU64 = AtomicU64::new(NONE);
/// Tenants whose calls pass uncounted: those with a number below it.
static SPARED: AtomicU64 = AtomicU64::new(0);

/// The greatest number of a tenant so far, and one more.
static LATEST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// On whose behalf this thread works.
    static TENANT: Cell<u64> = const { Cell::new(NONE) };
    /// A number that no other thread has; [`NONE`] until it is asked for.
    static THREAD: Cell<u64> = const { Cell::new(NONE) };
}

/// Which calls fail. A plan is of the whole process.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Calls that pass first.
    pub after: u64,
    /// Calls that fail then.
    pub failures: u64,
    /// The error with which they fail.
    pub errno: i32,
    /// The only kind that counts; `None` for all.
    pub only: Option<Call>,
}

/// Makes calls fail from now on.
pub fn arm(plan: Plan) {
    arm_for(NONE, plan);
}

/// Makes calls of this thread fail from now on; those of all others pass uncounted.
pub fn arm_this_thread(plan: Plan) {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    if THREAD.get() == NONE {
        THREAD.set(THREADS.fetch_add(1, SeqCst));
    }
    arm_for(THREAD.get(), plan);
}

fn arm_for(caller: u64, plan: Plan) {
    disarm();
    CALLER.store(caller, SeqCst);
    ERRNO.store(plan.errno, SeqCst);
    KINDS.store(plan.only.map_or(u64::MAX, bit), SeqCst);
    TO.store(plan.after.saturating_add(plan.failures), SeqCst);
    FROM.store(plan.after, SeqCst);
}

/// A bit for each kind of which calls wait.
static SHUT: AtomicU64 = AtomicU64::new(0);
/// Calls that wait.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Calls of a kind wait until this is dropped: those of a device that does not answer. There is one at a time.
#[derive(Debug)]
pub struct Gate(());

impl Gate {
    /// Lets the calls of this kind wait.
    pub fn shut(call: Call) -> Self {
        SHUT.store(bit(call), SeqCst);
        Self(())
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        WAITING.load(SeqCst)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        SHUT.store(0, SeqCst);
    }
}

/// Waits at the gate. Looks again and again, since a call may be made in a signal handler.
fn wait_at_gate(call: Call) {
    if SHUT.load(SeqCst) & bit(call) == 0 {
        return;
    }
    WAITING.fetch_add(1, SeqCst);
    while SHUT.load(SeqCst) & bit(call) != 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    WAITING.fetch_sub(1, SeqCst);
}

/// Ends the failures; returns how many calls were counted since the plan was made.
pub fn disarm() -> u64 {
    FROM.store(NONE, SeqCst);
    TO.store(NONE, SeqCst);
    KINDS.store(u64::MAX, SeqCst);
    CALLER.store(NONE, SeqCst);
    MET.store(0, SeqCst);
    PASSED.swap(0, SeqCst)
}

/// Returns the kind of the first call that the present plan has failed.
pub fn met() -> Option<Call> {
    let index = usize::try_from(MET.load(SeqCst)).ok()?.checked_sub(1)?;
    Call::ALL.get(index).copied()
}

/// Lets the calls for all tenants that there were so far pass uncounted, whatever the plan is.
pub fn spare() {
    SPARED.store(LATEST.load(SeqCst), SeqCst);
}

/// Spares no tenant any more.
pub fn spare_none() {
    SPARED.store(0, SeqCst);
}

fn bit(call: Call) -> u64 {
    1 << call as u32
}

/// Announces a call.
///
/// # Errors
/// The error of the plan.
pub fn pass(call: Call) -> Result<(), Errno> {
    wait_at_gate(call);
    if KINDS.load(SeqCst) & bit(call) == 0 || is_of_another_thread() || is_spared() {
        return Ok(());
    }
    let number = PASSED.fetch_add(1, SeqCst);
    if (FROM.load(SeqCst)..TO.load(SeqCst)).contains(&number) {
        let _ = MET.compare_exchange(0, 1 + call as u64, SeqCst, SeqCst);
        return Err(Errno::from_raw_os_error(ERRNO.load(SeqCst)));
    }
    Ok(())
}

fn is_of_another_thread() -> bool {
    let caller = CALLER.load(SeqCst);
    // A thread that ends may have no number any more.
    caller != NONE && THREAD.try_with(Cell::get) != Ok(caller)
}

fn is_spared() -> bool {
    let below = SPARED.load(SeqCst);
    // A thread that ends may have no number any more.
    below > 0
        && TENANT
            .try_with(Cell::get)
            .is_ok_and(|tenant| tenant < below)
}

/// Does `work` of this thread on behalf of a tenant, by the number that `tenant` returns: no other tenant of
/// the process has it, and later tenants have greater ones.
pub fn on_behalf_of<R>(tenant: impl FnOnce() -> u64, work: impl FnOnce() -> R) -> R {
    struct Back(u64);
    impl Drop for Back {
        fn drop(&mut self) {
            TENANT.set(self.0);
        }
    }
    let tenant = tenant();
    if tenant != NONE {
        LATEST.fetch_max(tenant.saturating_add(1), SeqCst);
    }
    let _back = Back(TENANT.replace(tenant));
    work()
}

const _: () = assert!(Call::ALL.len() <= 64, "a bit for each kind");

#[cfg(test)]
mod tests {
    use super::{
        Call, Plan, arm, arm_this_thread, disarm, met, on_behalf_of, pass, spare, spare_none,
    };
    use rustix::io::Errno;

    #[test]
    fn calls_for_a_spared_tenant_or_of_another_thread_pass_uncounted_and_others_fail_in_turn() {
        let plan = |only| Plan {
            after: 1,
            failures: 2,
            errno: Errno::IO.raw_os_error(),
            only,
        };
        on_behalf_of(|| 4, spare);
        arm(plan(None));
        for _ in 0..9 {
            assert_eq!(on_behalf_of(|| 4, || pass(Call::Map)), Ok(()));
        }
        assert_eq!((pass(Call::Map), met()), (Ok(()), None));
        let failed = on_behalf_of(|| 4, || on_behalf_of(|| 5, || pass(Call::Sync)));
        assert_eq!((failed, met()), (Err(Errno::IO), Some(Call::Sync)));
        assert_eq!((pass(Call::Map), pass(Call::Map)), (Err(Errno::IO), Ok(())));
        assert_eq!((met(), disarm(), met()), (Some(Call::Sync), 4, None));
        arm(plan(Some(Call::Look)));
        assert!([(); 9].iter().all(|()| pass(Call::Map).is_ok()));
        assert_eq!(disarm(), 0);
        spare_none();
        arm_this_thread(plan(None));
        let elsewhere = std::thread::spawn(|| [(); 9].map(|()| pass(Call::Map)));
        assert_eq!(elsewhere.join().expect("a thread"), [Ok(()); 9]);
        assert_eq!((pass(Call::Map), pass(Call::Map)), (Ok(()), Err(Errno::IO)));
        assert_eq!(disarm(), 2);
        assert!(Call::ALL.iter().all(|call| !call.errnos().is_empty()));
    }
}
