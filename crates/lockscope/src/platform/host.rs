//! The host itself: a process among others.

use crate::platform::request::{Prepared, Request};

pub(super) fn prepare(request: &Request<'_>) -> Prepared {
    Prepared::new(["sh", "-c", request.command], None)
}
