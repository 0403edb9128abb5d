//! Answers requests from a large table that its memory holds from the beginning, as a language engine does: says how
//! many words of it are wrong, and overwrites one in every page.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use wasip2::http::types::{
    Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam,
};

struct Handler;

wasip2::http::proxy::export!(Handler);

/// Words of the table: 2 MiB.
const WORDS: usize = 256 << 10;

/// Words of a page of the host.
const PAGE: usize = 512;

/// What a word holds before the first instruction. None is zero.
const fn word(at: usize) -> u64 {
    (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

static TABLE: [AtomicU64; WORDS] = {
    let mut table = [const { AtomicU64::new(0) }; WORDS];
    let mut at = 0;
    while at < WORDS {
        table[at] = AtomicU64::new(word(at));
        at += 1;
    }
    table
};

impl wasip2::exports::http::incoming_handler::Guest for Handler {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let path = request.path_with_query().unwrap_or_default();
        let checked = match path.as_str() {
            // What an answer costs that needs little of the table.
            "/few" => PAGE,
            _ => WORDS,
        };
        let table = &TABLE[..checked];
        let wrong = table
            .iter()
            .enumerate()
            .filter(|(at, found)| found.load(Relaxed) != word(*at))
            .count();
        for found in table.iter().step_by(PAGE) {
            found.store(0, Relaxed);
        }
        let response = OutgoingResponse::new(Fields::new());
        let body = response.body().expect("once");
        ResponseOutparam::set(out, Ok(response));
        let stream = body.write().expect("once");
        let text = format!("{wrong} of {checked} wrong\n");
        stream
            .blocking_write_and_flush(text.as_bytes())
            .expect("written");
        drop(stream);
        OutgoingBody::finish(body, None).expect("finished");
    }
}
