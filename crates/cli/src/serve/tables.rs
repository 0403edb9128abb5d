//! What a server says at its start, and how its requests ended.

use super::{Drained, LeaseFile};
use crate::transit;
use crate::up::table::{Column, lines};
use leasehold_front::{Listening, Outcome as Ended};
use leasehold_node::Ward;
use serde_json::{Value, json};

const fn column(title: &'static str, goes: u8) -> Column {
    Column { title, goes }
}

const ROUTES: [Column; 7] = [
    column("route", 0),
    column("tenant", 0),
    column("at a time", 0),
    column("queue", 0),
    column("timeout", 0),
    column("reuse", 0),
    column("held at most", 0),
];

/// The listeners with their routes and tenants.
pub(super) fn serving(listening: &[Listening], file: &LeaseFile) -> String {
    let mut rows = Vec::new();
    for Listening { name, address, tls } in listening {
        let scheme = if *tls { "https" } else { "http" };
        let of_listener = file
            .tenants
            .iter()
            .filter_map(|tenant| Some((tenant, tenant.http.as_ref()?)))
            .filter(|(_, http)| http.listeners.contains(name));
        for (tenant, http) in of_listener {
            let held = transit::mebibytes(transit::bytes(tenant));
            for route in &http.routes {
                let authority = match &route.host {
                    Some(_) => format!(":{}", address.port()),
                    None => address.to_string(),
                };
                let host = route
                    .host
                    .as_ref()
                    .map_or("", leasehold_lease::Host::as_str);
                let below = if route.below { "/*" } else { "" };
                rows.push(vec![
                    format!("{scheme}://{host}{authority}{}{below}", route.path),
                    tenant.name.clone(),
                    http.concurrency.to_string(),
                    http.queue.to_string(),
                    http.timeout.to_string(),
                    http.reuse.to_string(),
                    held.clone(),
                ]);
            }
        }
    }
    format!("{}\n", lines(&ROUTES, &rows, None).join("\n"))
}

/// How the requests of a server ended.
pub(super) struct Outcome<'a> {
    pub(super) wards: &'a [Ward],
    pub(super) drained: Drained,
}

impl Outcome<'_> {
    /// A table for people.
    pub(super) fn text(&self) -> String {
        let columns: Vec<Column> = ["tenant", "restarts", "requests"]
            .into_iter()
            .chain(Ended::ALL.map(Ended::name))
            .map(|title| column(title, 0))
            .collect();
        let serving = self
            .wards
            .iter()
            .filter_map(|ward| Some((ward, ward.site()?)));
        let rows: Vec<Vec<String>> = serving
            .map(|(ward, site)| {
                let counts = site.counts();
                let outcomes = Ended::ALL.map(|outcome| counts.of(outcome).to_string());
                [
                    ward.spec().name.clone(),
                    ward.restarts().to_string(),
                    counts.all().to_string(),
                ]
                .into_iter()
                .chain(outcomes)
                .collect()
            })
            .collect();
        let abandoned = match self.drained.abandoned {
            0 => String::new(),
            some => format!("connections whose requests were given up at the end: {some}\n"),
        };
        format!("{}\n{abandoned}", lines(&columns, &rows, None).join("\n"))
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        let tenant = |ward: &Ward| {
            let counts = ward.site().map(|site| site.counts());
            let outcomes: Option<serde_json::Map<String, Value>> = counts.map(|counts| {
                let of = |outcome: Ended| (outcome.name().to_owned(), counts.of(outcome).into());
                Ended::ALL.into_iter().map(of).collect()
            });
            let told = json!({ "restarts": ward.restarts(), "requests": outcomes });
            (ward.spec().name.clone(), told)
        };
        let tenants: serde_json::Map<String, Value> = self.wards.iter().map(tenant).collect();
        json!({ "tenants": tenants, "abandoned_connections": self.drained.abandoned })
    }
}
