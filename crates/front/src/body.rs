//! The body of a response, and the traffic of an exchange behind it.

use crate::access::Outcome;
use crate::connection::Ongoing;
use crate::payer;
use crate::site::Site;
use crate::upload::{NoResponse, UploadFault};
use crate::{reply, request};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use leasehold_exchange::{ClientHalf, Failure, ResponseHead};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Sleep;

/// The most bytes of a body that are taken from a ring in one step.
const STEP: usize = 32 * 1024;

/// The body of a request that is being received.
struct Upload {
    incoming: Incoming,
    /// What was received and has found no room yet.
    chunk: Bytes,
}

/// An exchange and the client's body on its way to it.
pub(crate) struct Traffic {
    client: ClientHalf,
    site: Arc<Site>,
    upload: Option<Upload>,
    /// What was wrong with the client's body.
    fault: Option<UploadFault>,
    /// The time of the request; the exchange is abandoned at its end.
    deadline: Pin<Box<Sleep>>,
}

impl Traffic {
    pub(crate) fn new(
        mut client: ClientHalf,
        site: Arc<Site>,
        incoming: Incoming,
        deadline: Sleep,
    ) -> Self {
        let upload = match incoming.is_end_stream() {
            true => {
                client.finish_body(None);
                None
            }
            false => Some(Upload {
                incoming,
                chunk: Bytes::new(),
            }),
        };
        Self {
            client,
            site,
            upload,
            fault: None,
            deadline: Box::pin(deadline),
        }
    }

    pub(crate) const fn client(&self) -> &ClientHalf {
        &self.client
    }

    /// The head of the response, while the request's body is received. A fault of that body is an answer, unless
    /// the guest gave one before.
    pub(crate) fn poll_response(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<&ResponseHead, NoResponse>> {
        if self.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(NoResponse::Failure(Failure::Deadline)));
        }
        self.poll_upload(context);
        match (self.client.poll_response(context), self.fault) {
            (Poll::Ready(Ok(head)), _) => Poll::Ready(Ok(head)),
            (_, Some(fault)) => Poll::Ready(Err(NoResponse::Upload(fault))),
            (other, None) => other.map_err(NoResponse::Failure),
        }
    }

    /// The request's body ends with this fault, which the guest sees as well.
    fn fail_upload(&mut self, fault: UploadFault) {
        self.client.fail_body();
        self.fault = Some(fault);
        self.upload = None;
    }

    /// Moves what the client sent to the guest, as far as there is room.
    fn poll_upload(&mut self, context: &mut Context<'_>) {
        while let Some(upload) = &mut self.upload {
            if !upload.chunk.is_empty() {
                match self.client.poll_write(context, &upload.chunk) {
                    Poll::Ready(Ok(written)) => drop(upload.chunk.split_to(written)),
                    // The guest needs no more of it.
                    Poll::Ready(Err(_)) => self.upload = None,
                    Poll::Pending => return,
                }
                continue;
            }
            match Pin::new(&mut upload.incoming).poll_frame(context) {
                Poll::Pending => return,
                Poll::Ready(None) => {
                    self.client.finish_body(None);
                    self.upload = None;
                }
                Poll::Ready(Some(Err(error))) => self.fail_upload(UploadFault::of(&error)),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.site.usage().received(data.len());
                        upload.chunk = data;
                    }
                    Err(frame) => {
                        let trailers = frame
                            .trailers_ref()
                            .map(|it| request::trailers(it, self.site.limits()));
                        match trailers {
                            Some(None) => self.fail_upload(UploadFault::TooLarge),
                            other => {
                                self.client.finish_body(other.flatten());
                                self.upload = None;
                            }
                        }
                    }
                },
            }
        }
    }
}

/// Why the body of a response was cut off: its connection or stream is reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cut {
    /// The guest failed, or its time was over.
    #[error(transparent)]
    Failure(#[from] Failure),
    /// The trailers are no HTTP.
    #[error("the trailers are no HTTP")]
    Trailers,
    /// The body is not as long as the head says.
    #[error("the body is not as long as its Content-Length")]
    Length,
}

/// The body of a response.
pub(crate) enum ResponseBody {
    /// One of the front itself.
    Text(
        Bytes,
        #[expect(dead_code, reason = "its end is the end of the request")] Box<Ongoing>,
    ),
    /// One of a guest.
    Exchange(Box<ExchangeBody>),
    /// None: the method or the status says so, whatever the guest writes.
    Nothing,
}

/// The body of a guest's response.
pub(crate) struct ExchangeBody {
    traffic: Traffic,
    ongoing: Ongoing,
    /// Bytes that the head states and that have not been given out; `None` if it states no length. What the
    /// connection is told of the length is this alone: the guest may finish at any time, also between two looks.
    left: Option<u64>,
    /// The end was given out, trailers included.
    over: bool,
    /// What cuts it off, until what was given out before has been sent.
    held: Option<Cut>,
}

impl ResponseBody {
    /// The body of a response that has none for its client.
    pub(crate) fn nothing(traffic: Traffic, ongoing: Ongoing) -> Self {
        Box::new(ExchangeBody::new(traffic, ongoing, None)).heard_out()
    }

    /// The body of a guest's response, of which the head states so many bytes.
    pub(crate) fn of(traffic: Traffic, ongoing: Ongoing, stated: Option<u64>) -> Self {
        let mut body = Box::new(ExchangeBody::new(traffic, ongoing, stated));
        body.left = stated.or_else(|| match body.traffic.client.trailers() {
            // Trailers need a body whose length is not stated.
            Some(_) => None,
            None => body.traffic.client.remaining().map(|whole| whole as u64),
        });
        if body.is_given() {
            body.finish();
        }
        match body.over && !body.has_finished() {
            true => body.heard_out(),
            false => Self::Exchange(body),
        }
    }
}

