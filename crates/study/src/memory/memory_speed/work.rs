//! Programs that do little but touch memory.

/// Bytes of a page of WebAssembly, as a shift.
const WASM_PAGE: u32 = 16;
/// Times that programs go through their memory again after the first touch.
const PASSES: u32 = 4;
/// Loads of the program that goes nowhere in order.
const LOADS: u32 = 1 << 20;

/// The work of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Writes one byte to each page.
    FirstTouch,
    /// Adds to every eighth byte, in order, several times.
    Stream,
    /// Writes to each page, and then reads here and there.
    Random,
    /// Copies one half to the other with `memory.copy`, several times.
    Copy,
    /// Grows by one page of WebAssembly at a time, and fills each with `memory.fill`.
    Grow,
}

impl Work {
    pub(super) const ALL: [Self; 5] = [
        Self::FirstTouch,
        Self::Stream,
        Self::Random,
        Self::Copy,
        Self::Grow,
    ];

    /// As rows name it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::FirstTouch => "first touch",
            Self::Stream => "stream",
            Self::Random => "random loads",
            Self::Copy => "copy",
            Self::Grow => "grow",
        }
    }

    /// A command that does it with `mebibytes` of memory.
    pub(super) fn program(self, mebibytes: u64) -> String {
        let bytes = mebibytes << 20;
        let (half, wasm_pages) = (bytes / 2, bytes >> WASM_PAGE);
        let touch = format!(
            "(loop $touch
               (i32.store8 (local.get $at) (i32.const 1))
               (br_if $touch (i32.lt_u
                 (local.tee $at (i32.add (local.get $at) (i32.const 4096)))
                 (i32.const {bytes}))))"
        );
        let again = |body: &str, passes: u32| {
            format!(
                "(loop $again
                   {body}
                   (br_if $again (i32.lt_u
                     (local.tee $pass (i32.add (local.get $pass) (i32.const 1)))
                     (i32.const {passes}))))"
            )
        };
        let (declared, body) = match self {
            Self::FirstTouch => (wasm_pages, touch),
            Self::Stream => (
                wasm_pages,
                again(
                    &format!(
                        "(local.set $at (i32.const 0))
                         (loop $next
                           (i64.store (local.get $at)
                             (i64.add (i64.load (local.get $at)) (i64.const 1)))
                           (br_if $next (i32.lt_u
                             (local.tee $at (i32.add (local.get $at) (i32.const 8)))
                             (i32.const {bytes}))))"
                    ),
                    PASSES,
                ),
            ),
            // A linear congruential sequence (Numerical Recipes) of places to load from; each
            // depends on what was loaded, so that no two loads overlap.
            Self::Random => (
                wasm_pages,
                touch
                    + &again(
                        &format!(
                            "(local.set $at (i32.add
                               (i32.add
                                 (i32.mul (local.get $at) (i32.const 1664525))
                                 (i32.const 1013904223))
                               (i32.load8_u (i32.and (local.get $at) (i32.const {})))))",
                            bytes - 1
                        ),
                        LOADS,
                    ),
            ),
            Self::Copy => (
                wasm_pages,
                touch
                    + &again(
                        &format!(
                            "(memory.copy (i32.const {half}) (i32.const 0) (i32.const {half}))"
                        ),
                        PASSES,
                    ),
            ),
            Self::Grow => (
                0,
                again(
                    &format!(
                        "(memory.fill
                           (i32.shl (memory.grow (i32.const 1)) (i32.const {WASM_PAGE}))
                           (i32.const 1) (i32.const 65536))"
                    ),
                    u32::try_from(wasm_pages).unwrap_or(u32::MAX),
                ),
            ),
        };
        format!(
            r#"(module
                (memory (export "memory") {declared})
                (func (export "_start") (local $at i32) (local $pass i32)
                    {body}))"#
        )
    }
}
