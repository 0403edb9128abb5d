//! The engine's bindings of `wasi:http`.

mod generated {
    #![allow(missing_docs, reason = "made by a macro")]
    wasmtime::component::bindgen!({
        path: "wit/http",
        world: "leasehold:http/handler",
        imports: { default: trappable },
        exports: { default: async },
        require_store_data_send: true,
        with: {
            "wasi:io": wasmtime_wasi_io::bindings::wasi::io,
            "wasi:http/types.fields": crate::wasi::http::kinds::Fields,
            "wasi:http/types.incoming-request": crate::wasi::http::kinds::IncomingRequest,
            "wasi:http/types.outgoing-request": crate::wasi::http::kinds::OutgoingRequest,
            "wasi:http/types.request-options": crate::wasi::http::kinds::RequestOptions,
            "wasi:http/types.response-outparam": crate::wasi::http::kinds::ResponseOutparam,
            "wasi:http/types.incoming-response": crate::wasi::http::kinds::IncomingResponse,
            "wasi:http/types.incoming-body": crate::wasi::http::kinds::IncomingBody,
            "wasi:http/types.future-trailers": crate::wasi::http::kinds::FutureTrailers,
            "wasi:http/types.outgoing-response": crate::wasi::http::kinds::OutgoingResponse,
            "wasi:http/types.outgoing-body": crate::wasi::http::kinds::OutgoingBody,
            "wasi:http/types.future-incoming-response": crate::wasi::http::kinds::FutureIncomingResponse,
        },
    });
}

pub(crate) use generated::HandlerPre;
pub(crate) use generated::wasi::http::{outgoing_handler, types};
