//! Routes below `/v1/tenants`.

use super::json_table::toml_of;
use super::{Api, LONG};
use crate::controller::Controller;
use crate::problem::Problem;
use crate::supervisor::Supervisor;
use crate::view::{
    End, ErrorBody, ErrorKind, MemoryUse, Processor, Requests, Statement, Tenant, Tenants,
};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use leasehold_lease::Nanoseconds;
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::oneshot;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// How long requests that are under way may take when a tenant is drained.
const GRACE: Duration = Duration::from_secs(10);
/// How long a client waits for an end that it did not order, if it does not say.
const POLL: Duration = Duration::from_secs(60);

pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(one, put, delete))
        .routes(routes!(kill))
        .routes(routes!(start))
        .routes(routes!(replace))
        .routes(routes!(drain))
        .routes(routes!(wait))
        .routes(routes!(statement))
        .routes(routes!(processor))
        .routes(routes!(memory))
        .routes(routes!(requests))
}

/// All tenants.
#[utoipa::path(get, path = "/v1/tenants", responses((status = 200, body = Tenants)))]
async fn list(State(api): State<Api>) -> Result<Json<Tenants>, Problem> {
    let tenants = api.controller.ask(Supervisor::tenants).await?;
    Ok(Json(Tenants { tenants }))
}

/// A tenant.
#[utoipa::path(get, path = "/v1/tenants/{name}", params(("name" = String, Path)),
    responses((status = 200, body = Tenant), (status = 404, body = ErrorBody)))]
async fn one(State(api): State<Api>, Path(name): Path<String>) -> Result<Json<Tenant>, Problem> {
    Ok(Json(
        api.controller
            .ask(move |supervisor| supervisor.tenant(&name))
            .await??,
    ))
}

/// Puts a tenant: the table `[tenant.NAME]` of a lease file as TOML, or JSON of the same shape. 201 if it is
/// new, 200 if it was replaced or is unchanged.
#[utoipa::path(put, path = "/v1/tenants/{name}", params(("name" = String, Path)),
    request_body(content = String, content_type = "application/toml"),
    responses((status = 200, body = Tenant), (status = 201, body = Tenant), (status = 400, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 503, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
async fn put(
    State(api): State<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: String,
) -> Result<Response, Problem> {
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    let text = match is_json {
        true => of_json(&name, &body)?,
        false => body,
    };
    let _place = api.long.take()?;
    let (sender, answer) = oneshot::channel();
    api.controller
        .ask(move |supervisor| supervisor.put(name, text, sender))
        .await?;
    let (tenant, is_new) = Controller::answer(answer, LONG).await??;
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(tenant)).into_response())
}

