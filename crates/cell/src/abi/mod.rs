//! The two forms in which a guest reaches the kernel ([`core`] for modules, [`component`] for
//! components), and the linkers that offer them together with WASI.

mod blocking;
mod component;
mod core;
mod spawn;

use crate::guest::Guest;
use crate::host;
use crate::wasi;
use wasmtime::component::Linker as ComponentLinker;
use wasmtime::{Engine, Linker};

/// Links WASI and the kernel for modules.
///
/// # Errors
/// When something is linked twice, which is a defect.
pub(crate) fn link_module(engine: &Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker = Linker::new(engine);
    host::preview1::link(&mut linker)?;
    core::link(&mut linker)?;
    Ok(linker)
}

/// Links WASI and the kernel for components: a millisecond or two.
///
/// # Errors
/// When something is linked twice, which is a defect.
pub(crate) fn link_component(engine: &Engine) -> wasmtime::Result<ComponentLinker<Guest>> {
    let mut linker = ComponentLinker::new(engine);
    wasi::link_component(&mut linker)?;
    component::link(&mut linker)?;
    Ok(linker)
}

#[cfg(test)]
mod tests {
    use super::{link_component, link_module};
    use crate::engine_config::engine_config;
    use crate::guest::Guest;
    use crate::steps::RowId;
    use crate::steps::table::{CELL, ENGINE, KERNEL, PREVIEW1};
    use leasehold_preempt::Mechanism;
    use wasmtime::{Engine, Linker, component};

    struct Linkers {
        module: Linker<Guest>,
        component: component::Linker<Guest>,
    }

    /// Whether the linkers have a function or resource of this row: what is there cannot be defined
    /// again.
    fn is_linked(linkers: &mut Linkers, interface: &str, name: &str) -> bool {
        if matches!(interface, PREVIEW1 | KERNEL) {
            return linkers.module.func_wrap(interface, name, || {}).is_err();
        }
        let version = match interface.split_once('/').map_or("", |(package, _)| package) {
            "wasi:config" => "0.2.0-rc.1",
            "wasi:keyvalue" => "0.2.0-draft",
            "wasi:logging" => "0.1.0-draft",
            "leasehold:kernel" => "0.1.0",
            _ => "0.2.12",
        };
        let interface = format!("{interface}@{version}");
        let mut instance = linkers.component.instance(&interface).expect("an instance");
        match name.strip_prefix("[resource-drop]") {
            Some(resource) => {
                let kind = wasmtime::component::ResourceType::host::<u8>();
                instance.resource(resource, kind, |_, _| Ok(())).is_err()
            }
            None => instance.func_wrap(name, |_, (): ()| Ok(())).is_err(),
        }
    }

    #[test]
    fn every_row_of_an_import_is_linked() {
        let engine = Engine::new(&engine_config(Mechanism::Injected)).expect("an engine");
        let mut linkers = Linkers {
            module: link_module(&engine).expect("linked once"),
            component: link_component(&engine).expect("linked once"),
        };
        let rows = RowId::all().map(RowId::row);
        let imports = rows.filter(|row| !matches!(row.interface, ENGINE | CELL));
        let missing: Vec<String> = imports
            .filter(|row| !is_linked(&mut linkers, row.interface, row.name))
            .map(|row| row.title())
            .collect();
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn the_functions_of_the_interface_are_those_with_rows() {
        let rows = RowId::all().map(RowId::row);
        let names = |name: &&str| RowId::find(KERNEL, name).is_none();
        let without: Vec<&str> = leasehold_abi::FUNCTIONS.into_iter().filter(names).collect();
        assert_eq!(without, Vec::<&str>::new());
        let functions = rows.filter(|row| row.interface == KERNEL).count();
        assert_eq!(functions, leasehold_abi::FUNCTIONS.len());
    }

    #[test]
    fn no_two_rows_have_the_same_name() {
        for id in RowId::all() {
            let row = id.row();
            assert_eq!(
                RowId::find(row.interface, row.name),
                Some(id),
                "{}",
                row.title()
            );
        }
    }
}
