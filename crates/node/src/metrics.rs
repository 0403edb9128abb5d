//! The state of a node in the text format of OpenMetrics, which Prometheus reads.
//!
//! [`render`] is a function of what was observed: it reads no clock and keeps nothing. Labels are
//! names of tenants and listeners that the node knows, and of what this program enumerates.

mod ends;
mod family;

pub use ends::Ends;
pub use family::{FAMILIES, Family, Kind, table};

use crate::trace::Exports;
use crate::view::{Desired, Snapshot, State, Tenant};
use ends::{RATIOS, Ratios};
use leasehold_front::{Connections, Distribution, Outcome, SiteSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// The media type of what [`render`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The buckets of requests' times, ns: OpenTelemetry's, and below them, where guests answer, 100 µs
/// to 2.5 ms; above them the longest timeouts.
const TIMES: [u64; 21] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    75_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    750_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    7_500_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];

/// What was observed of a node at one time.
#[derive(Debug)]
pub struct Observation {
    /// The node and its tenants.
    pub snapshot: Snapshot,
    /// The tenants that answer requests.
    pub sites: Vec<SiteSnapshot>,
    /// The listeners, by name.
    pub listeners: Vec<(String, Connections)>,
    /// All ends since the node began.
    pub ends: Ends,
    /// Reloads of the lease file.
    pub reloads: Reloads,
    /// What became of spans, if requests are traced.
    pub exports: Option<Exports>,
}

/// How often the lease file was read again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reloads {
    /// The tenants became those of the file.
    pub done: u64,
    /// The file was refused, and nothing changed.
    pub refused: u64,
}

impl Reloads {
    /// Counts a reload.
    pub fn count(&mut self, is_done: bool) {
        match is_done {
            true => self.done += 1,
            false => self.refused += 1,
        }
    }
}

/// Returns the text of all metrics. O(tenants + listeners + rows), a few KiB for each tenant.
pub fn render(observation: Observation) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(observation));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes any text");
    text
}

