//! The body of a request, which has to come within some time: a client that begins one and leaves it holds its connection no
//! longer.

use super::long_places::LongPlaces;
use axum::BoxError;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream::unfold;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long a body may take.
const BODY: Duration = Duration::from_secs(10);

/// Lets the body of a request fail when it has taken too long. Until it is there it has one of the [places](LongPlaces) of what takes long.
pub(super) async fn comes_in_time(
    State(long): State<LongPlaces>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    match long.take() {
        Ok(place) => {
            let request = request.map(|body| within(body, BODY, place));
            next.run(request).await
        }
        Err(full) => full.into_response(),
    }
}

/// The body, which fails after `longest`; `place` is kept as long as it is read.
fn within(body: Body, longest: Duration, place: impl Send + 'static) -> Body {
    let until = Instant::now() + longest;
    let begun = Some((body.into_data_stream(), place));
    let parts = unfold(begun, move |begun| async move {
        let (mut parts, place) = begun?;
        match timeout_at(until, parts.next()).await {
            Ok(part) => part.map(|part| (part.map_err(BoxError::from), Some((parts, place)))),
            Err(_) => Some((Err(io::Error::from(io::ErrorKind::TimedOut).into()), None)),
        }
    });
    Body::from_stream(parts)
}

#[cfg(test)]
mod tests {
    use super::within;
    use axum::body::{Body, Bytes, to_bytes};
    use futures_util::stream::{iter, pending};
    use futures_util::{StreamExt, stream::once};
    use std::convert::Infallible;
    use std::time::Duration;

    #[test]
    fn a_body_that_does_not_come_fails_and_one_that_comes_is_the_same() {
        let part = |text: &'static str| Ok::<_, Infallible>(Bytes::from(text));
        let whole = Body::from_stream(iter([part("one "), part("two")]));
        let begun = once(async move { part("one ") }).chain(pending());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.expect("a runtime").block_on(async {
            let short = Duration::from_millis(20);
            let read = to_bytes(within(whole, short, ()), 100).await;
            assert_eq!(read.expect("all of it"), "one two");
            let read = to_bytes(within(Body::from_stream(begun), short, ()), 100).await;
            assert!(read.is_err());
        });
    }
}
