//! The changes that a lease file makes when it is read again.

use crate::problem::Problem;
use crate::source::Source;
use crate::supervisor::Facts;
use crate::view::{ErrorKind, Reloaded};
use leasehold_lease::{LeaseFile, TenantSpec};
use std::sync::Arc;

/// A tenant as it is, and the file of its program as it was.
pub(crate) struct Known {
    pub(crate) spec: Arc<TenantSpec>,
    pub(crate) source: Source,
}

/// What a reload does with each tenant.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Goes on as it is.
    pub(crate) kept: Vec<String>,
    /// Goes on: what is new concerns its routes, or its restarts.
    pub(crate) adjusted: Vec<TenantSpec>,
    pub(crate) added: Vec<TenantSpec>,
    /// A new one takes its place.
    pub(crate) replaced: Vec<TenantSpec>,
    pub(crate) removed: Vec<String>,
}

impl Plan {
    /// Compares the tenants of a file, and the files of their programs, with those that are there.
    pub(crate) fn of(
        file: &LeaseFile,
        source: impl Fn(&TenantSpec) -> Source,
        known: &[Known],
    ) -> Self {
        let mut plan = Self::default();
        for tenant in &file.tenants {
            let before = known.iter().find(|known| known.spec.name == tenant.name);
            let Some(Known { spec, source: was }) = before else {
                plan.added.push(tenant.clone());
                continue;
            };
            let is_same_program = || was.is(source(tenant));
            if !goes_on(spec, tenant) || !is_same_program() {
                plan.replaced.push(tenant.clone());
            } else if **spec == *tenant {
                plan.kept.push(tenant.name.clone());
            } else {
                plan.adjusted.push(tenant.clone());
            }
        }
        let is_left = |known: &&Known| {
            let mut tenants = file.tenants.iter();
            !tenants.any(|tenant| tenant.name == known.spec.name)
        };
        let removed = known.iter().filter(is_left);
        plan.removed = removed.map(|known| known.spec.name.clone()).collect();
        plan
    }

    /// Returns the tenants whose programs are loaded: first those that are added.
    pub(crate) fn loaded(&self) -> Vec<TenantSpec> {
        self.added.iter().chain(&self.replaced).cloned().collect()
    }

    /// Whether something ends, so that what has no room may wait for it.
    pub(crate) fn frees(&self) -> bool {
        !self.removed.is_empty() || !self.replaced.is_empty()
    }

    /// Forgets tenants of the file that are not to be there after all.
    pub(crate) fn forget(&mut self, is_deleted: impl Fn(&str) -> bool) {
        self.kept.retain(|name| !is_deleted(name));
        for tenants in [&mut self.adjusted, &mut self.added, &mut self.replaced] {
            tenants.retain(|tenant| !is_deleted(&tenant.name));
        }
    }

    /// Returns the plan as the interface shows it.
    pub(crate) fn view(&self) -> Reloaded {
        let names = |tenants: &[TenantSpec]| {
            let names = tenants.iter().map(|tenant| tenant.name.clone());
            names.collect()
        };
        Reloaded {
            kept: self.kept.clone(),
            adjusted: names(&self.adjusted),
            added: names(&self.added),
            replaced: names(&self.replaced),
            removed: self.removed.clone(),
        }
    }
}

/// Whether a tenant with one table can go on under the other: its program and its lease are the same.
fn goes_on(before: &TenantSpec, after: &TenantSpec) -> bool {
    let mut before = before.clone();
    before.restart = after.restart;
    if let (Some(before), Some(after)) = (&mut before.http, &after.http) {
        before.routes.clone_from(&after.routes);
        before.listeners.clone_from(&after.listeners);
    }
    before == *after
}

