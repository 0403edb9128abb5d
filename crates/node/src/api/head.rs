//! How large the head of a request may be. The HTTP library bounds what it buffers of a head that is not complete;
//! one that comes whole in a read may be larger.

use crate::problem::Problem;
use crate::view::ErrorKind;
use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The most bytes of a head.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// Returns the number of bytes of a head, as it is sent without needless spaces.
fn bytes(request: &Request) -> usize {
    let target = request.uri();
    let path = target
        .path_and_query()
        .map_or(0, |path| path.as_str().len());
    let line = request.method().as_str().len() + path + "  HTTP/1.1\r\n".len();
    let field = |name: &str, value: &[u8]| name.len() + value.len() + ": \r\n".len();
    let fields = request.headers().iter();
    let fields = fields.map(|(name, value)| field(name.as_str(), value.as_bytes()));
    line + fields.sum::<usize>() + "\r\n".len()
}

/// Answers a request whose head is too large.
pub(super) async fn fits(request: Request, next: Next) -> Response {
    let found = bytes(&request);
    if found <= HEAD_BYTES {
        return next.run(request).await;
    }
    let message = format!("head: found {found} bytes; allowed: at most {HEAD_BYTES}");
    let problem = Problem::new(ErrorKind::BadRequest, message);
    let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    (status, Json(problem.body())).into_response()
}
