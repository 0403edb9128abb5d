//! What can be wrong with the body of a request. It is the client's fault, whatever a guest makes of it.

use std::error::Error;
use std::io;

/// What is wrong with the body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadFault {
    /// It is no HTTP: a chunk without a length, for instance.
    Malformed,
    /// Its trailers are larger than the tenant's limit.
    TooLarge,
    /// Its client went before its end, or gave it up.
    Gone,
}

impl UploadFault {
    /// The fault that the HTTP library reports.
    pub(crate) fn of(error: &hyper::Error) -> Self {
        let source = error.source();
        let kind = source.and_then(|source| Some(source.downcast_ref::<io::Error>()?.kind()));
        match kind {
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => Self::Malformed,
            _ => Self::Gone,
        }
    }
}

/// Why a request has no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoResponse {
    /// The guest failed, or its time was over.
    Failure(leasehold_exchange::Failure),
    /// The request's body has a fault.
    Upload(UploadFault),
}
