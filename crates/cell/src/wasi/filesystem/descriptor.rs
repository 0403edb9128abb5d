//! The functions on descriptors.

use super::convert::{advice, identity, metadata_hash, stat, times};
use super::directory;
use super::files::{Streamed, fail};
use super::input::FileInput;
use super::output::{FileOutput, WritePosition};
use crate::host::fs::change::{self, Effect, PairChange};
use crate::host::fs::descriptor::{Mode, Open};
use crate::host::fs::growth::Growth;
use crate::host::fs::open::Request;
use crate::host::fs::path::{self, MOST_BYTES};
use crate::host::fs::transfer::{self, Tried};
use crate::host::io;
use crate::steps::caps::TRANSFER;
use crate::steps::{mark, step};
use crate::wasi::table::TableCharge;
use crate::wasi::view::Wasi;
use std::ffi::CString;
use std::sync::Arc;
use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, DirectoryEntryStream,
    ErrorCode, Filesize, HostDescriptor, HostDirectoryEntryStream, MetadataHashValue, NewTimestamp,
    OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream, FsError, FsResult};

/// Counts the rest of this call under the row of a function on descriptors.
macro_rules! on_descriptor {
    ($name:literal) => {
        mark(step!(
            "wasi:filesystem/types",
            concat!("[method]descriptor.", $name)
        ))
    };
}

/// A path in the form that the kernel wants.
fn c_path(path: String) -> Result<CString, ErrorCode> {
    if path.len() >= MOST_BYTES {
        return Err(ErrorCode::NameTooLong);
    }
    CString::new(path).map_err(|_| ErrorCode::Invalid)
}

fn follows(flags: PathFlags) -> bool {
    flags.contains(PathFlags::SYMLINK_FOLLOW)
}

/// How a guest wants a file to be opened.
fn request(path_flags: PathFlags, open: OpenFlags, flags: DescriptorFlags) -> Request {
    let write = flags.contains(DescriptorFlags::WRITE);
    let create = open.contains(OpenFlags::CREATE);
    let truncate = open.contains(OpenFlags::TRUNCATE);
    let sync = DescriptorFlags::FILE_INTEGRITY_SYNC
        | DescriptorFlags::DATA_INTEGRITY_SYNC
        | DescriptorFlags::REQUESTED_WRITE_SYNC;
    Request {
        follow: follows(path_flags),
        create,
        exclusive: open.contains(OpenFlags::EXCLUSIVE),
        truncate,
        directory: open.contains(OpenFlags::DIRECTORY),
        sync: flags.intersects(sync),
        mode: Mode {
            read: flags.contains(DescriptorFlags::READ) || !write,
            write: write || create || truncate,
        },
    }
}

impl Wasi<'_> {
    /// A stream to the file that a descriptor stands for.
    fn output(
        &mut self,
        fd: &Resource<Descriptor>,
        place: WritePosition,
    ) -> FsResult<Resource<DynOutputStream>> {
        let open = self.file(fd)?;
        if !open.may_change {
            return Err(ErrorCode::NotPermitted.into());
        }
        let (node, is_writable) = (open.node.clone(), open.mode.write);
        let system = self.system().map_err(FsError::trap)?;
        let stream = FileOutput::new(Streamed::new(system, &node, true), place, is_writable);
        let stream: DynOutputStream = Box::new(stream);
        let put = TableCharge::put(self.0.charged_table(), stream);
        put.ok_or_else(|| ErrorCode::InsufficientMemory.into())
    }
}

