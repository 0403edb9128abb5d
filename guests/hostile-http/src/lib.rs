//! What a handler of requests should not do, one thing for each path; and what only the bare
//! interface shows.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use wasip2::http::types::{
    Fields, HeaderError, IncomingBody, IncomingRequest, OutgoingBody, OutgoingRequest,
    OutgoingResponse, ResponseOutparam,
};

struct Handler;

wasip2::http::proxy::export!(Handler);

/// The system's allocator, until [`NEVER`] is set: then it does not return, wherever it is called, also in the
/// midst of a host call that returns a list.
struct Allocator;

static NEVER: AtomicBool = AtomicBool::new(false);

// SAFETY: each call is passed on as it is, to an allocator that keeps the contract; or never returns.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        while NEVER.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        // SAFETY: the caller's layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Requests that this instance has answered.
static ANSWERED: AtomicU32 = AtomicU32::new(0);

fn fields(entries: &[(&str, &str)]) -> Fields {
    let list: Vec<(String, Vec<u8>)> = entries
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .collect();
    Fields::from_list(&list).expect("valid fields")
}

/// Answers with a text.
fn answer(out: ResponseOutparam, text: &str) {
    let response = OutgoingResponse::new(Fields::new());
    let body = response.body().expect("once");
    ResponseOutparam::set(out, Ok(response));
    {
        let stream = body.write().expect("once");
        for piece in text.as_bytes().chunks(4096) {
            stream.blocking_write_and_flush(piece).expect("written");
        }
    }
    OutgoingBody::finish(body, None).expect("finished");
}

/// Answers with a body of another length than it states.
fn lie(out: ResponseOutparam, stated: &str, text: &str) {
    let response = OutgoingResponse::new(fields(&[("content-length", stated)]));
    let body = response.body().expect("once");
    ResponseOutparam::set(out, Ok(response));
    {
        let stream = body.write().expect("once");
        // More than was stated fails here.
        let _ = stream.blocking_write_and_flush(text.as_bytes());
    }
    assert!(
        OutgoingBody::finish(body, None).is_err(),
        "the lengths differ"
    );
}

/// Answers with a body of another length than it states, where that is no lie: the response has no body.
fn describe(out: ResponseOutparam, status: u16, text: &str) {
    let response = OutgoingResponse::new(fields(&[("content-length", "10")]));
    response.set_status_code(status).expect("a status");
    let body = response.body().expect("once");
    ResponseOutparam::set(out, Ok(response));
    if !text.is_empty() {
        let stream = body.write().expect("once");
        stream
            .blocking_write_and_flush(text.as_bytes())
            .expect("it is read and forgotten");
    }
    OutgoingBody::finish(body, None).expect("there is nothing whose length it is");
}

/// Answers with 304, which has no body, after it has taken the body: before that has ended, or after.
fn describe_late(out: ResponseOutparam, has_ended: bool) {
    let response = OutgoingResponse::new(fields(&[("content-length", "10")]));
    let body = response.body().expect("once");
    if has_ended {
        // It is shorter than it states, as far as is known.
        assert!(OutgoingBody::finish(body, None).is_err());
        response.set_status_code(304).expect("a status");
        ResponseOutparam::set(out, Ok(response));
    } else {
        response.set_status_code(304).expect("a status");
        ResponseOutparam::set(out, Ok(response));
        // Whether it is shorter than it states is the host's to say.
        let _ = OutgoingBody::finish(body, None);
    }
}

/// Computes until it is stopped.
fn spin() -> ! {
    loop {
        std::hint::black_box(());
    }
}

/// What the checks of fields say, as text.
fn checks() -> String {
    let made = Fields::new();
    let mut said = Vec::new();
    let mut say = |what: &str, is: bool| said.push(format!("{what}={is}\n"));
    let syntax =
        |result: Result<(), HeaderError>| matches!(result, Err(HeaderError::InvalidSyntax));
    let forbidden = |result: Result<(), HeaderError>| matches!(result, Err(HeaderError::Forbidden));
    let immutable = |result: Result<(), HeaderError>| matches!(result, Err(HeaderError::Immutable));
    say("bad name", syntax(made.append("a b", b"c")));
    say("bad value", syntax(made.append("a", b"\r\n")));
    say("bad length", syntax(made.append("content-length", b"+5")));
    say("forbidden", forbidden(made.append("Connection", b"close")));
    say(
        "append",
        made.append("X-A", b"1").is_ok() && made.append("x-a", b"2").is_ok(),
    );
    say("get", made.get("x-A") == [b"1".to_vec(), b"2".to_vec()]);
    say(
        "has",
        made.has("X-a") && !made.has("x-b") && !made.has("a b"),
    );
    say(
        "set",
        made.set("x-a", &[b"3".to_vec()]).is_ok() && made.get("x-a") == [b"3".to_vec()],
    );
    let copy = made.clone();
    say(
        "delete",
        made.delete("x-a").is_ok() && made.entries().is_empty(),
    );
    say(
        "clone",
        copy.entries() == [("x-a".to_owned(), b"3".to_vec())],
    );
    say("one length", copy.append("content-length", b"007").is_ok());
    say("two lengths", syntax(copy.append("content-length", b"7")));
    say("length", copy.get("content-length") == [b"7".to_vec()]);
    let response = OutgoingResponse::new(made);
    let headers = response.headers();
    say(
        "immutable",
        immutable(headers.append("x-c", b"1")) && immutable(headers.delete("x-c")),
    );
    say(
        "status",
        response.set_status_code(99).is_err() && response.set_status_code(404).is_ok(),
    );
    say(
        "body once",
        response.body().is_ok() && response.body().is_err(),
    );
    let request = OutgoingRequest::new(Fields::new());
    say("path", request.set_path_with_query(Some("a b")).is_err());
    say(
        "authority",
        request.set_authority(Some("example.com:80")).is_ok(),
    );
    say(
        "kept",
        request.authority().as_deref() == Some("example.com:80"),
    );
    let sent = wasip2::http::outgoing_handler::handle(request, None);
    say(
        "denied",
        matches!(sent, Err(wasip2::http::types::ErrorCode::HttpRequestDenied)),
    );
    said.concat()
}

