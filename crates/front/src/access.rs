//! The access log: a record for each request, when it is over.

use crate::trace::Trace;
use leasehold_exchange::Timing;
use std::net::SocketAddr;
use std::time::Duration;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// With a whole response of the guest.
    Answered,
    /// The request was malformed: 400.
    Malformed,
    /// Its head was larger than the tenant's limit: 431.
    TooLarge,
    /// No route: 404.
    NoRoute,
    /// As many requests as may were waiting: 503.
    Full,
    /// The tenant was not running: 503.
    NotRunning,
    /// The lease did not pay for it: 503.
    Refused,
    /// The guest failed: 502, or the connection was reset.
    Failed,
    /// Its time was over: 504, or the connection was reset.
    Timeout,
    /// The client went before the end.
    ClientGone,
}

impl Outcome {
    pub(crate) const COUNT: usize = 10;

    /// All of them, in order.
    pub const ALL: [Outcome; Self::COUNT] = [
        Outcome::Answered,
        Outcome::Malformed,
        Outcome::TooLarge,
        Outcome::NoRoute,
        Outcome::Full,
        Outcome::NotRunning,
        Outcome::Refused,
        Outcome::Failed,
        Outcome::Timeout,
        Outcome::ClientGone,
    ];

    /// Its name in logs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Answered => "answered",
            Outcome::Malformed => "malformed",
            Outcome::TooLarge => "too-large",
            Outcome::NoRoute => "no-route",
            Outcome::Full => "full",
            Outcome::NotRunning => "not-running",
            Outcome::Refused => "refused",
            Outcome::Failed => "failed",
            Outcome::Timeout => "timeout",
            Outcome::ClientGone => "client-gone",
        }
    }
}

/// A request that is over.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its number.
    pub id: u64,
    /// The client.
    pub remote: SocketAddr,
    /// The name of the listener.
    pub listener: std::sync::Arc<str>,
    /// The name of the tenant, if a route was found.
    pub tenant: Option<String>,
    /// The method.
    pub method: String,
    /// The host that the client asked for.
    pub authority: String,
    /// Path and query, cut after [`Record::PATH_MOST`] bytes.
    pub path: String,
    /// The status that was sent, if one was.
    pub status: Option<u16>,
    /// Bytes of the response's body.
    pub bytes: u64,
    /// From the head of the request to the end of the response.
    pub elapsed: Duration,
    /// What the exchange took, if there was one.
    pub timing: Option<Timing>,
    /// Its span, if requests are traced.
    pub trace: Option<Trace>,
    /// How it ended.
    pub outcome: Outcome,
    /// Why the guest failed, if it did.
    pub failure: Option<leasehold_exchange::Failure>,
}

impl Record {
    /// The most bytes of a path in the log.
    pub const PATH_MOST: usize = 512;
}
