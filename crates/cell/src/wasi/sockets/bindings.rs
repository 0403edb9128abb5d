//! The engine's bindings of `wasi:sockets`.

mod generated {
    #![allow(missing_docs, reason = "made by a macro")]
    wasmtime::component::bindgen!({
        path: "wit/sockets",
        world: "leasehold:sockets/sockets",
        imports: { default: trappable },
        require_store_data_send: true,
        with: {
            "wasi:io": wasmtime_wasi_io::bindings::wasi::io,
            "wasi:clocks": wasmtime_wasi::p2::bindings::clocks,
            "wasi:sockets/network.network": crate::wasi::sockets::kinds::Network,
            "wasi:sockets/ip-name-lookup.resolve-address-stream": crate::wasi::sockets::kinds::LookUp,
            "wasi:sockets/tcp.tcp-socket": crate::wasi::sockets::kinds::TcpSocket,
            "wasi:sockets/udp.udp-socket": crate::wasi::sockets::kinds::UdpSocket,
            "wasi:sockets/udp.incoming-datagram-stream": crate::wasi::sockets::kinds::IncomingDatagrams,
            "wasi:sockets/udp.outgoing-datagram-stream": crate::wasi::sockets::kinds::OutgoingDatagrams,
        },
    });
}

pub(super) use generated::wasi::sockets::{
    instance_network, ip_name_lookup, network, tcp, tcp_create_socket, udp, udp_create_socket,
};
