//! Which parameters a query may have: those that the description of the interface has for its route, and no other.
//! A name that is not known is a mistake of the client, and often one that matters: `?dryrun=true` is no dry run.

use crate::problem::Problem;
use crate::view::ErrorKind;
use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::{Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// The parameters that each route allows in a query, by path and method in lower case. A route that is not there
/// allows none.
pub(super) struct Parameters(HashMap<(String, String), Vec<String>>);

impl Parameters {
    /// Reads the parameters of all routes from a description: OpenAPI as JSON.
    pub(super) fn of(description: &Value) -> Self {
        let paths = description["paths"].as_object().into_iter().flatten();
        let routes = paths.flat_map(|(path, operations)| {
            let operations = operations.as_object().into_iter().flatten();
            operations.map(move |(method, operation)| {
                let all = operation["parameters"].as_array().into_iter().flatten();
                let names = all
                    .filter(|parameter| parameter["in"] == "query")
                    .filter_map(|parameter| parameter["name"].as_str())
                    .map(str::to_owned)
                    .collect();
                ((path.clone(), method.clone()), names)
            })
        });
        Self(routes.collect())
    }

    /// Checks the parameters of a query.
    ///
    /// # Errors
    /// When the query of a request to this route has a parameter that the description does not have.
    fn check(&self, method: &Method, route: &str, uri: &Uri) -> Result<(), Problem> {
        let asked: Query<Vec<(String, String)>> = Query::try_from_uri(uri)
            .map_err(|error| Problem::new(ErrorKind::BadRequest, error.to_string()))?;
        // A route that answers GET answers HEAD.
        let method = match *method {
            Method::HEAD => "get".to_owned(),
            _ => method.as_str().to_ascii_lowercase(),
        };
        let own = self.0.get(&(route.to_owned(), method));
        let own = own.map(Vec::as_slice).unwrap_or_default();
        let Some((found, _)) = asked.0.iter().find(|(name, _)| !own.contains(name)) else {
            return Ok(());
        };
        let allowed = match own {
            [] => "no parameter".to_owned(),
            own => own.join(", "),
        };
        let message = format!("query: found {found:?}; allowed: {allowed}");
        Err(Problem::new(ErrorKind::BadRequest, message))
    }
}

/// Answers a request with a parameter that its route does not have.
pub(super) async fn known(
    State(parameters): State<Arc<Parameters>>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    // What is at no route is answered with that.
    let checked = route.map_or(Ok(()), |route| {
        parameters.check(request.method(), route.as_str(), request.uri())
    });
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
