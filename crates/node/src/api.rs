//! The routes of the control interface, and their description.

mod body;
mod head;
mod json_table;
mod long_places;
mod parameters;
mod stall;
mod streams;
mod tcp;
mod tenants;

pub(crate) use head::HEAD_BYTES;
pub use long_places::LongPlaces;
pub(crate) use stall::{STALL, StallLimit};
pub use tcp::{ListenError, PageListener};

use crate::controller::Controller;
use crate::desired::Saves;
use crate::events::Events;
use crate::logs::Logs;
use crate::metrics;
use crate::problem::Problem;
use crate::view::{Admission, ErrorBody, ErrorKind, Node, Reloaded, Snapshot, Validated};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use leasehold_lease::LeaseFile;
use parameters::Parameters;
use serde::Deserialize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;
use utoipa::{IntoParams, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long the loading of programs, and an end without a bound, are waited for.
const LONG: Duration = Duration::from_secs(120);

/// What the routes need.
#[derive(Clone)]
pub struct Api {
    /// Asks the supervisor.
    pub controller: Controller,
    /// The events.
    pub events: Arc<Events>,
    /// The lines of tenants.
    pub logs: Arc<Logs>,
    /// Tells when changes are in the state file, if they are kept: answers to changes wait for that.
    pub saves: Option<Saves>,
    /// The places of what may take long.
    pub long: LongPlaces,
}

/// Answers what may have changed something when that outlives the node, if changes are kept: no route can forget it.
///
/// An answer that something was done is replaced by an error if it could not be written.
async fn when_saved(State(saves): State<Option<Saves>>, request: Request, next: Next) -> Response {
    // Questions about leases are posted, and change nothing.
    let is_question = request.uri().path().starts_with("/v1/leases/");
    let changes = !request.method().is_safe() && !is_question;
    let answer = next.run(request).await;
    match saves {
        Some(saves) if changes && answer.status().is_success() => match saves.settled().await {
            Ok(()) => answer,
            Err(problem) => problem.into_response(),
        },
        _ => answer,
    }
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Leasehold",
    description = "The control interface of a node. Times are in nanoseconds, sizes in bytes, instants in RFC 3339."
))]
struct Description;

fn described() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(node))
        .routes(routes!(snapshot))
        .routes(routes!(validate))
        .routes(routes!(admit))
        .routes(routes!(reload))
        .routes(routes!(streams::events))
        .routes(routes!(streams::logs))
        .merge(tenants::routes())
}

/// Returns the description of all routes: OpenAPI 3.1, as JSON.
pub fn openapi() -> String {
    let (_, description) = described().split_for_parts();
    description.to_pretty_json().unwrap_or_default()
}

/// The routes of the interface, which are made when they are first needed: to describe them takes some milliseconds of a
/// processor, which a node that starts needs for its tenants.
pub(crate) struct Routes {
    api: Api,
    made: OnceLock<Router>,
}

impl Routes {
    pub(crate) fn new(api: Api) -> Arc<Self> {
        Arc::new(Self {
            api,
            made: OnceLock::new(),
        })
    }

    /// Makes them, if they are not made.
    pub(crate) fn make(&self) -> &Router {
        self.made.get_or_init(|| made_router(self.api.clone()))
    }

    /// Returns the router that makes them for its first request.
    pub(crate) fn router(self: &Arc<Self>) -> Router {
        let routes = self.clone();
        Router::new().fallback(move |request: Request| {
            TowerToHyperService::new(routes.make().clone()).call(request)
        })
    }
}

fn made_router(api: Api) -> Router {
    let (router, description) = described().split_for_parts();
    let description: Arc<str> = description.to_json().unwrap_or_default().into();
    let parameters = serde_json::from_str(&description).unwrap_or_default();
    let parameters = Arc::new(Parameters::of(&parameters));
    let described = move || {
        let text = description.to_string();
        async move { ([("content-type", "application/json")], text) }
    };
    router
        .route("/openapi.json", axum::routing::get(described))
        .route("/metrics", axum::routing::get(page_of_metrics))
        .fallback(nothing)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(parameters, parameters::known))
        .layer(from_fn(head::fits))
        .layer(from_fn_with_state(api.saves.clone(), when_saved))
        .layer(from_fn_with_state(api.long.clone(), body::comes_in_time))
        .layer(DefaultBodyLimit::max(LeaseFile::MAX_BYTES))
        .layer(map_response(as_problem))
        .with_state(api)
}

/// The longest message of the library below that is passed on, bytes.
const MESSAGE: usize = 4096;

