//! The engine's bindings of the interfaces that its library does not bring.

mod plain {
    #![allow(missing_docs, reason = "made by a macro")]
    wasmtime::component::bindgen!({
        path: "wit/interfaces",
        world: "leasehold:interfaces/plain",
        imports: { default: trappable },
    });
}

mod unversioned {
    #![allow(missing_docs, reason = "made by a macro")]
    wasmtime::component::bindgen!({
        path: "wit/logging",
        world: "leasehold:logging/unversioned",
        imports: { default: trappable },
    });
}

mod blocking {
    #![allow(missing_docs, reason = "made by a macro")]
    wasmtime::component::bindgen!({
        path: "wit/interfaces",
        world: "leasehold:interfaces/blocking",
        imports: { default: async | trappable },
        with: {
            "wasi:keyvalue/store.bucket": crate::wasi::keyvalue::BucketHandle,
        },
    });
}

pub(super) use blocking::wasi::keyvalue;
pub(super) use plain::wasi::config::store as config;
pub(super) use plain::wasi::logging::logging;
pub(super) use unversioned::wasi::logging::logging as unversioned_logging;
