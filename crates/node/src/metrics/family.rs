//! The table of all metrics: what each is called and means. The page of the book is this table.

/// How values of a family change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Values that only grow, until what they count begins anew.
    Counter,
    /// Values that go up and down.
    Gauge,
    /// Distributions.
    Histogram,
}

/// Metrics with one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// The name, without what the format adds (`_total`, `_bucket`).
    pub name: &'static str,
    /// How the values change.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// The description, without a full stop.
    pub help: &'static str,
}

macro_rules! families {
    ($($id:ident $kind:ident $name:literal [$($label:literal)*] $help:literal;)*) => {
        $(
            pub(super) const $id: Family = Family {
                name: $name,
                kind: Kind::$kind,
                labels: &[$($label),*],
                help: $help,
            };
        )*

        /// All metrics, in the order of the page.
        pub const FAMILIES: &[Family] = &[$($id),*];
    };
}

families! {
    BUILD Gauge "leasehold_build_info" ["version"] "1, with the version of the node";
    START_TIME Gauge "leasehold_start_time_seconds" [] "When tenants were first allowed to run, as Unix time";
    SCHEDULABLE Gauge "leasehold_schedulable" [] "1 if the reservations of all tenants can be kept together";
    UTILIZATION Gauge "leasehold_utilization_ratio" [] "The part of a processor that is reserved";
    EVENTS Counter "leasehold_events" [] "Events of the node";
    RELOADS Counter "leasehold_reloads" ["outcome"] "Times that the lease file was read again: done, or refused, which changes nothing";

    UP Gauge "leasehold_tenant_up" ["tenant"] "1 while the tenant runs or is ready to";
    WANTED Gauge "leasehold_tenant_wanted" ["tenant"] "1 if the tenant is wanted to run";
    RESTARTS Counter "leasehold_tenant_restarts" ["tenant"] "Times that the tenant was started again after a failure";

    RECLAIM_BUDGET Gauge "leasehold_reclaim_budget_seconds" ["tenant"] "What taking everything back may cost";
    RECLAIM_CHARGED Gauge "leasehold_reclaim_charged_seconds" ["tenant"] "What taking everything back now is predicted to cost, while the tenant runs";
    RECLAIM_LEFT Gauge "leasehold_reclaim_left_seconds" ["tenant"] "What is left of the reclamation budget, while the tenant runs";

    PROCESSOR_BUDGET Gauge "leasehold_processor_budget_seconds" ["tenant"] "Processor time that is reserved in each period";
    PROCESSOR_PERIOD Gauge "leasehold_processor_period_seconds" ["tenant"] "The period of the processor reservation";
    PROCESSOR_LEFT Gauge "leasehold_processor_left_seconds" ["tenant"] "What is left of the budget before the next replenishment";
    PROCESSOR_USED Counter "leasehold_processor_used_seconds" ["tenant"] "Processor time that the tenant ran, since its last start, as the next six";
    DISPATCHES Counter "leasehold_processor_dispatches" ["tenant"] "Times that it was chosen after something else had run";
    REPLENISHMENTS Counter "leasehold_processor_replenishments" ["tenant"] "Replenishments of its budget";
    PREEMPTIONS Counter "leasehold_processor_preemptions" ["tenant"] "Times that something else was chosen while it could have run";
    DEPLETIONS Counter "leasehold_processor_depletions" ["tenant"] "Times that its budget was used up";
    MISSES Counter "leasehold_processor_misses" ["tenant"] "Budgets that it did not get although it was ready";
    OVERRUN Gauge "leasehold_processor_overrun_max_seconds" ["tenant"] "The most that it ever ran beyond its budget";

    MEMORY_RESERVE Gauge "leasehold_memory_reserve_bytes" ["tenant"] "Linear memory that is reserved";
    MEMORY_LIMIT Gauge "leasehold_memory_limit_bytes" ["tenant"] "The limit on its linear memory";
    MEMORY_USED Gauge "leasehold_memory_used_bytes" ["tenant"] "Linear memory that it has, while it runs";
    MEMORY_LEFT Gauge "leasehold_memory_left_bytes" ["tenant"] "What is left below the limit, while it runs";

    DURATION Histogram "http_server_request_duration_seconds" ["tenant"] "From the head of a request to the end of its response, of those that were answered";
    ACTIVE Gauge "http_server_active_requests" ["tenant"] "Requests that are under way, without those that wait";
    WAITING Gauge "leasehold_requests_waiting" ["tenant"] "Requests that wait for the tenant";
    QUEUE_LIMIT Gauge "leasehold_requests_queue_limit" ["tenant"] "How many may wait";
    CONCURRENCY_LIMIT Gauge "leasehold_requests_concurrency_limit" ["tenant"] "How many may be worked on at a time";
    REQUESTS Counter "leasehold_requests" ["tenant" "outcome"] "Requests that are over; full, not-running and refused are the reasons of a 503";
    RECEIVED Counter "leasehold_request_body_bytes" ["tenant"] "Bytes of requests' bodies that came from clients";
    SENT Counter "leasehold_response_body_bytes" ["tenant"] "Bytes of responses' bodies that went to clients";
    FRONT_USED Counter "leasehold_front_processor_seconds" ["tenant"] "Processor time of the I/O thread that the tenant was charged for";

    SENDING Gauge "http_client_active_requests" ["tenant"] "Requests to other hosts, sockets and look-ups that are under way";
    SENDING_LIMIT Gauge "leasehold_outgoing_concurrency_limit" ["tenant"] "How many may be";
    SENT_REQUESTS Counter "leasehold_outgoing_requests" ["tenant" "outcome"] "Requests to other hosts that are over, since the tenant's last start, as the next one";
    SENDING_USED Counter "leasehold_outgoing_processor_seconds" ["tenant"] "Processor time of the I/O thread for them that the tenant was charged for";

    CONNECTIONS_OPEN Gauge "leasehold_connections_open" ["listener"] "Connections that are open";
    CONNECTIONS Counter "leasehold_connections" ["listener"] "Connections that were admitted";
    CONNECTIONS_REFUSED Counter "leasehold_connections_refused" ["listener" "reason"] "Connections that were closed at once: the listener, or the client's address, had as many as it may";
    HANDSHAKES_FAILED Counter "leasehold_tls_handshakes_failed" ["listener"] "TLS handshakes that failed or took too long";

    ENDS Counter "leasehold_ends" ["tenant" "exit"] "Ends of the tenant, by the way in which its program ended";
    BOUNDS_BROKEN Counter "leasehold_end_bound_violations" ["tenant"] "Ends that took longer than their bound";
    PREDICTIONS_BROKEN Counter "leasehold_end_prediction_violations" ["tenant"] "Ends that cost more processor time than was charged for them";
    MEASURED_RATIO Histogram "leasehold_end_measured_to_predicted_ratio" [] "The processor time that an end cost, as a part of what was charged for it";
    BOUND_RATIO Histogram "leasehold_end_wall_to_bound_ratio" [] "The time from a kill until everything was taken back, as a part of its bound";

    STEPS Counter "leasehold_host_steps" ["row"] "Host steps, by row of their table";
    STEPS_EXCEEDED Counter "leasehold_host_steps_exceeded" ["row"] "Host steps that were longer than their row allows";
    STEPS_DISTURBED Counter "leasehold_host_steps_disturbed" ["row"] "Host steps that were perhaps longer only since the host took the processor";
    STEP_LONGEST Gauge "leasehold_host_step_longest_seconds" ["row"] "The longest that was not disturbed";
    STEP_LIMIT Gauge "leasehold_host_step_limit_seconds" ["row"] "How long a step of the row may be, as calibrated";

    COST_SAMPLES Counter "leasehold_cost_samples" ["class"] "Ends that were compared with their charge, by class";
    COST_EXCEEDED Counter "leasehold_cost_exceeded" ["class"] "Those that took longer than was charged";
    COST_DRIFTS Counter "leasehold_cost_drifts" ["class"] "Times that the price of new leases was raised";
    COST_PRICE Gauge "leasehold_cost_price_ratio" ["class"] "What new leases are charged, as a multiple of the profile's price";

    COMMANDS Counter "leasehold_control_commands" ["kind"] "Commands of the controller that the cell's thread obeyed";
    COMMANDS_TIME Counter "leasehold_control_seconds" ["kind"] "The time of the cell's thread that they took";

    SPANS_EXPORTED Counter "leasehold_spans_exported" [] "Requests whose spans a collector took";
    SPANS_LOST Counter "leasehold_spans_lost" ["reason"] "Requests whose spans were lost: the queue was full, or the export failed";
}

impl Family {
    /// Returns the name of the family's first sample, as a query has it.
    pub fn sample(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.name),
            Kind::Gauge => self.name.to_owned(),
            Kind::Histogram => format!("{}_bucket", self.name),
        }
    }
}

/// Returns the table as a page has it, in Markdown.
pub fn table() -> String {
    let row = |family: &Family| {
        let name = match family.kind {
            Kind::Counter => family.sample(),
            Kind::Gauge | Kind::Histogram => family.name.to_owned(),
        };
        let labels: Vec<String> = family.labels.iter().map(|it| format!("`{it}`")).collect();
        let kind = format!("{:?}", family.kind).to_lowercase();
        format!(
            "| `{name}` | {kind} | {} | {} |\n",
            labels.join(", "),
            family.help
        )
    };
    let rows: String = FAMILIES.iter().map(row).collect();
    format!("| name | kind | labels | what it is |\n|---|---|---|---|\n{rows}")
}
