//! `wasi:config/store`: what the lease's `config` says.

use super::bindings::config::{Error, Host};
use super::view::Wasi;
use crate::steps::{mark, step};
use wasmtime::Result;

impl Host for Wasi<'_> {
    fn get(&mut self, key: String) -> Result<Result<Option<String>, Error>> {
        mark(step!("wasi:config/store", "get"));
        let mut entries = self.0.imports.config.iter();
        let entry = entries.find(|(own, _)| *own == key);
        Ok(Ok(entry.map(|(_, value)| value.clone())))
    }

    fn get_all(&mut self) -> Result<Result<Vec<(String, String)>, Error>> {
        mark(step!("wasi:config/store", "get-all"));
        Ok(Ok(self.0.imports.config.to_vec()))
    }
}
