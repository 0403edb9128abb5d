//! `wasi:io/streams` and `wasi:io/error`: `wasmtime-wasi`'s own, except that a subscription is a
//! pollable of ours ([`super::poll`]).

use super::objects::Source;
use super::poll::subscribe;
use super::view::Wasi;
use crate::steps::caps::{PERMITTED, TRANSFER};
use crate::steps::{mark, step};
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, DynPollable, IoError, StreamError, StreamResult,
};
use wasmtime_wasi_io::bindings::wasi::io::{error, streams};

impl error::Host for Wasi<'_> {}

impl error::HostError for Wasi<'_> {
    fn to_debug_string(&mut self, error: Resource<IoError>) -> Result<String> {
        mark(step!("wasi:io/error", "[method]error.to-debug-string"));
        error::HostError::to_debug_string(self.0.charged_table(), error)
    }

    fn drop(&mut self, error: Resource<IoError>) -> Result<()> {
        mark(step!("wasi:io/error", "[resource-drop]error"));
        error::HostError::drop(self.0.charged_table(), error)
    }
}

impl streams::Host for Wasi<'_> {
    fn convert_stream_error(&mut self, error: StreamError) -> Result<streams::StreamError> {
        streams::Host::convert_stream_error(self.0.charged_table(), error)
    }
}

impl streams::HostInputStream for Wasi<'_> {
    fn read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        mark(step!("wasi:io/streams", "[method]input-stream.read"));
        let most = self.0.transfer_bytes(TRANSFER);
        streams::HostInputStream::read(self.0.charged_table(), stream, len.min(most))
    }

    async fn blocking_read(
        &mut self,
        stream: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<Vec<u8>> {
        mark(step!(
            "wasi:io/streams",
            "[method]input-stream.blocking-read"
        ));
        let most = self.0.transfer_bytes(TRANSFER);
        let table = self.0.charged_table();
        streams::HostInputStream::blocking_read(table, stream, len.min(most)).await
    }

    fn skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        mark(step!("wasi:io/streams", "[method]input-stream.skip"));
        let most = self.0.transfer_bytes(TRANSFER);
        streams::HostInputStream::skip(self.0.charged_table(), stream, len.min(most))
    }

    async fn blocking_skip(
        &mut self,
        stream: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        mark(step!(
            "wasi:io/streams",
            "[method]input-stream.blocking-skip"
        ));
        let most = self.0.transfer_bytes(TRANSFER);
        let table = self.0.charged_table();
        streams::HostInputStream::blocking_skip(table, stream, len.min(most)).await
    }

    fn subscribe(&mut self, stream: Resource<DynInputStream>) -> Result<Resource<DynPollable>> {
        mark(step!("wasi:io/streams", "[method]input-stream.subscribe"));
        subscribe(self.0, Source::Input(stream.rep()))
    }

    async fn drop(&mut self, stream: Resource<DynInputStream>) -> Result<()> {
        mark(step!("wasi:io/streams", "[resource-drop]input-stream"));
        self.0.watched.check_drop(stream.rep())?;
        streams::HostInputStream::drop(self.0.charged_table(), stream).await
    }
}

impl streams::HostOutputStream for Wasi<'_> {
    fn check_write(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<u64> {
        mark(step!(
            "wasi:io/streams",
            "[method]output-stream.check-write"
        ));
        let permitted = streams::HostOutputStream::check_write(self.0.charged_table(), stream)?;
        Ok(permitted.min(self.0.transfer_bytes(PERMITTED)))
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        mark(step!("wasi:io/streams", "[method]output-stream.write"));
        is_permitted(bytes.len() as u64, self.0.transfer_bytes(PERMITTED))?;
        streams::HostOutputStream::write(self.0.charged_table(), stream, bytes)
    }

    async fn blocking_write_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        bytes: Vec<u8>,
    ) -> StreamResult<()> {
        mark(step!(
            "wasi:io/streams",
            "[method]output-stream.blocking-write-and-flush"
        ));
        is_permitted(bytes.len() as u64, self.0.transfer_bytes(PERMITTED))?;
        let table = self.0.charged_table();
        streams::HostOutputStream::blocking_write_and_flush(table, stream, bytes).await
    }

    fn flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        mark(step!("wasi:io/streams", "[method]output-stream.flush"));
        streams::HostOutputStream::flush(self.0.charged_table(), stream)
    }

    async fn blocking_flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        mark(step!(
            "wasi:io/streams",
            "[method]output-stream.blocking-flush"
        ));
        streams::HostOutputStream::blocking_flush(self.0.charged_table(), stream).await
    }

    fn subscribe(&mut self, stream: Resource<DynOutputStream>) -> Result<Resource<DynPollable>> {
        mark(step!("wasi:io/streams", "[method]output-stream.subscribe"));
        subscribe(self.0, Source::Output(stream.rep()))
    }

    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        mark(step!(
            "wasi:io/streams",
            "[method]output-stream.write-zeroes"
        ));
        is_permitted(len, self.0.transfer_bytes(PERMITTED))?;
        streams::HostOutputStream::write_zeroes(self.0.charged_table(), stream, len)
    }

    async fn blocking_write_zeroes_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        len: u64,
    ) -> StreamResult<()> {
        mark(step!(
            "wasi:io/streams",
            "[method]output-stream.blocking-write-zeroes-and-flush"
        ));
        is_permitted(len, self.0.transfer_bytes(PERMITTED))?;
        let table = self.0.charged_table();
        streams::HostOutputStream::blocking_write_zeroes_and_flush(table, stream, len).await
    }

    fn splice(
        &mut self,
        to: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        mark(step!("wasi:io/streams", "[method]output-stream.splice"));
        let most = self.0.transfer_bytes(TRANSFER);
        streams::HostOutputStream::splice(self.0.charged_table(), to, from, len.min(most))
    }

    async fn blocking_splice(
        &mut self,
        to: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        mark(step!(
            "wasi:io/streams",
            "[method]output-stream.blocking-splice"
        ));
        let most = self.0.transfer_bytes(TRANSFER);
        let table = self.0.charged_table();
        streams::HostOutputStream::blocking_splice(table, to, from, len.min(most)).await
    }

    async fn drop(&mut self, stream: Resource<DynOutputStream>) -> Result<()> {
        mark(step!("wasi:io/streams", "[resource-drop]output-stream"));
        self.0.watched.check_drop(stream.rep())?;
        streams::HostOutputStream::drop(self.0.charged_table(), stream).await
    }
}

/// Refuses to write more than `check-write` ever permits, which the interface says is a trap.
fn is_permitted(bytes: u64, most: u64) -> StreamResult<()> {
    if bytes > most {
        return Err(StreamError::trap(&format!(
            "{bytes} bytes in a write; at most {most} are permitted"
        )));
    }
    Ok(())
}
