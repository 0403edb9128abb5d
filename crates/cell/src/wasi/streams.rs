//! `wasi:io/streams` and `wasi:io/error`: `wasmtime-wasi`'s own, except that a subscription is a
//! pollable of ours ([`super::poll`]).

use super::Wasi;
use super::poll::{Source, subscribe};
use wasmtime::Result;
use wasmtime::component::Resource;
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, DynPollable, IoError, StreamError, StreamResult,
};
use wasmtime_wasi_io::bindings::wasi::io::{error, streams};

impl error::Host for Wasi<'_> {}

impl error::HostError for Wasi<'_> {
    fn to_debug_string(&mut self, error: Resource<IoError>) -> Result<String> {
        error::HostError::to_debug_string(self.0.charged_table(), error)
    }

    fn drop(&mut self, error: Resource<IoError>) -> Result<()> {
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
        streams::HostInputStream::read(self.0.charged_table(), stream, len)
    }

    async fn blocking_read(
        &mut self,
        stream: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<Vec<u8>> {
        streams::HostInputStream::blocking_read(self.0.charged_table(), stream, len).await
    }

    fn skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        streams::HostInputStream::skip(self.0.charged_table(), stream, len)
    }

    async fn blocking_skip(
        &mut self,
        stream: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        streams::HostInputStream::blocking_skip(self.0.charged_table(), stream, len).await
    }

    fn subscribe(&mut self, stream: Resource<DynInputStream>) -> Result<Resource<DynPollable>> {
        subscribe(self.0, Source::Input(stream.rep()))
    }

    async fn drop(&mut self, stream: Resource<DynInputStream>) -> Result<()> {
        streams::HostInputStream::drop(self.0.charged_table(), stream).await
    }
}

impl streams::HostOutputStream for Wasi<'_> {
    fn check_write(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<u64> {
        streams::HostOutputStream::check_write(self.0.charged_table(), stream)
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        streams::HostOutputStream::write(self.0.charged_table(), stream, bytes)
    }

    async fn blocking_write_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        bytes: Vec<u8>,
    ) -> StreamResult<()> {
        let table = self.0.charged_table();
        streams::HostOutputStream::blocking_write_and_flush(table, stream, bytes).await
    }

    fn flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        streams::HostOutputStream::flush(self.0.charged_table(), stream)
    }

    async fn blocking_flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        streams::HostOutputStream::blocking_flush(self.0.charged_table(), stream).await
    }

    fn subscribe(&mut self, stream: Resource<DynOutputStream>) -> Result<Resource<DynPollable>> {
        subscribe(self.0, Source::Output(stream.rep()))
    }

    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        streams::HostOutputStream::write_zeroes(self.0.charged_table(), stream, len)
    }

    async fn blocking_write_zeroes_and_flush(
        &mut self,
        stream: Resource<DynOutputStream>,
        len: u64,
    ) -> StreamResult<()> {
        let table = self.0.charged_table();
        streams::HostOutputStream::blocking_write_zeroes_and_flush(table, stream, len).await
    }

    fn splice(
        &mut self,
        to: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        streams::HostOutputStream::splice(self.0.charged_table(), to, from, len)
    }

    async fn blocking_splice(
        &mut self,
        to: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        let table = self.0.charged_table();
        streams::HostOutputStream::blocking_splice(table, to, from, len).await
    }

    async fn drop(&mut self, stream: Resource<DynOutputStream>) -> Result<()> {
        streams::HostOutputStream::drop(self.0.charged_table(), stream).await
    }
}
