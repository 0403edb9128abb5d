//! From `_start` to `main`, and the end of a panic.

use core::panic::PanicInfo;

use crate::Arguments;
use crate::arguments::Storage;

/// Makes `main: fn(&Arguments)` the program.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        /// The entry point of a WASI preview 1 command.
        #[unsafe(no_mangle)]
        pub extern "C" fn _start() {
            $crate::run($main);
        }
    };
}

/// Reads the arguments and calls `main`. The program exits with 0 when it returns.
pub fn run(main: fn(&Arguments<'_>)) {
    main(&Arguments::read(&mut Storage::new()));
}

/// A panic is a trap: exit code and message belong to the host.
#[panic_handler]
fn trap(_: &PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