/// Gives an error that the library below answers with text the form of this interface: a malformed query, a
/// body that is too large or no text.
async fn as_problem(response: Response) -> Response {
    let status = response.status();
    let is_text = response
        .headers()
        .get(CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/"));
    if !(status.is_client_error() || status.is_server_error()) || !is_text {
        return response;
    }
    let message = axum::body::to_bytes(response.into_body(), MESSAGE).await;
    let message = String::from_utf8_lossy(&message.unwrap_or_default()).into_owned();
    let kind = match status.is_client_error() {
        true => ErrorKind::BadRequest,
        false => ErrorKind::Internal,
    };
    (status, Json(Problem::new(kind, message).body())).into_response()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(self.body())).into_response()
    }
}

async fn nothing(uri: axum::http::Uri) -> Problem {
    Problem::new(
        ErrorKind::NotFound,
        format!(
            "there is nothing at {}: /openapi.json has all paths",
            uri.path()
        ),
    )
}

async fn not_allowed(method: axum::http::Method, uri: axum::http::Uri) -> Response {
    let message = format!(
        "{} has no {method}: /openapi.json has all paths",
        uri.path()
    );
    let problem = Problem::new(ErrorKind::BadRequest, message);
    (StatusCode::METHOD_NOT_ALLOWED, Json(problem.body())).into_response()
}

/// The node.
#[utoipa::path(get, path = "/v1/node", responses((status = 200, body = Node)))]
async fn node(State(api): State<Api>) -> Result<Json<Node>, Problem> {
    Ok(Json(
        api.controller.ask(|supervisor| supervisor.node()).await?,
    ))
}

/// All that is known; the cell is asked at most once a second.
#[utoipa::path(get, path = "/v1/snapshot", responses((status = 200, body = Snapshot)))]
async fn snapshot(State(api): State<Api>) -> Result<Response, Problem> {
    let snapshot = api
        .controller
        .ask(|supervisor| supervisor.snapshot())
        .await?;
    Ok(Json(&*snapshot).into_response())
}

/// The page that Prometheus scrapes.
async fn page_of_metrics(State(api): State<Api>) -> Result<Response, Problem> {
    let observed = api
        .controller
        .ask(|supervisor| supervisor.observation())
        .await?;
    Ok((
        [(CONTENT_TYPE, metrics::CONTENT_TYPE)],
        metrics::render(observed),
    )
        .into_response())
}

/// Whether a whole lease file is valid.
#[utoipa::path(post, path = "/v1/leases/validate", request_body(content = String, content_type = "application/toml"),
    responses((status = 200, body = Validated), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)))]
async fn validate(State(api): State<Api>, text: String) -> Result<Json<Validated>, Problem> {
    let _place = api.long.take()?;
    let parse = |file: LeaseFile, _: &dyn crate::Admission| {
        let tenants = file.tenants.into_iter().map(|tenant| tenant.name);
        tenants.collect()
    };
    let asked = move |supervisor: &mut crate::Supervisor| supervisor.parse(text, parse);
    let answer = api.controller.ask(asked).await??;
    Ok(Json(Validated {
        valid: true,
        tenants: Controller::answer(answer, LONG).await??,
    }))
}

/// Whether the reservations of a whole lease file can be kept: as `leasehold admit --json`.
#[utoipa::path(post, path = "/v1/leases/admit", request_body(content = String, content_type = "application/toml"),
    responses((status = 200, body = Admission), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)))]
