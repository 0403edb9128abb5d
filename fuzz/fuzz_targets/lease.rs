//! Lease files are untrusted text: for any text the parser ends without a panic, with one line of
//! error or with leases that read the same when they are written again.
#![no_main]

use std::fmt::Write;
use std::path::Path;

use leasehold_lease::{
    ByteSize, Cpu, Directory, EnvVar, LeaseFile, Nanoseconds, Paging, PagingFlag, TenantSpec,
    Workload,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    flags(text);
    let origin = Path::new("lease.toml");
    match LeaseFile::parse(text, origin) {
        Ok(file) => {
            let tenants: String = file.tenants.iter().map(toml_of).collect();
            let workloads: String = file.workloads.iter().map(workload_of).collect();
            let order = file.order;
            let memory = file
                .memory
                .map_or_else(String::new, |n| format!("memory = \"{n}\"\n"));
            let written = format!("[cell]\norder = \"{order}\"\n{memory}{tenants}{workloads}");
            let read = LeaseFile::parse(&written, origin);
            assert_eq!(read.expect(&written), file, "{written}");
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("lease.toml:"), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
});

/// The values of flags come from a command line rather than a file, but share the grammar.
fn flags(text: &str) {
    if let Ok(time) = text.parse::<Nanoseconds>() {
        assert_eq!(time.to_string().parse(), Ok(time));
    }
    if let Ok(size) = text.parse::<ByteSize>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    if let Ok(var) = text.parse::<EnvVar>() {
        assert_eq!(format!("{}={}", var.name, var.value), text);
    }
    if let Ok(cpu) = text.parse::<Cpu>() {
        assert_eq!(cpu.to_string().parse(), Ok(cpu));
    }
    if let Ok(workload) = text.parse::<Workload>() {
        assert_eq!(workload.to_string().parse(), Ok(workload));
    }
    let _ = text.parse::<PagingFlag>();
    let _ = text.parse::<Directory>();
}

/// The tenant as a table of a lease file, every key spelled out.
fn toml_of(tenant: &TenantSpec) -> String {
    let path = |path: &Path| string(path.to_str().expect("made of text"));
    let list = |items: Vec<String>| items.join(", ");
    let args = list(tenant.args.iter().map(|arg| string(arg)).collect());
    let var = |var: &EnvVar| format!("{} = {}", string(&var.name), string(&var.value));
    let env = list(tenant.env.iter().map(var).collect());
    let dir = |dir: &Directory| {
        let (host, guest, write) = (path(&dir.host), string(&dir.guest), dir.write);
        format!("{{ host = {host}, guest = {guest}, write = {write} }}")
    };
    let dirs = list(tenant.dirs.iter().map(dir).collect());
    let component = path(&tenant.component);
    let budget = tenant.lease.reclaim.budget;
    let call_bytes = tenant.lease.reclaim.call_bytes;
    let call_bytes = call_bytes.map_or_else(String::new, |n| format!(", call_bytes = \"{n}\""));
    let (reserve, elements) = (
        tenant.lease.memory.reserve,
        tenant.lease.memory.table_elements,
    );
    let paging = tenant
        .lease
        .memory
        .paging
        .map_or_else(String::new, |paging| {
            let swap = path(
                tenant
                    .swap
                    .as_deref()
                    .expect("a tenant that pages has a file"),
            );
            let Paging {
                limit,
                kind,
                shared,
                mappings,
            } = paging;
            format!(
                ", limit = \"{limit}\", kind = \"{kind}\", shared = \"{shared}\", swap = {swap}, \
                 mappings = {mappings}"
            )
        });
    let cpu = tenant.lease.cpu.map_or_else(String::new, cpu_of);
    format!(
        "[tenant.{}]\n\
         component = {component}\n\
         args = [{args}]\n\
         env = {{ {env} }}\n\
         dirs = [{dirs}]\n\
         reclaim = {{ budget = \"{budget}\"{call_bytes} }}\n\
         memory = {{ reserve = \"{reserve}\", table_elements = {elements}{paging} }}\n\
         {cpu}",
        tenant.name,
    )
}

fn cpu_of(cpu: Cpu) -> String {
    let nonpreemptive = cpu.nonpreemptive();
    let nonpreemptive =
        nonpreemptive.map_or_else(String::new, |n| format!(", nonpreemptive = \"{n}\""));
    format!(
        "cpu = {{ budget = \"{}\", period = \"{}\", priority = {}{nonpreemptive}, \
         policy = \"{}\", replenishments = {}, slice = \"{}\" }}\n",
        cpu.budget(),
        cpu.period(),
        cpu.priority(),
        cpu.policy(),
        cpu.replenishments(),
        cpu.slice(),
    )
}

/// The workload as a table of a lease file: its flag form has the same keys, and numbers are those
/// that do not end in a unit.
fn workload_of((name, workload): (&String, &Workload)) -> String {
    let flag = workload.to_string();
    let mut table = format!("[simulate.{name}]\n");
    for (key, value) in flag.split(',').filter_map(|part| part.split_once('=')) {
        match value.ends_with(|last: char| last.is_ascii_digit()) {
            true => table.push_str(&format!("{key} = {value}\n")),
            false => table.push_str(&format!("{key} = \"{value}\"\n")),
        }
    }
    table
}

/// `text` as a basic string of TOML.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                write!(quoted, "\\u{:04x}", u32::from(c)).expect("a string takes all text");
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