/// Writes as much as there is room for.
fn fill(stream: &wasip2::io::streams::OutputStream) {
    while let Ok(room @ 1..) = stream.check_write() {
        stream.write(&vec![b'f'; room as usize]).expect("there is room");
    }
}

/// The path, without its query.
fn path(request: &IncomingRequest) -> String {
    let path = request.path_with_query().unwrap_or_default();
    path.split('?').next().unwrap_or_default().to_owned()
}

impl wasip2::exports::http::incoming_handler::Guest for Handler {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        match path(&request).as_str() {
            "/count" => {
                let count = ANSWERED.fetch_add(1, Ordering::Relaxed) + 1;
                answer(out, &count.to_string());
            }
            "/checks" => answer(out, &checks()),
            "/silent" => drop(out),
            "/error" => {
                let error = wasip2::http::types::ErrorCode::InternalError(None);
                ResponseOutparam::set(out, Err(error));
            }
            "/short" => lie(out, "10", "short"),
            "/long" => lie(out, "2", "longer"),
            "/described" => describe(out, 200, ""),
            "/described-shorter" => describe(out, 200, "short"),
            "/described-longer" => describe(out, 200, "longer than it states"),
            "/unchanged" => describe(out, 304, ""),
            "/unchanged-late" => describe_late(out, false),
            "/unchanged-last" => describe_late(out, true),
            "/unchanged-dropped" => {
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("once");
                response.set_status_code(304).expect("a status");
                ResponseOutparam::set(out, Ok(response));
                drop(body);
            }
            // The head is sent, the body is given up.
            "/drop" => {
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("once");
                ResponseOutparam::set(out, Ok(response));
                drop(body);
            }
            // The body before the head.
            "/early" => {
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("once");
                let stream = body.write().expect("once");
                stream.blocking_write_and_flush(b"early").expect("written");
                drop(stream);
                OutgoingBody::finish(body, None).expect("finished");
                ResponseOutparam::set(out, Ok(response));
            }
            // A response that is written to as far as it may be, and dropped; then another one, body first.
            "/given-up" => {
                for _ in 0..3 {
                    let response = OutgoingResponse::new(Fields::new());
                    let body = response.body().expect("once");
                    fill(&body.write().expect("once"));
                    drop(body);
                    drop(response);
                }
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("once");
                let stream = body.write().expect("once");
                stream.blocking_write_and_flush(b"given").expect("written");
                ResponseOutparam::set(out, Ok(response));
                stream.blocking_write_and_flush(b" up").expect("written");
                drop(stream);
                OutgoingBody::finish(body, None).expect("finished");
            }
            // A response that is written to, and kept; another one is sent.
            "/kept-back" => {
                let kept = OutgoingResponse::new(Fields::new());
                let body = kept.body().expect("once");
                let stream = body.write().expect("once");
                fill(&stream);
                answer(out, "kept back");
                let write = stream.write(b"more");
                assert!(write.is_err());
            }
            // Dropped before its stream: a trap.
            "/orphan" => {
                let body = request.consume().expect("once");
                let stream = body.stream().expect("once");
                drop(body);
                drop(stream);
            }
            "/twice" => {
                let body = request.consume().expect("once");
                let second = request.consume().is_err();
                let stream = body.stream().expect("once");
                let again = body.stream().is_err();
                drop(stream);
                let trailers = IncomingBody::finish(body);
                trailers.subscribe().block();
                let none = matches!(trailers.get(), Some(Ok(Ok(None))));
                let taken = matches!(trailers.get(), Some(Err(())));
                answer(out, &format!("{second} {again} {none} {taken}"));
            }
            // As many objects as there are.
            "/bomb" => {
                let mut kept = Vec::new();
                loop {
                    kept.push(fields(&[("x", "y")]));
                }
            }
            "/responses" => {
                let mut kept = Vec::new();
                loop {
                    kept.push(OutgoingResponse::new(Fields::new()));
                }
            }
            // Left behind, in every instance.
            "/leak" => {
                for _ in 0..100 {
                    std::mem::forget(fields(&[("x", "y")]));
                }
                answer(out, "leaked");
            }
            "/large" => {
                let large = Fields::new();
                let value = vec![b'v'; 1000];
                loop {
                    let _ = large.append("x", &value);
                }
            }
            // Works on when nothing waits for it any more.
            "/linger" => {
                answer(out, "done");
                spin();
            }
            "/spin" => spin(),
            // The host calls the allocator for the list that it returns.
            "/realloc" => {
                NEVER.store(true, Ordering::Relaxed);
                let _ = request.headers().entries();
            }
            // As many files as may be open, and kept.
            "/files" => {
                let mut kept = Vec::new();
                while let Ok(file) = std::fs::File::create(format!("/data/{}", kept.len())) {
                    kept.push(file);
                }
                spin();
            }
            // As much memory as there is, every page of it written to.
            "/memory" => {
                const PIECE: usize = 64 << 10;
                let mut kept: Vec<Vec<u8>> = Vec::new();
                loop {
                    let mut piece = Vec::new();
                    if kept.try_reserve(1).is_err() || piece.try_reserve_exact(PIECE).is_err() {
                        spin();
                    }
                    piece.resize(PIECE, 1);
                    kept.push(piece);
                }
            }
            _ => std::process::abort(),
        }
    }
}
