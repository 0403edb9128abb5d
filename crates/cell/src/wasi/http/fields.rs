//! `fields`: headers and trailers.

use super::access::{self, make, paid};
use super::bindings::types::{self, HeaderError};
use super::kinds;
use super::object::{Object, Packed};
use super::packed::Full;
use super::syntax::{CONTENT_LENGTH, content_length, field_name, is_field_value, is_forbidden};
use crate::guest::Guest;
use crate::steps::caps::FIELDS;
use crate::steps::{mark, step};
use crate::wasi::rep;
use crate::wasi::view::Wasi;
use wasmtime::component::Resource;
use wasmtime::{Result, bail};

type Fields = Resource<kinds::Fields>;

/// A name that may be set, in lower case.
fn settable(name: &str) -> Result<String, HeaderError> {
    let name = field_name(name).ok_or(HeaderError::InvalidSyntax)?;
    match is_forbidden(name.as_bytes()) {
        true => Err(HeaderError::Forbidden),
        false => Ok(name),
    }
}

/// A value as it is kept.
fn value_of(name: &str, value: Vec<u8>) -> Result<Vec<u8>, HeaderError> {
    if name.as_bytes() == CONTENT_LENGTH {
        let length = content_length(&value).ok_or(HeaderError::InvalidSyntax)?;
        return Ok(length.to_string().into_bytes());
    }
    match is_field_value(&value) {
        true => Ok(value),
        false => Err(HeaderError::InvalidSyntax),
    }
}

/// Adds an entry; a trap if the fields would be too large or the lease does not pay for it.
fn add(guest: &Guest, fields: &mut Packed, name: &str, value: &[u8]) -> Result<()> {
    match fields.append(paid(guest.arena())?, name.as_bytes(), value) {
        Ok(()) => Ok(()),
        Err(Full::Fields) => bail!("total size of fields exceeds {} bytes", FIELDS.most),
        Err(Full::Lease(errno)) => paid(Err(errno)),
    }
}

/// Checks an entry and adds it.
fn append(
    guest: &Guest,
    fields: &mut Packed,
    name: &str,
    value: Vec<u8>,
) -> Result<Result<(), HeaderError>> {
    let checked = settable(name).and_then(|name| Ok((value_of(&name, value)?, name)));
    let (value, name) = match checked {
        Ok(checked) => checked,
        Err(error) => return Ok(Err(error)),
    };
    if name.as_bytes() == CONTENT_LENGTH && fields.has(CONTENT_LENGTH) {
        return Ok(Err(HeaderError::InvalidSyntax));
    }
    if fields.is_immutable {
        return Ok(Err(HeaderError::Immutable));
    }
    add(guest, fields, &name, &value)?;
    Ok(Ok(()))
}

impl types::HostFields for Wasi<'_> {
    fn new(&mut self) -> Result<Fields> {
        mark(step!("wasi:http/types", "[constructor]fields"));
        make(self.0, Object::Fields(Packed::NONE))
    }

    fn from_list(
        &mut self,
        entries: Vec<(String, Vec<u8>)>,
    ) -> Result<Result<Fields, HeaderError>> {
        mark(step!("wasi:http/types", "[static]fields.from-list"));
        let mut fields = Packed::NONE;
        for (name, value) in entries {
            if let Err(error) = append(self.0, &mut fields, &name, value)? {
                fields.free();
                return Ok(Err(error));
            }
        }
        make(self.0, Object::Fields(fields)).map(Ok)
    }

    fn get(&mut self, fields: Fields, name: String) -> Result<Vec<Vec<u8>>> {
        mark(step!("wasi:http/types", "[method]fields.get"));
        let fields = access::fields(self.0, &fields)?;
        let Some(name) = field_name(&name) else {
            return Ok(Vec::new());
        };
        Ok(fields.read(|entries| {
            let own = entries.filter(|(own, _)| *own == name.as_bytes());
            own.map(|(_, value)| value.to_vec()).collect()
        }))
    }

    fn has(&mut self, fields: Fields, name: String) -> Result<bool> {
        mark(step!("wasi:http/types", "[method]fields.has"));
        let fields = access::fields(self.0, &fields)?;
        Ok(field_name(&name).is_some_and(|name| fields.has(name.as_bytes())))
    }

    fn set(
        &mut self,
        fields: Fields,
        name: String,
        values: Vec<Vec<u8>>,
    ) -> Result<Result<(), HeaderError>> {
        mark(step!("wasi:http/types", "[method]fields.set"));
        let handle = access::handle(self.0, &fields)?;
        let mut fields = access::fields(self.0, &fields)?;
        let name = match settable(&name) {
            Ok(name) => name,
            Err(error) => return Ok(Err(error)),
        };
        if fields.is_immutable {
            return Ok(Err(HeaderError::Immutable));
        }
        if name.as_bytes() == CONTENT_LENGTH && values.len() > 1 {
            return Ok(Err(HeaderError::InvalidSyntax));
        }
        let values = values.into_iter().map(|value| value_of(&name, value));
        let values: Vec<Vec<u8>> = match values.collect::<Result<_, _>>() {
            Ok(values) => values,
            Err(error) => return Ok(Err(error)),
        };
        fields.remove(name.as_bytes());
        for value in &values {
            add(self.0, &mut fields, &name, value)?;
        }
        rep::put(handle, Object::Fields(fields));
        Ok(Ok(()))
    }

    fn delete(&mut self, fields: Fields, name: String) -> Result<Result<(), HeaderError>> {
        mark(step!("wasi:http/types", "[method]fields.delete"));
        let handle = access::handle(self.0, &fields)?;
        let mut fields = access::fields(self.0, &fields)?;
        let name = match settable(&name) {
            Ok(name) => name,
            Err(error) => return Ok(Err(error)),
        };
        if fields.is_immutable {
            return Ok(Err(HeaderError::Immutable));
        }
        fields.remove(name.as_bytes());
        rep::put(handle, Object::Fields(fields));
        Ok(Ok(()))
    }

    fn append(
        &mut self,
        fields: Fields,
        name: String,
        value: Vec<u8>,
    ) -> Result<Result<(), HeaderError>> {
        mark(step!("wasi:http/types", "[method]fields.append"));
        let handle = access::handle(self.0, &fields)?;
        let mut fields = access::fields(self.0, &fields)?;
        let appended = append(self.0, &mut fields, &name, value)?;
        rep::put(handle, Object::Fields(fields));
        Ok(appended)
    }

    fn entries(&mut self, fields: Fields) -> Result<Vec<(String, Vec<u8>)>> {
        mark(step!("wasi:http/types", "[method]fields.entries"));
        let fields = access::fields(self.0, &fields)?;
        let mut list = Vec::with_capacity(fields.count());
        fields.read(|entries| {
            for (name, value) in entries {
                list.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
            }
        });
        Ok(list)
    }

    fn clone(&mut self, fields: Fields) -> Result<Fields> {
        mark(step!("wasi:http/types", "[method]fields.clone"));
        let fields = access::fields(self.0, &fields)?;
        let copy = paid(fields.copy(paid(self.0.arena())?, false))?;
        make(self.0, Object::Fields(copy))
    }

    fn drop(&mut self, fields: Fields) -> Result<()> {
        mark(step!("wasi:http/types", "[resource-drop]fields"));
        access::take_fields(self.0, &fields)?.free();
        Ok(())
    }
}

/// Gives a guest a copy of fields that it may not change.
pub(super) fn show(guest: &Guest, fields: &Packed) -> Result<Fields> {
    let copy = paid(fields.copy(paid(guest.arena())?, true))?;
    make(guest, Object::Fields(copy))
}
