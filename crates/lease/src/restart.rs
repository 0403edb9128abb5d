//! Whether a tenant that ended is started again.

/// Whether a server starts a tenant again that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Restart {
    /// It is over.
    #[default]
    Never,
    /// It is started again unless it ended with success or was killed, after a pause that grows
    /// with each failure.
    OnFailure,
}

impl Restart {
    pub(crate) const ALLOWED: &'static str = "\"never\" or \"on-failure\"";

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "never" => Some(Self::Never),
            "on-failure" => Some(Self::OnFailure),
            _ => None,
        }
    }
}
