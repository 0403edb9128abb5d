//! Where the files of this user are: the directories of the XDG specification.

use leasehold_wasm::artifact::CodeCache;
use std::path::PathBuf;
use std::sync::Arc;

/// The directory for what can be made again: `$XDG_CACHE_HOME/leasehold`, or `~/.cache/leasehold`.
/// `None` if neither variable holds an absolute path.
pub fn cache() -> Option<PathBuf> {
    directory("XDG_CACHE_HOME", ".cache")
}

/// The directory for what is measured or made once: `$XDG_STATE_HOME/leasehold`, or
/// `~/.local/state/leasehold`. `None` if neither variable holds an absolute path: a place that any
/// user can guess, such as one in `/tmp`, is no place for it.
pub fn state() -> Option<PathBuf> {
    directory("XDG_STATE_HOME", ".local/state")
}

fn directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))?;
    Some(base.join("leasehold"))
}

/// Opens the cache of this user: `$XDG_CACHE_HOME/leasehold`, or `~/.cache/leasehold`, with its
/// secret in the [state directory](state). Returns `None` if there is no such directory, or
/// if it cannot be trusted, which is logged: programs are then compiled every time.
pub fn user_code_cache() -> Option<Arc<CodeCache>> {
    let (directory, state) = (cache()?, state()?);
    CodeCache::open(&directory, &state.join("cache.key"))
        .inspect_err(|error| tracing::warn!(%error, "compiled programs are not kept"))
        .ok()
        .map(Arc::new)
}