async fn admit(State(api): State<Api>, text: String) -> Result<Json<Admission>, Problem> {
    let _place = api.long.take()?;
    let report = |file: LeaseFile, admission: &dyn crate::Admission| admission.report(&file);
    let asked = move |supervisor: &mut crate::Supervisor| supervisor.parse(text, report);
    let answer = api.controller.ask(asked).await??;
    Ok(Json(Admission(Controller::answer(answer, LONG).await??)))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Reload {
    /// Whether it is only told what would change.
    dry_run: Option<bool>,
}

/// Reads the lease file again, and makes the tenants those of the file, without a lost request. A file that is
/// refused changes nothing.
#[utoipa::path(post, path = "/v1/reload", params(Reload),
    responses((status = 200, body = Reloaded), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 503, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
async fn reload(
    State(api): State<Api>,
    Query(Reload { dry_run }): Query<Reload>,
) -> Result<Json<Reloaded>, Problem> {
    let _place = api.long.take()?;
    let (sender, answer) = oneshot::channel();
    let told = move |result| {
        // The client may have gone.
        let _ = sender.send(result);
    };
    let asked = move |supervisor: &mut crate::Supervisor| {
        supervisor.reload(dry_run == Some(true), told);
    };
    api.controller.ask(asked).await?;
    let changes = Controller::answer(answer, LONG).await??;
    Ok(Json(changes))
}

#[cfg(test)]
mod tests {
    use super::{Api, HEAD_BYTES, LongPlaces, Routes, openapi};
    use crate::controller::Controller;
    use crate::events::Events;
    use crate::logs::Logs;
    use axum::body::Body;
    use axum::http::Request;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use serde_json::Value;
    use std::sync::Arc;

    /// Asks an interface whose supervisor has ended: what a route answers comes as 503.
    fn ask(method: &str, target: &str, fields: &[(&str, &str)]) -> (u16, Value) {
        let api = Api {
            controller: Controller::new().0,
            events: Arc::new(Events::default()),
            logs: Logs::new(Arc::new(|_, _| {})),
            saves: None,
            long: LongPlaces::default(),
        };
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).expect("a request");
        let answered = async {
            let answer = TowerToHyperService::new(Routes::new(api).router())
                .call(request)
                .await;
            let (parts, body) = answer.expect("an answer").into_parts();
            let body = match parts.status.is_success() {
                true => Default::default(),
                false => axum::body::to_bytes(body, 1 << 20).await.expect("a body"),
            };
            let body = serde_json::from_slice(&body).unwrap_or_default();
            (parts.status.as_u16(), body)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(answered)
    }

    #[test]
    fn no_route_takes_a_parameter_that_its_description_does_not_have() {
        let text: Value = serde_json::from_str(&openapi()).expect("JSON");
        let paths = text["paths"].as_object().expect("paths");
        let mut routes: Vec<(String, String, Vec<String>)> = Vec::new();
        for (path, operations) in paths {
            for (method, operation) in operations.as_object().expect("operations") {
                let all = operation["parameters"].as_array().into_iter().flatten();
                let own = all.filter(|parameter| parameter["in"] == "query");
                let names = own.map(|it| it["name"].as_str().expect("a name").to_owned());
                let path = path.replace("{name}", "shop");
                routes.push((method.to_ascii_uppercase(), path, names.collect()));
            }
        }
        assert!(routes.len() >= 19, "{routes:?}");
        for path in ["/metrics", "/openapi.json"] {
            routes.push(("GET".to_owned(), path.to_owned(), Vec::new()));
        }
        for (method, path, names) in &routes {
            for unknown in [
                "dryrun=true",
                "%64ryrun",
                "dryrun=1&dry_run=true",
                "Dry_run=true",
            ] {
                let (status, error) = ask(method, &format!("{path}?{unknown}"), &[]);
                assert_eq!(status, 400, "{method} {path}?{unknown}: {error}");
                let message = error["error"]["message"].as_str().expect("text");
                assert!(message.contains("ryrun\"") || message.contains("Dry_run\""));
                let allowed = match names.as_slice() {
                    [] => "allowed: no parameter".to_owned(),
                    names => format!("allowed: {}", names.join(", ")),
                };
                assert!(message.ends_with(&allowed), "{method} {path}: {message}");
            }
            // Those that it has go through; their values are looked at behind that.
            for name in names {
                let (_, error) = ask(method, &format!("{path}?{name}=1"), &[]);
                let message = error["error"]["message"].as_str().unwrap_or_default();
                assert!(!message.starts_with("query: found"), "{path}: {message}");
            }
        }
        let (status, error) = ask("HEAD", "/v1/events?until=1", &[]);
        assert_eq!(status, 400, "{error}");
    }

    #[test]
    fn a_head_has_no_more_bytes_than_may_be() {
        let long = "x".repeat(HEAD_BYTES);
        let (status, error) = ask("GET", "/v1/none", &[("a", &long)]);
        assert_eq!(
            (status, error["error"]["kind"].as_str()),
            (431, Some("bad-request"))
        );
        let (status, _) = ask("GET", "/v1/none", &[("a", &long[..HEAD_BYTES - 100])]);
        assert_eq!(status, 404);
    }

    #[test]
    fn the_description_has_all_paths_and_types() {
        let text: serde_json::Value = serde_json::from_str(&openapi()).expect("JSON");
        assert_eq!(text["openapi"], "3.1.0");
        let paths = text["paths"].as_object().expect("paths");
        for path in [
            "/v1/node",
            "/v1/tenants",
            "/v1/tenants/{name}",
            "/v1/tenants/{name}/kill",
            "/v1/tenants/{name}/logs",
            "/v1/events",
            "/v1/snapshot",
            "/v1/leases/admit",
            "/v1/reload",
        ] {
            assert!(paths.contains_key(path), "{path} in {:?}", paths.keys());
        }
        assert!(text["components"]["schemas"]["Tenant"]["properties"]["end_bound"].is_object());
    }

    #[test]
    fn every_change_says_that_it_may_have_been_made_and_not_saved() {
        let text: serde_json::Value = serde_json::from_str(&openapi()).expect("JSON");
        let paths = text["paths"].as_object().expect("paths");
        let mut changes = 0;
        for (path, methods) in paths
            .iter()
            .filter(|(path, _)| !path.starts_with("/v1/leases/"))
        {
            for method in ["put", "post", "delete"] {
                if let Some(change) = methods.get(method) {
                    assert!(change["responses"]["500"].is_object(), "{method} {path}");
                    changes += 1;
                }
            }
        }
        assert!(changes >= 7, "{changes}");
    }
}
