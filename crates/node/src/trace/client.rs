//! One connection to a collector for each batch.

use super::endpoint::Endpoint;
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONNECTION, HOST};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The most bytes of a collector's answer, its heads included.
const ANSWER: u64 = 64 * 1024;

/// Sends each request to the collector on a connection of its own.
#[derive(Debug)]
pub(super) struct Client(pub(super) Endpoint);

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let stream = TcpStream::connect(self.0.address).await?;
        // Whatever it sends, informational heads among it: the rest is as if it had closed the connection.
        let (answer, request_half) = stream.into_split();
        let stream = tokio::io::join(answer.take(ANSWER), request_half);
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let (mut parts, body) = request.into_parts();
        parts.headers.insert(HOST, self.0.authority.parse()?);
        parts
            .headers
            .insert(CONNECTION, HeaderValue::from_static("close"));
        parts.uri = self.0.path.parse()?;
        let request = Request::from_parts(parts, Full::new(body));
        let exchange = async {
            let response = sender.send_request(request).await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Response::from_parts(parts, body))
        };
        tokio::pin!(connection, exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // The end of the connection does not come before what it brought.
            ended = &mut connection => {
                ended?;
                exchange.await
            }
        }
    }
}
