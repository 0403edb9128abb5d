//! The control interface over TCP, with the page: what a token opens.
//!
//! On the unix socket the system says which user a peer is. Over TCP nothing does, so each request carries the
//! token in its field `Authorization`. It is taken from nowhere else: addresses are logged, and a cookie
//! would be sent along by any page that an operator visits. The page itself needs no token, and has nothing
//! secret.
//!
//! Places for connections are few. A connection that has not carried the token gives its place to a new one if it is without a
//! request and all are taken, and back after a fixed time whatever it does; one that has is cut when its client stops reading.

use super::stall::{STALL, StallLimit};
use super::{HEAD_BYTES, not_allowed};
use crate::connections::{Connection, Connections, Stays};
use crate::page::page;
use crate::token::{Token, TokenError};
use crate::view::{ErrorBody, ErrorKind, ErrorView};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections that are open at a time; for a further one, one without a request gives way.
const CONNECTIONS: u32 = 64;
/// How long a client may take for the head of a request, and how long a connection may last on which no request
/// has carried the token.
const HEAD: Duration = Duration::from_secs(10);
/// The pause after the system refused to accept a connection for want of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// An address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The system refuses it.
    #[error("the page cannot be served at {address}: {source}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Its token cannot be read or made.
    #[error("the page's token: {0}")]
    Token(#[from] TokenError),
}

/// A socket that listens for operators' browsers, with the token that opens it.
#[derive(Debug)]
pub struct PageListener {
    socket: std::net::TcpListener,
    address: SocketAddr,
    token: Token,
}

impl PageListener {
    /// Listens at an address; port 0 is any free one. The token is the one in `token`, which is made if there is none.
    ///
    /// # Errors
    /// When the address is taken or not this host's, or the token cannot be read or made.
    pub fn open(address: SocketAddr, token: &Path) -> Result<Self, ListenError> {
        let token = Token::kept_at(token)?;
        let failed = |source| ListenError::Address { address, source };
        let socket = std::net::TcpListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Self {
            socket,
            address,
            token,
        })
    }

    /// Returns the address, with the port that it got.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what an operator opens: the address, with the token where no server sees it.
    pub fn link(&self) -> String {
        format!("http://{}/#token={}", self.address, self.token.secret())
    }

    /// Returns whether only programs of this host reach it: nothing here encrypts.
    pub fn is_local(&self) -> bool {
        self.address.ip().is_loopback()
    }

    /// Serves the interface and the page until `stopped` is ready.
    ///
    /// # Errors
    /// When the runtime cannot take the socket.
    pub async fn serve(
        self,
        interface: Router,
        stopped: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let listener = TcpListener::from_std(self.socket)?;
        serve(listener, guarded(interface, self.token), stopped).await;
        Ok(())
    }
}

/// Adds the page to the routes of the control interface, and asks for the token before all others.
fn guarded(interface: Router, token: Token) -> Router {
    interface
        .route("/", get(page))
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(token, guard))
}

async fn guard(State(token): State<Token>, request: Request, next: Next) -> Response {
    let is_page =
        request.uri().path() == "/" && [Method::GET, Method::HEAD].contains(request.method());
    let has_token = presented(&request).is_some_and(|presented| token.is(presented));
    if let (true, Some(client)) = (has_token, request.extensions().get::<Stays>()) {
        client.set();
    }
    if is_page || has_token {
        next.run(request).await
    } else {
        unauthorized()
    }
}

/// Returns the token that a request carries.
fn presented(request: &Request) -> Option<&str> {
    let field = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = field.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn unauthorized() -> Response {
    let error = ErrorView {
        kind: ErrorKind::Unauthorized,
        message: "the field `Authorization` must be `Bearer` and the node's token".to_owned(),
        line: None,
        column: None,
    };
    (
        StatusCode::UNAUTHORIZED,
        [(WWW_AUTHENTICATE, "Bearer")],
        Json(ErrorBody { error }),
    )
        .into_response()
}

/// Serves `routes` to the clients of a listener until `stopped` is ready; then open connections are cut.
async fn serve(listener: TcpListener, routes: Router, stopped: impl Future<Output = ()>) {
    let connections = Connections::new(CONNECTIONS);
    let mut conversations = tokio::task::JoinSet::new();
    tokio::pin!(stopped);
    loop {
        while conversations.try_join_next().is_some() {}
        let accepted = async {
            let accepted = listener.accept().await;
            (accepted, connections.enter().await)
        };
        let (accepted, connection) = tokio::select! {
            () = &mut stopped => return,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let routes = routes.clone();
                conversations.spawn(async move { converse(stream, routes, connection).await });
            }
            Err(error) => {
                tracing::warn!(%error, "the page's listener");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Answers the requests of one connection.
async fn converse(stream: TcpStream, routes: Router, connection: Connection) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES);
    let client = connection.stays();
    let stream = StallLimit::new(stream, STALL);
    let mut answers = pin!(connection.converse(&builder, stream, routes, |request| {
        request.extensions_mut().insert(client.clone());
    }));
    let ended = match tokio::time::timeout(HEAD, &mut answers).await {
        Ok(ended) => ended,
        Err(_) if client.is_set() => answers.await,
        Err(_) => return tracing::debug!("a client of the page without the token: cut"),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client of the page");
    }
}