impl HostDescriptor for Wasi<'_> {
    fn read_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: Filesize,
    ) -> FsResult<Resource<DynInputStream>> {
        on_descriptor!("read-via-stream");
        let open = self.open(&fd)?;
        if open.node.is_directory() {
            return Err(ErrorCode::IsDirectory.into());
        }
        let node = open.node.clone();
        let system = self.system().map_err(FsError::trap)?;
        let stream = FileInput::new(Streamed::new(system, &node, false), offset);
        let stream: DynInputStream = Box::new(stream);
        let put = TableCharge::put(self.0.charged_table(), stream);
        put.ok_or_else(|| ErrorCode::InsufficientMemory.into())
    }

    fn write_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
        offset: Filesize,
    ) -> FsResult<Resource<DynOutputStream>> {
        on_descriptor!("write-via-stream");
        self.output(&fd, WritePosition::At(offset))
    }

    fn append_via_stream(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<DynOutputStream>> {
        on_descriptor!("append-via-stream");
        self.output(&fd, WritePosition::End)
    }

    async fn advise(
        &mut self,
        fd: Resource<Descriptor>,
        offset: Filesize,
        length: Filesize,
        how: Advice,
    ) -> FsResult<()> {
        on_descriptor!("advise");
        let tried = self.file(&fd)?.node.advise(offset, length, advice(how));
        self.finish(tried).await
    }

    async fn sync_data(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        on_descriptor!("sync-data");
        let tried = self.open(&fd)?.node.sync(true);
        self.finish(tried).await
    }

    async fn get_flags(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorFlags> {
        on_descriptor!("get-flags");
        let open = self.open(&fd)?;
        let mut flags = DescriptorFlags::empty();
        if open.mode.read {
            flags |= DescriptorFlags::READ;
        }
        if open.mode.write {
            flags |= match open.node.is_directory() {
                true => DescriptorFlags::MUTATE_DIRECTORY,
                false => DescriptorFlags::WRITE,
            };
        }
        Ok(flags)
    }

    async fn get_type(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorType> {
        on_descriptor!("get-type");
        Ok(super::convert::descriptor_type(self.open(&fd)?.node.kind))
    }

    async fn set_size(&mut self, fd: Resource<Descriptor>, size: Filesize) -> FsResult<()> {
        on_descriptor!("set-size");
        let open = self.file(&fd)?;
        if !open.may_change {
            return Err(ErrorCode::NotPermitted.into());
        }
        let tried = open.node.set_size(size);
        self.finish(tried).await
    }

    async fn set_times(
        &mut self,
        fd: Resource<Descriptor>,
        access: NewTimestamp,
        modification: NewTimestamp,
    ) -> FsResult<()> {
        on_descriptor!("set-times");
        let open = self.open(&fd)?;
        let times = times(access, modification)?;
        if !open.may_change {
            return Err(ErrorCode::NotPermitted.into());
        }
        let tried = open.node.set_times(times);
        self.finish(tried).await
    }

    async fn read(
        &mut self,
        fd: Resource<Descriptor>,
        length: Filesize,
        offset: Filesize,
    ) -> FsResult<(Vec<u8>, bool)> {
        on_descriptor!("read");
        let node = self.file(&fd)?.node.clone();
        let system = self.system().map_err(FsError::trap)?;
        let length = length.min(system.most as u64) as usize;
        let mut bytes = vec![0; length];
        let bytes = match transfer::read_now(&node, &mut bytes, offset).map_err(fail)? {
            Tried::Moved(read) => {
                bytes.truncate(read);
                bytes
            }
            Tried::Blocks => {
                drop(bytes);
                let account = system.account().clone();
                let read = node
                    .elsewhere()
                    .during(move || transfer::read(&node, length, offset));
                io::run(&account, read).await.map_err(fail)?
            }
        };
        let is_end = bytes.is_empty();
        Ok((bytes, is_end))
    }

    async fn write(
        &mut self,
        fd: Resource<Descriptor>,
        mut bytes: Vec<u8>,
        offset: Filesize,
    ) -> FsResult<Filesize> {
        on_descriptor!("write");
        let open = self.file(&fd)?;
        if !open.may_change {
            return Err(ErrorCode::NotPermitted.into());
        }
        let node = open.node.clone();
        bytes.truncate(TRANSFER.size());
        let written = match transfer::write_now(&node, &bytes, offset, false).map_err(fail)? {
            Tried::Moved(written) => written,
            Tried::Blocks => {
                let account = self.account()?;
                let growth = Growth::take(&node, bytes.len()).map_err(fail)?;
                let write = node
                    .elsewhere()
                    .during(move || transfer::write(&node, &bytes, offset, false, growth));
                io::run(&account, write).await.map_err(fail)?
            }
        };
        Ok(written as u64)
    }

    async fn read_directory(
        &mut self,
        fd: Resource<Descriptor>,
    ) -> FsResult<Resource<DirectoryEntryStream>> {
        on_descriptor!("read-directory");
        self.directory(&fd)?;
        directory::open(self.0, fd.rep())
    }

    async fn sync(&mut self, fd: Resource<Descriptor>) -> FsResult<()> {
        on_descriptor!("sync");
        let tried = self.open(&fd)?.node.sync(false);
        self.finish(tried).await
    }

    async fn create_directory_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
    ) -> FsResult<()> {
        on_descriptor!("create-directory-at");
        let start = self.writable_directory(&fd)?;
        let (account, path) = (self.account()?, c_path(path)?);
        let tried = change::attempt(
            &account,
            &start,
            &path,
            Effect::AddsDirectory,
            change::create_directory,
        );
        self.finish(tried).await
    }

    async fn stat(&mut self, fd: Resource<Descriptor>) -> FsResult<DescriptorStat> {
        on_descriptor!("stat");
        let tried = self.open(&fd)?.node.status();
        Ok(stat(&self.finish(tried).await?))
    }

    async fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
    ) -> FsResult<DescriptorStat> {
        on_descriptor!("stat-at");
        let (start, _) = self.directory(&fd)?;
        let (account, path) = (self.account()?, c_path(path)?);
        let tried = path::attempt_status(&account, &start, &path, follows(flags));
        Ok(stat(&self.finish(tried).await?))
    }

    async fn set_times_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
        access: NewTimestamp,
        modification: NewTimestamp,
    ) -> FsResult<()> {
        on_descriptor!("set-times-at");
        self.directory(&fd)?;
        let (times, follow) = (times(access, modification)?, follows(flags));
        let start = self.writable_directory(&fd)?;
        let (account, path) = (self.account()?, c_path(path)?);
        let tried = change::attempt(&account, &start, &path, Effect::Keeps, move |place| {
            change::set_times(place, follow, times)
        });
        self.finish(tried).await
    }

    async fn link_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: PathFlags,
        old: String,
        to: Resource<Descriptor>,
        new: String,
    ) -> FsResult<()> {
        on_descriptor!("link-at");
        self.directory(&fd)?;
        self.directory(&to)?;
        let from = self.writable_directory(&fd)?;
        let to = self.writable_directory(&to)?;
        if follows(flags) {
            return Err(ErrorCode::Invalid.into());
        }
        let (account, old, new) = (self.account()?, c_path(old)?, c_path(new)?);
        let tried = change::attempt_pair(&account, (&from, &old), (&to, &new), PairChange::Link);
        self.finish(tried).await
    }

    async fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: PathFlags,
        path: String,
        open_flags: OpenFlags,
        flags: DescriptorFlags,
    ) -> FsResult<Resource<Descriptor>> {
        on_descriptor!("open-at");
        let (start, may_change) = self.directory(&fd)?;
        let request = request(path_flags, open_flags, flags);
        request.check(may_change).map_err(fail)?;
        let path = c_path(path)?;
        let system = self.system().map_err(FsError::trap)?;
        let taken = system.table.take();
        let taken = taken.map_err(|_| ErrorCode::InsufficientMemory)?;
        let tried = request.attempt(system.table.files(), &start, &path);
        let open = Open {
            node: Arc::new(self.finish(tried).await?),
            mode: request.mode,
            may_change,
            position: 0,
            append: false,
            nonblocking: false,
            preopen: None,
        };
        let system = self.system().map_err(FsError::trap)?;
        Ok(Resource::new_own(system.table.put(taken, open)))
    }

    async fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<String> {
        on_descriptor!("readlink-at");
        let (start, _) = self.directory(&fd)?;
        let (account, path) = (self.account()?, c_path(path)?);
        let tried = change::attempt_read_link(&account, &start, &path);
        let target = self.finish(tried).await?;
        String::from_utf8(target).map_err(|_| ErrorCode::IllegalByteSequence.into())
    }

    async fn remove_directory_at(
        &mut self,
        fd: Resource<Descriptor>,
        path: String,
    ) -> FsResult<()> {
        on_descriptor!("remove-directory-at");
        let start = self.writable_directory(&fd)?;
        let (account, path) = (self.account()?, c_path(path)?);
        let tried = change::attempt(
            &account,
            &start,
            &path,
            Effect::RemovesDirectory,
            change::remove_directory,
        );
        self.finish(tried).await
    }

    async fn rename_at(
        &mut self,
        fd: Resource<Descriptor>,
        old: String,
        to: Resource<Descriptor>,
        new: String,
    ) -> FsResult<()> {
        on_descriptor!("rename-at");
        self.directory(&fd)?;
        self.directory(&to)?;
        let from = self.writable_directory(&fd)?;
        let to = self.writable_directory(&to)?;
        let (account, old, new) = (self.account()?, c_path(old)?, c_path(new)?);
        let tried = change::attempt_pair(&account, (&from, &old), (&to, &new), PairChange::Rename);
        self.finish(tried).await
    }

    async fn symlink_at(
        &mut self,
        fd: Resource<Descriptor>,
        target: String,
        path: String,
    ) -> FsResult<()> {
        on_descriptor!("symlink-at");
        let start = self.writable_directory(&fd)?;
        let (account, target, path) = (self.account()?, c_path(target)?, c_path(path)?);
        let tried = change::attempt(
            &account,
            &start,
            &path,
            Effect::AddsLink(target.count_bytes()),
            move |place| change::symlink(place, &target),
        );
        self.finish(tried).await
    }

    async fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> FsResult<()> {
        on_descriptor!("unlink-file-at");
        let start = self.writable_directory(&fd)?;
        let (account, path) = (self.account()?, c_path(path)?);
        let tried = change::attempt(&account, &start, &path, Effect::Removes, change::unlink);
        self.finish(tried).await
    }

    async fn is_same_object(
        &mut self,
        one: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        on_descriptor!("is-same-object");
        let mut identities = [(0, 0); 2];
        for (place, fd) in [one, other].iter().enumerate() {
            let tried = match self.open(fd) {
                Ok(open) => open.node.status(),
                Err(error) => return Err(error.into()),
            };
            match self.finish(tried).await {
                Ok(status) => identities[place] = identity(&status),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(identities[0] == identities[1])
    }

    async fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> FsResult<MetadataHashValue> {
        on_descriptor!("metadata-hash");
        let tried = self.open(&fd)?.node.status();
        Ok(metadata_hash(&self.finish(tried).await?))
    }

    async fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: PathFlags,
        path: String,
    ) -> FsResult<MetadataHashValue> {
        on_descriptor!("metadata-hash-at");
        let (start, _) = self.directory(&fd)?;
        let (account, path) = (self.account()?, c_path(path)?);
        let tried = path::attempt_status(&account, &start, &path, follows(flags));
        Ok(metadata_hash(&self.finish(tried).await?))
    }

    fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        mark(step!("wasi:filesystem/types", "[resource-drop]descriptor"));
        let closed = self.system()?.table.close(fd.rep());
        closed.map_err(|_| wasmtime::Error::msg("unknown descriptor"))
    }
}

impl HostDirectoryEntryStream for Wasi<'_> {
    async fn read_directory_entry(
        &mut self,
        stream: Resource<DirectoryEntryStream>,
    ) -> FsResult<Option<DirectoryEntry>> {
        mark(step!(
            "wasi:filesystem/types",
            "[method]directory-entry-stream.read-directory-entry"
        ));
        directory::read(self.0, &stream).await
    }

    fn drop(&mut self, stream: Resource<DirectoryEntryStream>) -> wasmtime::Result<()> {
        mark(step!(
            "wasi:filesystem/types",
            "[resource-drop]directory-entry-stream"
        ));
        directory::close(self.0, &stream)
    }
}