impl Collector for Observation {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.node(&mut page)?;
        self.tenants(&mut page)?;
        self.requests(&mut page)?;
        self.connections(&mut page)?;
        self.ends(&mut page)?;
        self.steps(&mut page)?;
        self.costs(&mut page)?;
        self.spans(&mut page)
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The page while it is written.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn family(&mut self, family: Family) -> Result<MetricEncoder<'_>, fmt::Error> {
        let kind = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        self.0
            .encode_descriptor(family.name, family.help, None, kind)
    }

    /// Writes one value for each row, which has the values of the labels, in the order of the table, and the
    /// value. A family without rows is left out.
    fn values<const N: usize>(
        &mut self,
        family: Family,
        rows: impl IntoIterator<Item = ([String; N], f64)>,
    ) -> fmt::Result {
        debug_assert_eq!(family.labels.len(), N, "{}", family.name);
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut metrics = self.family(family)?;
        for (labels, value) in rows {
            let labels: Vec<_> = family.labels.iter().copied().zip(labels).collect();
            let mut metric = metrics.encode_family(&labels)?;
            match family.kind {
                Kind::Counter => metric.encode_counter::<NoLabelSet, _, f64>(&value, None)?,
                Kind::Gauge | Kind::Histogram => metric.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn value(&mut self, family: Family, value: f64) -> fmt::Result {
        let mut metric = self.family(family)?;
        match family.kind {
            Kind::Counter => metric.encode_counter::<NoLabelSet, _, f64>(&value, None),
            Kind::Gauge | Kind::Histogram => metric.encode_gauge(&value),
        }
    }

    fn ratios(&mut self, family: Family, ratios: &Ratios) -> fmt::Result {
        let bounds = RATIOS.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(ratios.buckets).collect();
        let count = ratios.buckets.iter().sum();
        let mut metric = self.family(family)?;
        metric.encode_histogram::<NoLabelSet>(ratios.sum, count, &buckets, None)
    }

    fn times<'b>(
        &mut self,
        family: Family,
        rows: impl Iterator<Item = (&'b str, &'b Distribution)>,
    ) -> fmt::Result {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut metrics = self.family(family)?;
        for (tenant, times) in rows {
            let mut before = 0;
            let mut bucket = |bound: f64, below: u64| {
                let own = below - before;
                before = below;
                (bound, own)
            };
            let mut buckets: Vec<_> = TIMES
                .iter()
                .map(|ns| bucket(seconds(*ns), times.at_most(*ns)))
                .collect();
            buckets.push(bucket(f64::INFINITY, times.count()));
            let labels = [(family.labels[0], tenant)];
            let mut metric = metrics.encode_family(&labels)?;
            let sum = seconds(times.sum_ns());
            metric.encode_histogram::<NoLabelSet>(sum, times.count(), &buckets, None)?;
        }
        Ok(())
    }
}

impl Observation {
    fn node(&self, page: &mut Page<'_>) -> fmt::Result {
        let node = &self.snapshot.node;
        let started = node.started_at.as_millisecond() as f64 / 1e3;
        page.values(family::BUILD, [([node.version.clone()], 1.0)])?;
        page.value(family::START_TIME, started)?;
        page.value(family::SCHEDULABLE, f64::from(u8::from(node.schedulable)))?;
        page.value(family::UTILIZATION, node.utilization)?;
        page.value(family::EVENTS, self.snapshot.last_event as f64)?;
        let Reloads { done, refused } = self.reloads;
        let outcomes = [("done", done), ("refused", refused)];
        let rows = outcomes.map(|(outcome, count)| ([outcome.to_owned()], count as f64));
        page.values(family::RELOADS, rows)
    }

    fn tenants(&self, page: &mut Page<'_>) -> fmt::Result {
        for (family, value) in TENANT {
            let rows = self.snapshot.tenants.iter().filter_map(|tenant| {
                let value = value(tenant)?;
                Some(([tenant.name.clone()], value))
            });
            page.values(family, rows)?;
        }
        let sent = self.snapshot.tenants.iter().flat_map(|tenant| {
            let outcomes = tenant.outgoing.iter().flat_map(|it| &it.outcomes);
            outcomes.map(|(outcome, count)| ([tenant.name.clone(), outcome.clone()], *count as f64))
        });
        page.values(family::SENT_REQUESTS, sent)
    }

    fn requests(&self, page: &mut Page<'_>) -> fmt::Result {
        let times = self.sites.iter().map(|site| (&*site.name, &site.answered));
        page.times(family::DURATION, times)?;
        for (family, value) in SITE {
            let rows = self.sites.iter();
            page.values(family, rows.map(|site| ([site.name.clone()], value(site))))?;
        }
        let outcomes = self.sites.iter().flat_map(|site| {
            Outcome::ALL.map(|outcome| {
                let labels = [site.name.clone(), outcome.name().to_owned()];
                (labels, site.outcomes.of(outcome) as f64)
            })
        });
        page.values(family::REQUESTS, outcomes)
    }

    fn connections(&self, page: &mut Page<'_>) -> fmt::Result {
        for (family, value) in LISTENER {
            let rows = self.listeners.iter();
            let row = |(name, counts): &(String, _)| ([name.clone()], value(counts) as f64);
            page.values(family, rows.map(row))?;
        }
        let refused = self.listeners.iter().flat_map(|(name, counts)| {
            let reasons = [
                ("listener", counts.refused_by_listener),
                ("source", counts.refused_by_source),
            ];
            reasons.map(|(reason, count)| ([name.clone(), reason.to_owned()], count as f64))
        });
        page.values(family::CONNECTIONS_REFUSED, refused)
    }

    fn ends(&self, page: &mut Page<'_>) -> fmt::Result {
        let tenants = || self.ends.tenants.iter();
        let exits = tenants().flat_map(|(name, ends)| {
            let row =
                |(exit, count): (&&str, &u64)| ([name.clone(), (*exit).to_owned()], *count as f64);
            ends.exits.iter().map(row)
        });
        page.values(family::ENDS, exits)?;
        // Those that are known have a value before anything is broken, so that an increase is seen.
        let names = || self.snapshot.tenants.iter().map(|tenant| &tenant.name);
        let ends_of = |name: &String| self.ends.tenants.get(name);
        let bounds = names().map(|name| {
            let broken = ends_of(name).map_or(0, |ends| ends.bounds_broken);
            ([name.clone()], broken as f64)
        });
        page.values(family::BOUNDS_BROKEN, bounds)?;
        let predictions = names().map(|name| {
            let broken = ends_of(name).map_or(0, |ends| ends.predictions_broken);
            ([name.clone()], broken as f64)
        });
        page.values(family::PREDICTIONS_BROKEN, predictions)?;
        page.ratios(family::MEASURED_RATIO, &self.ends.measured)?;
        page.ratios(family::BOUND_RATIO, &self.ends.wall)
    }

    fn steps(&self, page: &mut Page<'_>) -> fmt::Result {
        type Value = fn(&crate::view::Step) -> f64;
        let families: [(Family, Value); 5] = [
            (family::STEPS, |step| step.steps as f64),
            (family::STEPS_EXCEEDED, |step| step.exceeded as f64),
            (family::STEPS_DISTURBED, |step| step.disturbed as f64),
            (family::STEP_LONGEST, |step| seconds(step.longest_ns)),
            (family::STEP_LIMIT, |step| seconds(step.limit_ns)),
        ];
        for (family, value) in families {
            let rows = self.snapshot.steps.iter();
            page.values(family, rows.map(|step| ([step.row.clone()], value(step))))?;
        }
        Ok(())
    }

    fn costs(&self, page: &mut Page<'_>) -> fmt::Result {
        type Value = fn(&crate::view::Cost) -> f64;
        let families: [(Family, Value); 4] = [
            (family::COST_SAMPLES, |cost| cost.samples as f64),
            (family::COST_EXCEEDED, |cost| cost.exceeded as f64),
            (family::COST_DRIFTS, |cost| cost.drifts as f64),
            (family::COST_PRICE, |cost| cost.price),
        ];
        for (family, value) in families {
            let rows = self.snapshot.costs.iter();
            page.values(family, rows.map(|cost| ([cost.class.clone()], value(cost))))?;
        }
        let commands = || self.snapshot.control.iter();
        let counts = commands().map(|it| ([it.kind.clone()], it.count as f64));
        page.values(family::COMMANDS, counts)?;
        let times = commands().map(|it| ([it.kind.clone()], seconds(it.total_ns)));
        page.values(family::COMMANDS_TIME, times)
    }

    fn spans(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(exports) = self.exports else {
            return Ok(());
        };
        page.value(family::SPANS_EXPORTED, exports.exported as f64)?;
        let lost = [("full", exports.dropped), ("failed", exports.failed)];
        let rows = lost.map(|(reason, count)| ([reason.to_owned()], count as f64));
        page.values(family::SPANS_LOST, rows)
    }
}

/// The value of a tenant, if it has one now.
type OfTenant = fn(&Tenant) -> Option<f64>;

const TENANT: [(Family, OfTenant); 25] = [
    (family::UP, |tenant| {
        let runs = [
            State::Running,
            State::Ready,
            State::Blocked,
            State::Depleted,
        ];
        Some(f64::from(u8::from(runs.contains(&tenant.state))))
    }),
    (family::WANTED, |tenant| {
        Some(f64::from(u8::from(tenant.desired == Desired::Running)))
    }),
    (family::RESTARTS, |tenant| Some(f64::from(tenant.restarts))),
    (family::RECLAIM_BUDGET, |tenant| {
        Some(seconds(tenant.reclaim.budget_ns))
    }),
    (family::RECLAIM_CHARGED, |tenant| {
        tenant.reclaim.charged_ns.map(seconds)
    }),
    (family::RECLAIM_LEFT, |tenant| {
        let charged = tenant.reclaim.charged_ns?;
        Some(seconds(tenant.reclaim.budget_ns.saturating_sub(charged)))
    }),
    (family::PROCESSOR_BUDGET, |tenant| {
        tenant.cpu.as_ref().map(|cpu| seconds(cpu.budget_ns))
    }),
    (family::PROCESSOR_PERIOD, |tenant| {
        tenant.cpu.as_ref().map(|cpu| seconds(cpu.period_ns))
    }),
    (family::PROCESSOR_LEFT, |tenant| {
        tenant.processor.as_ref()?.left_ns.map(seconds)
    }),
    (family::PROCESSOR_USED, |tenant| {
        tenant
            .processor
            .as_ref()
            .map(|it| seconds(it.supply.used_ns))
    }),
    (family::DISPATCHES, |tenant| {
        tenant
            .processor
            .as_ref()
            .map(|it| it.supply.dispatches as f64)
    }),
    (family::REPLENISHMENTS, |tenant| {
        tenant
            .processor
            .as_ref()
            .map(|it| it.supply.replenishments as f64)
    }),
    (family::PREEMPTIONS, |tenant| {
        tenant
            .processor
            .as_ref()
            .map(|it| it.supply.preemptions as f64)
    }),
    (family::DEPLETIONS, |tenant| {
        tenant
            .processor
            .as_ref()
            .map(|it| it.supply.depletions as f64)
    }),
    (family::MISSES, |tenant| {
        tenant.processor.as_ref().map(|it| it.supply.misses as f64)
    }),
    (family::OVERRUN, |tenant| {
        tenant
            .processor
            .as_ref()
            .map(|it| seconds(it.supply.overrun_max_ns))
    }),
    (family::MEMORY_RESERVE, |tenant| {
        Some(tenant.memory.reserve_bytes as f64)
    }),
    (family::MEMORY_LIMIT, |tenant| {
        Some(tenant.memory.limit_bytes as f64)
    }),
    (family::MEMORY_USED, |tenant| {
        tenant.memory.used_bytes.map(|bytes| bytes as f64)
    }),
    (family::MEMORY_LEFT, |tenant| {
        let used = tenant.memory.used_bytes?;
        Some(tenant.memory.limit_bytes.saturating_sub(used) as f64)
    }),
    (family::QUEUE_LIMIT, |tenant| {
        tenant.http.as_ref().map(|http| f64::from(http.queue))
    }),
    (family::CONCURRENCY_LIMIT, |tenant| {
        tenant.http.as_ref().map(|http| f64::from(http.concurrency))
    }),
    (family::SENDING, |tenant| {
        tenant.outgoing.as_ref().map(|it| f64::from(it.active))
    }),
    (family::SENDING_LIMIT, |tenant| {
        tenant.outgoing.as_ref().map(|it| f64::from(it.concurrency))
    }),
    (family::SENDING_USED, |tenant| {
        tenant.outgoing.as_ref().map(|it| seconds(it.processor_ns))
    }),
];

/// The value of a tenant that answers requests.
type OfSite = fn(&SiteSnapshot) -> f64;

const SITE: [(Family, OfSite); 5] = [
    (family::ACTIVE, |site| site.active as f64),
    (family::WAITING, |site| site.waiting as f64),
    (family::RECEIVED, |site| site.received_bytes as f64),
    (family::SENT, |site| site.sent_bytes as f64),
    (family::FRONT_USED, |site| seconds(site.processor_ns)),
];

/// The value of a listener.
type OfListener = fn(&Connections) -> u64;

const LISTENER: [(Family, OfListener); 3] = [
    (family::CONNECTIONS_OPEN, |counts| counts.open),
    (family::CONNECTIONS, |counts| counts.admitted),
    (family::HANDSHAKES_FAILED, |counts| counts.failed_handshakes),
];
