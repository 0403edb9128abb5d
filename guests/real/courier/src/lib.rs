//! A service that asks another one, which the field `x-url` of a request names.
//!
//! `/relay` sends the request on with its method and its body as it comes, and answers with the response
//! as it comes; `x-first-byte-ms` is how long that may take to begin. `/many?N` asks N times, one after
//! the other. `/drop?N` asks N times and gives up each request. An error is 502 with its name.

use wstd::http::body::Body;
use wstd::http::{Client, Error, Request, Response, StatusCode};
use wstd::time::Duration;

/// The value of a field.
fn field<'a>(request: &'a Request<Body>, name: &str) -> &'a str {
    let value = request.headers().get(name);
    value.and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// The request to the other service.
fn onward(request: Request<Body>) -> Result<Request<Body>, Error> {
    let mut builder = Request::builder()
        .method(request.method())
        .uri(field(&request, "x-url"));
    for (name, value) in request.headers() {
        if name.as_str().starts_with("x-pass") || name.as_str() == "content-length" {
            builder = builder.header(name, value);
        }
    }
    Ok(builder.body(request.into_body())?)
}

async fn relay(client: &Client, request: Request<Body>) -> Result<Response<Body>, Error> {
    let (parts, body) = client.send(onward(request)?).await?.into_parts();
    let mut response = Response::new(body);
    *response.status_mut() = parts.status;
    for (name, value) in &parts.headers {
        if name.as_str().starts_with("x-") || name.as_str() == "content-length" {
            response.headers_mut().append(name, value.clone());
        }
    }
    Ok(response)
}

fn count(request: &Request<Body>) -> u32 {
    let query = request.uri().query().unwrap_or_default();
    query.parse().unwrap_or(0)
}

async fn many(client: &Client, request: &Request<Body>) -> Result<Response<Body>, Error> {
    let mut bytes = 0;
    for _ in 0..count(request) {
        let asked = Request::builder().uri(field(request, "x-url"));
        let mut response = client.send(asked.body(Body::empty())?).await?;
        bytes += response.body_mut().contents().await?.len();
    }
    Ok(Response::new(format!("{bytes} bytes\n").into()))
}

async fn give_up(client: &Client, request: &Request<Body>) -> Result<Response<Body>, Error> {
    let mut begun = 0;
    for _ in 0..count(request) {
        let asked = Request::builder().uri(field(request, "x-url"));
        // The body is left where it is.
        begun += u32::from(client.send(asked.body(Body::empty())?).await.is_ok());
    }
    Ok(Response::new(format!("{begun} begun\n").into()))
}

#[wstd::http_server]
async fn main(request: Request<Body>) -> Result<Response<Body>, Error> {
    let mut client = Client::new();
    if let Ok(ms) = field(&request, "x-first-byte-ms").parse() {
        client.set_first_byte_timeout(Duration::from_millis(ms));
    }
    let response = match request.uri().path() {
        "/relay" => relay(&client, request).await,
        "/many" => many(&client, &request).await,
        "/drop" => give_up(&client, &request).await,
        _ => Ok(Response::new("courier\n".into())),
    };
    response.or_else(|error| {
        let mut response = Response::new(Body::from(format!("{error:?}\n")));
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        Ok(response)
    })
}