/// Kills a tenant and forgets it. 202 if there was one, 204 if not. A change that is about to bring the tenant does not:
/// a PUT is refused with 409.
#[utoipa::path(delete, path = "/v1/tenants/{name}", params(("name" = String, Path)),
    responses((status = 202), (status = 204), (status = 503, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
async fn delete(State(api): State<Api>, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let deleted = api
        .controller
        .ask(move |supervisor| supervisor.delete(&name))
        .await??;
    Ok(if deleted {
        StatusCode::ACCEPTED
    } else {
        StatusCode::NO_CONTENT
    })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Kill {
    /// Whether the answer waits for the end; otherwise it is 202.
    wait: Option<bool>,
}

/// Kills a tenant, and tells its end. It stays known, and is not started again. 409 if it has never run: one that a
/// change is about to bring stays stopped.
#[utoipa::path(post, path = "/v1/tenants/{name}/kill", params(("name" = String, Path), Kill),
    responses((status = 200, body = End), (status = 202), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
async fn kill(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(Kill { wait }): Query<Kill>,
) -> Result<Response, Problem> {
    // The supervisor, which may be busy, then learns of it, and tells the end.
    api.controller.killers().kill(&name);
    let end = api
        .controller
        .ask(move |supervisor| supervisor.kill(&name))
        .await??;
    match wait {
        Some(false) => Ok(StatusCode::ACCEPTED.into_response()),
        _ => Ok(Json(Controller::answer(end, LONG).await??).into_response()),
    }
}

/// Starts a tenant again that was stopped or has ended.
#[utoipa::path(post, path = "/v1/tenants/{name}/start", params(("name" = String, Path)),
    responses((status = 200, body = Tenant), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 503, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
async fn start(State(api): State<Api>, Path(name): Path<String>) -> Result<Json<Tenant>, Problem> {
    let _place = api.long.take()?;
    let begun = api
        .controller
        .ask(move |supervisor| supervisor.start_again(&name))
        .await??;
    Ok(Json(Controller::answer(begun, LONG).await??))
}

/// Loads a tenant's program again, and starts a new one in its place. No request is lost.
#[utoipa::path(post, path = "/v1/tenants/{name}/replace", params(("name" = String, Path)),
    responses((status = 200, body = Tenant), (status = 404, body = ErrorBody), (status = 422, body = ErrorBody), (status = 503, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
async fn replace(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Tenant>, Problem> {
    let _place = api.long.take()?;
    let (sender, answer) = oneshot::channel();
    api.controller
        .ask(move |supervisor| supervisor.replace(name, sender))
        .await?;
    Ok(Json(Controller::answer(answer, LONG).await??))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Drain {
    /// How long requests that are under way may take, such as `10s`.
    grace: Option<String>,
}

/// Takes requests away from a tenant, and ends it when those under way are over. 409 if a change is about to bring it:
/// it stays stopped.
#[utoipa::path(post, path = "/v1/tenants/{name}/drain", params(("name" = String, Path), Drain),
    responses((status = 200, body = Tenant), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
        (status = 500, body = ErrorBody)))]
async fn drain(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(Drain { grace }): Query<Drain>,
) -> Result<Json<Tenant>, Problem> {
    let grace = time("grace", grace.as_deref())?.unwrap_or(GRACE);
    let tenant = api
        .controller
        .ask(move |supervisor| supervisor.drain_tenant(&name, grace))
        .await??;
    Ok(Json(tenant))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct Wait {
    /// How long to wait, such as `60s`.
    timeout: Option<String>,
}

/// Waits for the end of a tenant: 200 with the end, or 202 if it still runs after the time.
#[utoipa::path(get, path = "/v1/tenants/{name}/wait", params(("name" = String, Path), Wait),
    responses((status = 200, body = End), (status = 202), (status = 404, body = ErrorBody), (status = 503, body = ErrorBody)))]
async fn wait(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(Wait { timeout }): Query<Wait>,
) -> Result<Response, Problem> {
    let patience = time("timeout", timeout.as_deref())?.unwrap_or(POLL);
    let _place = api.long.take()?;
    let end = api
        .controller
        .ask(move |supervisor| supervisor.wait(&name))
        .await??;
    match tokio::time::timeout(patience, end).await {
        Ok(Ok(end)) => Ok(Json(end?).into_response()),
        Ok(Err(_)) => Err(Problem::new(ErrorKind::Ending, "the node is ending")),
        Err(_) => Ok(StatusCode::ACCEPTED.into_response()),
    }
}

/// A tenant's reclamation account, by class.
#[utoipa::path(get, path = "/v1/tenants/{name}/statement", params(("name" = String, Path)),
    responses((status = 200, body = Statement), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
async fn statement(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Statement>, Problem> {
    Ok(Json(
        api.controller
            .ask(move |supervisor| supervisor.statement(&name))
            .await??,
    ))
}

/// What a tenant got of the processor.
#[utoipa::path(get, path = "/v1/tenants/{name}/processor", params(("name" = String, Path)),
    responses((status = 200, body = Processor), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
async fn processor(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Processor>, Problem> {
    Ok(Json(
        api.controller
            .ask(move |supervisor| supervisor.processor(&name))
            .await??,
    ))
}

/// How a tenant uses its memory.
#[utoipa::path(get, path = "/v1/tenants/{name}/memory", params(("name" = String, Path)),
    responses((status = 200, body = MemoryUse), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
async fn memory(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<MemoryUse>, Problem> {
    Ok(Json(
        api.controller
            .ask(move |supervisor| supervisor.memory(&name))
            .await??,
    ))
}

/// How a tenant's requests went, and the last 100 of them.
#[utoipa::path(get, path = "/v1/tenants/{name}/requests", params(("name" = String, Path)),
    responses((status = 200, body = Requests), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
async fn requests(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Requests>, Problem> {
    Ok(Json(
        api.controller
            .ask(move |supervisor| supervisor.requests(&name))
            .await??,
    ))
}

fn time(key: &str, text: Option<&str>) -> Result<Option<Duration>, Problem> {
    let parsed = text.map(|text| text.parse::<Nanoseconds>().map(Duration::from));
    parsed
        .transpose()
        .map_err(|error| Problem::new(ErrorKind::BadRequest, format!("{key}: {error}")))
}

/// Returns the TOML of a table of a lease file that is stated as JSON.
fn of_json(name: &str, body: &str) -> Result<String, Problem> {
    let wrong = |found: String| {
        let message = format!(
            "{found}; allowed: a JSON object with the keys of a table [tenant.NAME], each of them once, without null"
        );
        Problem::new(ErrorKind::BadLease, message)
    };
    toml_of(name, body).map_err(|error| wrong(error.to_string()))
}
