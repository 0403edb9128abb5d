//! A small web service: what it answers depends on the path.
//!
//! `/` says hello; `/echo` sends the body back as it comes, with its trailers; `/headers` lists the
//! request's fields; `/env` lists the variables; `/sleep?ms=N` answers after a while;
//! `/big?bytes=N` streams so many; `/log?ms=N` writes lines in parts, with that time in between, the last one
//! without an end; `/trap` and `/spin` do what their names say.

use futures_lite::stream::unfold;
use std::convert::Infallible;
use wstd::http::body::{Body, Bytes};
use wstd::http::{Error, Request, Response, StatusCode};
use wstd::time::Duration;

/// Bytes of a piece of `/big`.
const PIECE: usize = 16 << 10;

/// The number that a query such as `ms=20` has for `name`.
fn number(request: &Request<Body>, name: &str) -> u64 {
    let query = request.uri().query().unwrap_or_default();
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut own = pairs.filter(|(key, _)| *key == name);
    own.next()
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

/// A line for each name and value.
fn lines(pairs: impl Iterator<Item = (String, String)>) -> String {
    pairs
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect()
}

#[wstd::http_server]
async fn main(request: Request<Body>) -> Result<Response<Body>, Error> {
    let body: Body = match request.uri().path() {
        "/" => "hello\n".into(),
        "/echo" => request.into_body(),
        "/headers" => {
            let headers = request.headers().iter();
            lines(headers.map(|(name, value)| {
                (
                    name.to_string(),
                    String::from_utf8_lossy(value.as_bytes()).into_owned(),
                )
            }))
            .into()
        }
        "/env" => lines(std::env::vars()).into(),
        "/sleep" => {
            let ms = number(&request, "ms");
            wstd::task::sleep(Duration::from_millis(ms)).await;
            format!("slept for {ms} ms\n").into()
        }
        "/big" => {
            let bytes = number(&request, "bytes");
            Body::from_try_stream(unfold(bytes, |left| async move {
                let piece = left.min(PIECE as u64);
                let bytes = Bytes::from(vec![b'.'; piece as usize]);
                (left > 0).then(|| (Ok::<_, Infallible>(bytes), left - piece))
            }))
        }
        "/log" => {
            let ms = number(&request, "ms");
            eprint!("one {ms} ");
            wstd::task::sleep(Duration::from_millis(ms)).await;
            eprintln!("line {ms}");
            eprintln!("1 | request 1");
            eprint!("end {ms}");
            "logged\n".into()
        }
        "/trap" => std::process::abort(),
        "/spin" => loop {
            std::hint::black_box(());
        },
        _ => {
            let mut response = Response::new(Body::from("no such path\n"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        }
    };
    Ok(Response::new(body))
}
