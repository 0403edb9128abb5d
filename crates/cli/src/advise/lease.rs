//! The lease file of an advice.

use leasehold_lease::TenantSpec;
use std::path::Path;

/// The text of a lease file with this tenant: what it says of program, surroundings and the three
/// reservations.
pub(super) fn file(tenant: &TenantSpec) -> String {
    let lease = &tenant.lease;
    let mut lines = vec![
        format!("[tenant.{}]", tenant.name),
        format!("component = {}", path(&absolute(&tenant.component))),
    ];
    let list = |items: Vec<String>| items.join(", ");
    if !tenant.args.is_empty() {
        let args = tenant.args.iter().map(|arg| text(arg)).collect();
        lines.push(format!("args      = [{}]", list(args)));
    }
    if !tenant.env.is_empty() {
        let env = tenant.env.iter();
        let env = env.map(|env| format!("{} = {}", text(&env.name), text(&env.value)));
        lines.push(format!("env       = {{ {} }}", list(env.collect())));
    }
    if !tenant.dirs.is_empty() {
        let dirs = tenant.dirs.iter().map(|dir| {
            let host = path(&absolute(&dir.host));
            let (guest, write) = (text(&dir.guest), dir.write);
            format!("{{ host = {host}, guest = {guest}, write = {write} }}")
        });
        lines.push(format!("dirs      = [{}]", list(dirs.collect())));
    }
    let budget = lease.reclaim.budget;
    lines.push(format!("reclaim   = {{ budget = \"{budget}\" }}"));
    if let Some(cpu) = &lease.cpu {
        let (budget, period) = (cpu.budget(), cpu.period());
        lines.push(format!(
            "cpu       = {{ budget = \"{budget}\", period = \"{period}\" }}"
        ));
    }
    let reserve = lease.memory.reserve;
    lines.push(match (&lease.memory.paging, &tenant.swap) {
        (Some(paging), Some(swap)) => format!(
            "memory    = {{ reserve = \"{reserve}\", limit = \"{}\", swap = {}, shared = \"{}\" }}",
            paging.limit,
            path(swap),
            paging.shared
        ),
        _ => format!("memory    = {{ reserve = \"{reserve}\" }}"),
    });
    lines.push(String::new());
    lines.join("\n")
}

/// A path that means the same in any directory.
fn absolute(path: &Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn path(path: &Path) -> String {
    text(&path.to_string_lossy())
}

/// A basic string of TOML, which escapes as JSON does, and the deletion besides.
fn text(text: &str) -> String {
    let json = serde_json::Value::from(text).to_string();
    json.replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::file;
    use crate::advise::{paging, reservations};
    use leasehold_lease::{ByteSize, Directory, EnvVar, Lease, LeaseFile, Nanoseconds, TenantSpec};
    use std::path::Path;

    fn tenant() -> TenantSpec {
        let mut lease = Lease::default();
        lease.reclaim.budget = Nanoseconds::new(2_600_000).expect("in range");
        lease.memory.reserve = ByteSize::new(192 << 10).expect("in range");
        lease.cpu =
            reservations::reservation(1_300_000, Nanoseconds::new(10_000_000).expect("in range"));
        TenantSpec {
            name: "a-program".into(),
            component: "/programs/with \"quotes\".wasm".into(),
            args: vec!["a\\b \"c\"\n\u{7f}é".into(), String::new()],
            env: vec![EnvVar {
                name: "a.b c".into(),
                value: "\t=".into(),
            }],
            dirs: vec![Directory {
                host: "/data".into(),
                guest: "/d\\".into(),
                write: false,
            }],
            config: Vec::new(),
            data: Vec::new(),
            keyvalue: None,
            outgoing: None,
            swap: None,
            http: None,
            restart: leasehold_lease::Restart::Never,
            lease,
        }
    }

    #[test]
    fn a_lease_file_means_the_tenant_that_it_was_written_for() {
        let read = |tenant: &TenantSpec| {
            let text = file(tenant);
            let file = LeaseFile::parse(&text, Path::new("/leases/lease.toml"));
            file.unwrap_or_else(|error| panic!("{error}: {text}"))
                .tenants
        };
        let mut tenant = tenant();
        assert_eq!(read(&tenant), [tenant.clone()]);
        let limit = ByteSize::new(1 << 20).expect("in range");
        tenant.lease = paging(tenant.lease, limit);
        tenant.swap = Some("/var/tmp/a.swap".into());
        assert_eq!(read(&tenant), [tenant.clone()]);
    }
}
