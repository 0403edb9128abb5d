//! The tenants' lines on the server's own output.

use crate::access_log::Form;
use crate::output::plain;
use leasehold_cell::{Destination, escaped_json};
use leasehold_node::Printer;
use leasehold_node::view::{LogLine, LogStream};
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The server's standard output and standard error, for lines of tenants: each with the tenant's name.
pub(super) struct TenantLines {
    form: Form,
    /// `None` if standard output is for the report only.
    stdout: Option<Destination>,
    stderr: Destination,
    lost: AtomicU64,
}

impl TenantLines {
    /// Starts the threads that write, confined as the calling one.
    pub(super) fn begin(form: Form, mute: bool) -> Arc<Self> {
        Arc::new(Self {
            form,
            stdout: (!mute).then(|| Destination::new("leasehold-out", io::stdout())),
            stderr: Destination::new("leasehold-err", io::stderr()),
            lost: AtomicU64::new(0),
        })
    }

    pub(super) fn printer(self: &Arc<Self>) -> Printer {
        let lines = self.clone();
        Arc::new(move |tenant, line| lines.put(tenant, line))
    }

    fn put(&self, tenant: &str, line: &LogLine) {
        let destination = match line.stream {
            LogStream::Stdout => match &self.stdout {
                Some(stdout) => stdout,
                None => return,
            },
            LogStream::Stderr | LogStream::Host => &self.stderr,
        };
        let text = match (self.form, line.stream) {
            (Form::Json, stream) => {
                let object = json!({
                    "time": line.at,
                    "tenant": tenant,
                    "request": line.request,
                    "stream": stream.name(),
                    "line": line.line,
                });
                format!("{}\n", escaped_json(&object.to_string()))
            }
            (_, LogStream::Host) => format!("leasehold: tenant.{tenant}: {}\n", plain(&line.line)),
            // What the guest has written begins after the first ` | `: a tenant's name has no space.
            _ => match line.request {
                Some(request) => format!("{tenant} {request} | {}\n", plain(&line.line)),
                None => format!("{tenant} | {}\n", plain(&line.line)),
            },
        };
        if !destination.put_for(tenant, text.as_bytes()) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that found no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Where they go.
    pub(super) fn destinations(&self) -> Vec<&Destination> {
        self.stdout.iter().chain([&self.stderr]).collect()
    }
}