/// Whether a file has the listeners and the cell of the start.
///
/// # Errors
/// When it does not: only a start opens sockets, and makes a cell.
pub(crate) fn fixed(file: &LeaseFile, facts: &Facts) -> Result<(), Problem> {
    let changed = |key: &str, found: String, allowed: &str| {
        let message = format!(
            "{}: {key}: found {found}; allowed: {allowed}: another one takes a restart of the node",
            facts.leases.display()
        );
        Err(Problem::new(ErrorKind::Conflict, message))
    };
    // Whatever else a file may say of its cell has to be compared, too.
    let LeaseFile {
        tenants: _,
        listeners,
        order,
        memory,
        code,
        workloads: _,
    } = file;
    for listener in listeners {
        let key = format!("listener.{}", listener.name);
        let mut before = facts.listeners.iter();
        match before.find(|before| before.name == listener.name) {
            None => return changed(&key, "a new listener".to_owned(), "those of the start"),
            Some(before) if before != listener => {
                return changed(&key, "other values".to_owned(), "those of the start");
            }
            Some(_) => {}
        }
    }
    for before in &facts.listeners {
        if !listeners
            .iter()
            .any(|listener| listener.name == before.name)
        {
            let key = format!("listener.{}", before.name);
            return changed(&key, "no such listener".to_owned(), "that of the start");
        }
    }
    let order = order.to_string();
    if order != facts.order {
        return changed(
            "cell.order",
            format!("{order:?}"),
            &format!("{:?}", facts.order),
        );
    }
    let said = |size: Option<leasehold_lease::ByteSize>| {
        size.map_or_else(|| "none".to_owned(), |size| format!("\"{size}\""))
    };
    for (key, found, started) in [
        ("cell.memory", *memory, facts.memory),
        ("cell.code", *code, facts.code),
    ] {
        if found != started {
            return changed(key, said(found), &said(started));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Known, Plan, fixed};
    use crate::source::Source;
    use crate::supervisor::Facts;
    use leasehold_lease::LeaseFile;
    use std::path::Path;
    use std::sync::Arc;

    const LISTENER: &str = "[listener.main]\naddress = \"127.0.0.1:0\"\n";

    fn tenant(name: &str, route: &str, more: &str) -> String {
        format!(
            "[tenant.{name}]\ncomponent = \"{name}\"\nreclaim.budget = \"1ms\"\nhttp.routes = [\"{route}\"]\n{more}\n"
        )
    }

    fn file(directory: &Path, text: &str) -> LeaseFile {
        let text = format!("{LISTENER}{text}");
        LeaseFile::parse(&text, &directory.join("leases.toml")).expect("a lease file")
    }

    #[test]
    fn each_tenant_of_both_files_is_in_one_place_of_the_plan() {
        let directory = tempfile::tempdir().expect("a directory");
        let here = directory.path();
        let names = ["kept", "routed", "leased", "built", "gone", "new"];
        for name in names {
            std::fs::write(here.join(name), name).expect("written");
        }
        let before = names[..5]
            .iter()
            .map(|name| tenant(name, &format!("/{name}"), ""));
        let before = file(here, &before.collect::<String>());
        let known: Vec<Known> = before
            .tenants
            .iter()
            .map(|spec| Known {
                spec: Arc::new(spec.clone()),
                source: Source::read_alone(&spec.component),
            })
            .collect();
        std::fs::write(here.join("built"), "another").expect("written");
        let after = tenant("kept", "/kept", "")
            + &tenant("routed", "/other", "restart = \"on-failure\"")
            + &tenant("leased", "/leased", "args = [\"x\"]")
            + &tenant("built", "/built", "")
            + &tenant("new", "/new", "");
        let after = file(here, &after);
        let plan = Plan::of(&after, |spec| Source::read_alone(&spec.component), &known);
        let view = plan.view();
        assert_eq!(view.kept, ["kept"]);
        assert_eq!(view.adjusted, ["routed"]);
        assert_eq!(view.replaced, ["leased", "built"]);
        assert_eq!(view.added, ["new"]);
        assert_eq!(view.removed, ["gone"]);
        assert!(plan.frees());
    }

    #[test]
    fn what_only_a_start_takes_is_refused_with_its_key() {
        let here = Path::new("/x");
        let before = file(here, &tenant("a", "/*", ""));
        let facts = Facts {
            order: before.order.to_string(),
            confinement: String::new(),
            listeners: before.listeners.clone(),
            memory: before.memory,
            code: before.code,
            leases: here.join("leases.toml"),
        };
        assert!(fixed(&before, &facts).is_ok());
        let more = "[listener.more]\naddress = \"127.0.0.1:0\"\n";
        let rows = [
            (
                format!("{more}{LISTENER}"),
                "listener.more: found a new listener",
            ),
            (
                LISTENER.replace(":0", ":1"),
                "listener.main: found other values",
            ),
            (
                format!("{LISTENER}[cell]\norder = \"earliest-deadline\"\n"),
                "cell.order: found \"earliest-deadline\"; allowed: \"fixed-priority\"",
            ),
            (
                format!("{LISTENER}[cell]\nmemory = \"1GiB\"\n"),
                "cell.memory: found \"1GiB\"; allowed: none",
            ),
            (
                format!("{LISTENER}[cell]\ncode = \"2GiB\"\n"),
                "cell.code: found \"2GiB\"; allowed: none",
            ),
        ];
        for (text, expected) in rows {
            let text = format!("{text}{}", tenant("a", "/*", "http.listeners = [\"main\"]"));
            let file = LeaseFile::parse(&text, &facts.leases).expect("a lease file");
            let problem = fixed(&file, &facts).expect_err("it is refused");
            assert!(problem.message.contains(expected), "{problem}");
            assert!(problem.message.contains("restart"), "{problem}");
        }
    }
}
