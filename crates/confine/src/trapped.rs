//! Says which system call was denied, and ends the process: for tests of the lists.

use std::mem;
use std::ptr;

/// Exit code of a process that made a call that is on no list: 128 and `SIGSYS`, as a shell says
/// it.
const EXIT: libc::c_int = 128 + libc::SIGSYS;

/// Installs the handler.
pub(crate) fn install() -> std::io::Result<()> {
    // SAFETY: all zeros is a value of this type.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handle as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler makes async-signal-safe calls only.
    match unsafe { libc::sigaction(libc::SIGSYS, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// The kernel's report on a trapped system call: `siginfo_t` with `_sigsys`.
#[repr(C)]
struct Trapped {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    address: *const libc::c_void,
    call: libc::c_int,
    architecture: libc::c_uint,
}

extern "C" fn handle(
    _signal: libc::c_int,
    information: *const libc::siginfo_t,
    _context: *const libc::c_void,
) {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel calls this with a valid `siginfo_t` of SIGSYS; the other calls get memory of
    // this function, and `_exit` does not return.
    unsafe {
        let call = (*information.cast::<Trapped>()).call;
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        say(b"leasehold: denied system call ");
        say_number(call.unsigned_abs());
        say(b" of thread ");
        let length = name.iter().position(|byte| *byte == 0);
        say(&name[..length.unwrap_or(name.len())]);
        say(b"\n");
        libc::_exit(EXIT);
    }
}

/// # Safety
/// None beyond that of `write`: the memory is valid.
unsafe fn say(text: &[u8]) {
    // SAFETY: pointer and length are those of a slice.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// # Safety
/// As [`say`].
unsafe fn say_number(number: u32) {
    let mut digits = [0_u8; 10];
    let mut rest = number;
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    // SAFETY: as this function's.
    unsafe { say(&digits[at..]) };
}