impl ExchangeBody {
    fn new(traffic: Traffic, mut ongoing: Ongoing, left: Option<u64>) -> Self {
        ongoing.record.timing = Some(traffic.client.timing());
        Self {
            traffic,
            ongoing,
            left,
            over: false,
            held: None,
        }
    }

    /// Leaves the client without more of it. What the guest still writes is read and forgotten, so that the guest can
    /// finish as it would otherwise.
    fn heard_out(self: Box<Self>) -> ResponseBody {
        tokio::task::spawn_local(payer::metered(payer::source(), self.forgotten()));
        ResponseBody::Nothing
    }

    /// Reads the body to its end. The client gets none of it.
    async fn forgotten(mut self: Box<Self>) {
        if let Some(lane) = self.ongoing.lane() {
            payer::pays(&self.traffic.site, &lane);
        }
        (self.left, self.over) = (None, false);
        while let Some(Ok(_)) = poll_fn(|context| self.poll(context)).await {}
    }

    /// What the connection is given. It asks for pieces before it sends the head and those before, and drops all of them if
    /// the body is cut off then: the client may have no answer at all. So it is told of that when it asks once more.
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Some(cut) = self.held.take() {
            self.ongoing.cut_off();
            return Poll::Ready(Some(Err(cut)));
        }
        let frame = self.poll(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.ongoing.record.bytes += bytes as u64;
            self.traffic.site.usage().sent(bytes);
        }
        match frame {
            Poll::Ready(Some(Err(cut))) => {
                self.held = Some(cut);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            frame => frame,
        }
    }

    /// The next piece, which has the place of the exchange until it is sent.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let next = self.poll_piece(context);
        match (self.ongoing.place(), &next) {
            (Some(place), Poll::Ready(_)) => place.given(),
            (Some(place), Poll::Pending) => place.emptied(),
            (None, _) => {}
        }
        next
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if self.traffic.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(self.cut(Failure::Deadline.into()))));
        }
        self.traffic.poll_upload(context);
        let read = ready!(self.traffic.client.poll_read(context, STEP));
        self.ongoing.record.timing = Some(self.traffic.client.timing());
        match read {
            Ok(Some(bytes)) => {
                let read = bytes.len() as u64;
                if let Some(left) = &mut self.left {
                    match left.checked_sub(read) {
                        Some(less) => *left = less,
                        None => return Poll::Ready(Some(Err(self.cut(Cut::Length)))),
                    }
                }
                if self.is_given() {
                    self.finish();
                }
                let piece = match self.ongoing.place() {
                    Some(place) => place.piece(bytes),
                    None => bytes.into(),
                };
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Ok(None) if self.left.is_some_and(|left| left > 0) => {
                Poll::Ready(Some(Err(self.cut(Cut::Length))))
            }
            Ok(None) => {
                let trailers = self.traffic.client.trailers().map(reply::trailers);
                match trailers {
                    Some(None) => Poll::Ready(Some(Err(self.cut(Cut::Trailers)))),
                    trailers => {
                        self.finish();
                        Poll::Ready(
                            trailers
                                .flatten()
                                .filter(|trailers| !trailers.is_empty())
                                .map(|trailers| Ok(Frame::trailers(trailers))),
                        )
                    }
                }
            }
            Err(failure) => Poll::Ready(Some(Err(self.cut(failure.into())))),
        }
    }

    /// Whether the client has all of it. In HTTP/1.1 nothing comes after the bytes that the head states, and the
    /// connection does not ask for it; in HTTP/2 the end does, or trailers.
    fn is_given(&self) -> bool {
        let is_whole = self.left.unwrap_or(0) == 0;
        let is_at_length = self.left == Some(0) && !self.ongoing.is_http2();
        let client = &self.traffic.client;
        let is_at_end = client.remaining() == Some(0) && client.trailers().is_none();
        is_at_length || is_whole && is_at_end
    }

    /// Whether the guest has written all that it is going to write.
    fn has_finished(&self) -> bool {
        self.traffic.client.remaining().is_some()
    }

    fn finish(&mut self) {
        self.over = true;
        self.ongoing.ended(Outcome::Answered, None);
    }

    fn cut(&mut self, cut: Cut) -> Cut {
        self.over = true;
        let (outcome, failure) = match cut {
            Cut::Failure(Failure::Deadline) => (Outcome::Timeout, Some(Failure::Deadline)),
            // A guest that fails without the rest of its request is not to blame.
            _ if self.traffic.fault.is_some() => (Outcome::ClientGone, None),
            Cut::Failure(failure) => (Outcome::Failed, Some(failure)),
            Cut::Trailers | Cut::Length => (Outcome::Failed, None),
        };
        self.ongoing.ended(outcome, failure);
        cut
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        match this {
            Self::Text(text, _) => {
                let text = std::mem::take(text);
                Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))))
            }
            Self::Exchange(body) => {
                let frame = body.poll_held(context);
                if body.over && !body.has_finished() && matches!(frame, Poll::Ready(Some(Ok(_)))) {
                    // The client has all of it, and the guest goes on.
                    if let Self::Exchange(body) = std::mem::replace(this, Self::Nothing) {
                        *this = body.heard_out();
                    }
                }
                frame
            }
            Self::Nothing => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text, _) => text.is_empty(),
            Self::Exchange(body) => body.over && body.held.is_none(),
            Self::Nothing => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let exact = match self {
            Self::Text(text, _) => Some(text.len() as u64),
            Self::Exchange(body) if body.over => Some(0),
            Self::Exchange(body) => body.left,
            // That of the body which a client of HEAD does not get is in the fields, if anywhere.
            Self::Nothing => None,
        };
        exact.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
