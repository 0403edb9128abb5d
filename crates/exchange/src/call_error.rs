//! Why a request that a guest sent has no response, or not all of it.

/// Why a request that a guest sent has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum CallError {
    /// The lease has no such destination.
    #[error("the lease does not allow this destination")]
    Denied,
    /// The host's name stands for no address that may be connected to.
    #[error("the host has no address that may be connected to")]
    Prohibited,
    /// The request is none that can be sent.
    #[error("no request that can be sent")]
    Malformed,
    /// The host's name was not looked up: no server of names answered in time, or each failed.
    #[error("the name of the host was not looked up: its servers do not answer, or fail")]
    LookupTimeout,
    /// The host's name has no address.
    #[error("the name of the host has no address")]
    Lookup,
    /// The host refused the connection.
    #[error("the connection was refused")]
    Refused,
    /// The host could not be reached.
    #[error("the host cannot be reached")]
    Unreachable,
    /// No local port is left for the destination, or the tenant has as many as it may, or another socket has the port.
    #[error("no local port is left")]
    NoPort,
    /// There was no connection in time.
    #[error("no connection in time")]
    ConnectTimeout,
    /// The connection ended before the response had begun.
    #[error("the connection was terminated")]
    Terminated,
    /// The host's certificate is not trusted.
    #[error("the certificate is not trusted")]
    Certificate,
    /// TLS failed otherwise.
    #[error("TLS failed")]
    Tls,
    /// The response did not begin in time.
    #[error("no response in time")]
    ResponseTimeout,
    /// The response was not over in time.
    #[error("the response was not over in time")]
    ReadTimeout,
    /// What came is no HTTP.
    #[error("the response is not HTTP")]
    Protocol,
    /// The head of the response has more bytes than the lease allows.
    #[error("the head of the response is too large")]
    HeadSize,
    /// The body of the response is coded in another way than in chunks.
    #[error("the response has a transfer coding that is not known")]
    Coding,
    /// The connection ended before the response was over.
    #[error("the response is incomplete")]
    Incomplete,
    /// The guest gave up the body of its request.
    #[error("the guest gave up the request's body")]
    Abandoned,
}

impl CallError {
    /// All of them, in the order of their reasons.
    pub(crate) const ALL: [CallError; 19] = [
        CallError::Denied,
        CallError::Prohibited,
        CallError::Malformed,
        CallError::LookupTimeout,
        CallError::Lookup,
        CallError::Refused,
        CallError::Unreachable,
        CallError::NoPort,
        CallError::ConnectTimeout,
        CallError::Terminated,
        CallError::Certificate,
        CallError::Tls,
        CallError::ResponseTimeout,
        CallError::ReadTimeout,
        CallError::Protocol,
        CallError::HeadSize,
        CallError::Coding,
        CallError::Incomplete,
        CallError::Abandoned,
    ];
}
