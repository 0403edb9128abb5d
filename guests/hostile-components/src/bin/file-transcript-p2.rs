//! Calls every function of `wasi:filesystem` and the streams of files, and prints the answer of
//! each: `file-transcript-p2` in a directory that has a file `given` of 100,000 bytes and a link
//! `outside` that leads to `/`. Values that differ between two directories, such as times and
//! hashes, are left out.

use std::fmt::Debug;

use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{
    Advice, Datetime, Descriptor, DescriptorFlags, DescriptorStat, ErrorCode, NewTimestamp,
    OpenFlags, PathFlags, filesystem_error_code,
};
use wasip2::io::streams::StreamError;

const NO_LINKS: PathFlags = PathFlags::empty();

fn say(what: &str, answer: impl Debug) {
    println!("{what}: {answer:?}");
}

/// The words of a stream's error.
fn stream<T>(result: Result<T, StreamError>) -> Result<T, String> {
    result.map_err(|error| match error {
        StreamError::Closed => "closed".to_owned(),
        StreamError::LastOperationFailed(error) => format!("{:?}", filesystem_error_code(&error)),
    })
}

fn stat(result: Result<DescriptorStat, ErrorCode>) -> Result<(u8, u64, u64, bool), ErrorCode> {
    let stat = result?;
    let times = stat.data_access_timestamp.is_some() && stat.data_modification_timestamp.is_some();
    Ok((stat.type_ as u8, stat.link_count, stat.size, times))
}

fn open(
    directory: &Descriptor,
    path: &str,
    how: OpenFlags,
    flags: DescriptorFlags,
) -> Result<Descriptor, ErrorCode> {
    directory.open_at(PathFlags::SYMLINK_FOLLOW, path, how, flags)
}

fn list(directory: &Descriptor) -> Result<Vec<(String, u8)>, ErrorCode> {
    let entries = directory.read_directory()?;
    let mut names = Vec::new();
    while let Some(entry) = entries.read_directory_entry()? {
        names.push((entry.name, entry.type_ as u8));
    }
    names.sort();
    Ok(names)
}

fn main() {
    let mut directories = get_directories();
    say("directories", directories.len());
    let again = get_directories();
    say("the same", directories[0].0.is_same_object(&again[0].0));
    drop(again);
    let (directory, name) = directories.remove(0);
    say("its name", name);
    about_directory(&directory);
    about_paths(&directory);
    about_opening(&directory);
    about_file(&directory);
    about_streams(&directory);
    about_reading_only(&directories);
}

fn about_directory(directory: &Descriptor) {
    say("flags", directory.get_flags());
    say("type", directory.get_type());
    say("stat", stat(directory.stat()).map(|stat| stat.0));
    say("sync", directory.sync());
    say("sync data", directory.sync_data());
    say("read", directory.read(10, 0).err());
    say("write", directory.write(b"x", 0));
    say("advise", directory.advise(0, 0, Advice::Normal));
    say("set size", directory.set_size(0));
    say("read stream", directory.read_via_stream(0).err());
    say("write stream", directory.write_via_stream(0).err());
    say("append stream", directory.append_via_stream().err());
    let hash = directory.metadata_hash();
    say("hash", hash.map(|hash| hash.lower ^ hash.upper));
}

fn about_paths(directory: &Descriptor) {
    say("make", directory.create_directory_at("made"));
    say("make again", directory.create_directory_at("made"));
    say("make below", directory.create_directory_at("made/below/"));
    say(
        "make nowhere",
        directory.create_directory_at("nowhere/below"),
    );
    say("make above", directory.create_directory_at("../above"));
    say("make nothing", directory.create_directory_at(""));
    say(
        "make through the link",
        directory.create_directory_at("outside/x"),
    );
    say("link", directory.symlink_at("given", "made/link"));
    say("link to", directory.symlink_at("../given", "made/up"));
    say("link to root", directory.symlink_at("/", "made/root"));
    say("read link", directory.readlink_at("made/link"));
    say("read no link", directory.readlink_at("given"));
    say("read link outside", directory.readlink_at("outside"));
    say("read no file", directory.readlink_at("nothing"));
    for path in [
        "given",
        "made",
        "made/up",
        "outside",
        "made/link",
        "../x",
        "/",
        ".",
        "made/..",
    ] {
        for flags in [NO_LINKS, PathFlags::SYMLINK_FOLLOW] {
            let found = directory.stat_at(flags, path);
            say(&format!("stat {path}"), stat(found).map(|stat| stat.0));
            let hash = directory.metadata_hash_at(flags, path);
            say("hash", hash.map(|hash| hash.lower ^ hash.upper));
        }
    }
    let long = "x/".repeat(3000);
    say("long path", stat(directory.stat_at(NO_LINKS, &long)));
    say(
        "long name",
        stat(directory.stat_at(NO_LINKS, &"x".repeat(300))),
    );
    say(
        "hard link",
        directory.link_at(NO_LINKS, "given", directory, "made/hard"),
    );
    let follow = PathFlags::SYMLINK_FOLLOW;
    say(
        "hard link",
        directory.link_at(follow, "given", directory, "made/hard"),
    );
    say("two names", stat(directory.stat_at(NO_LINKS, "given")));
    say(
        "rename",
        directory.rename_at("made/hard", directory, "hard"),
    );
    say(
        "rename nothing",
        directory.rename_at("made/hard", directory, "hard"),
    );
    say(
        "rename onto",
        directory.rename_at("hard", directory, "made"),
    );
    say(
        "rename above",
        directory.rename_at("hard", directory, "../hard"),
    );
    let time = |seconds, nanoseconds| {
        NewTimestamp::Timestamp(Datetime {
            seconds,
            nanoseconds,
        })
    };
    say(
        "times",
        directory.set_times_at(NO_LINKS, "hard", time(1, 2), time(3, 4)),
    );
    let times = directory.stat_at(NO_LINKS, "hard").ok().map(|stat| {
        let (access, change) = (stat.data_access_timestamp, stat.data_modification_timestamp);
        (
            access.map(|t| (t.seconds, t.nanoseconds)),
            change.map(|t| (t.seconds, t.nanoseconds)),
        )
    });
    say("times are", times);
    let late = time(u64::MAX, 2_000_000_000);
    say(
        "late",
        directory.set_times_at(NO_LINKS, "hard", late, NewTimestamp::NoChange),
    );
    say("list", list(directory));
    say(
        "list below",
        open_directory(directory, "made").and_then(|made| list(&made)),
    );
    let times = |made: Descriptor| made.set_times(NewTimestamp::NoChange, NewTimestamp::Now);
    say("times", open_directory(directory, "made").and_then(times));
    say("remove", directory.remove_directory_at("made/below"));
    say("remove full", directory.remove_directory_at("made"));
    say("remove a file", directory.remove_directory_at("hard"));
    say("unlink a directory", directory.unlink_file_at("made"));
    say("unlink", directory.unlink_file_at("hard"));
    say("unlink nothing", directory.unlink_file_at("hard"));
}

fn open_directory(directory: &Descriptor, path: &str) -> Result<Descriptor, ErrorCode> {
    open(directory, path, OpenFlags::DIRECTORY, DescriptorFlags::READ)
}

fn about_opening(directory: &Descriptor) {
    let all = [
        OpenFlags::empty(),
        OpenFlags::CREATE,
        OpenFlags::CREATE | OpenFlags::EXCLUSIVE,
        OpenFlags::TRUNCATE,
        OpenFlags::DIRECTORY,
        OpenFlags::DIRECTORY | OpenFlags::CREATE,
        OpenFlags::CREATE | OpenFlags::TRUNCATE,
    ];
    let flags = [
        DescriptorFlags::empty(),
        DescriptorFlags::READ,
        DescriptorFlags::WRITE,
        DescriptorFlags::READ | DescriptorFlags::WRITE,
        DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY,
        DescriptorFlags::READ | DescriptorFlags::FILE_INTEGRITY_SYNC,
    ];
    for path in [
        "opened",
        "made",
        "made/link",
        "made/up/",
        "outside",
        "nowhere/x",
        "../x",
        "/x",
        "",
    ] {
        for how in all {
            for flags in flags {
                let opened = open(directory, path, how, flags);
                let opened = opened.map(|opened| {
                    let size = stat(opened.stat()).map(|stat| stat.2);
                    let is_file = opened.get_type();
                    (
                        opened.get_flags(),
                        is_file,
                        is_file.is_ok().then_some(size.is_ok()),
                    )
                });
                say(&format!("open {path} {how:?} {flags:?}"), opened);
            }
        }
        // So that each path begins like the one before.
        let _ = directory.unlink_file_at("opened");
    }
    let link = directory.open_at(
        NO_LINKS,
        "made/up",
        OpenFlags::empty(),
        DescriptorFlags::READ,
    );
    say("open a link", link.err());
}

fn about_file(directory: &Descriptor) {
    let both = DescriptorFlags::READ | DescriptorFlags::WRITE;
    let file = open(directory, "file", OpenFlags::CREATE, both).expect("a file");
    say("write", file.write(b"hello, world", 0));
    say("write later", file.write(b"!", 20));
    say("read", file.read(100, 0));
    say("read a part", file.read(3, 4));
    say("read nothing", file.read(0, 4));
    say("read beyond", file.read(10, 1000));
    say("read far beyond", file.read(10, u64::MAX));
    say("stat", stat(file.stat()));
    say("size", file.set_size(5));
    say("sizes", stat(file.stat()));
    say("grow", file.set_size(10));
    say("read", file.read(100, 0));
    say("too large", file.set_size(u64::MAX));
    say("sync", (file.sync(), file.sync_data()));
    say("advise", file.advise(0, 10, Advice::WillNeed));
    say("type", file.get_type());
    say("list", list(&file));
    say(
        "open below",
        open(&file, "x", OpenFlags::empty(), both).err(),
    );
    say("same", file.is_same_object(directory));
    let unwritable = open(directory, "file", OpenFlags::empty(), DescriptorFlags::READ);
    let unwritable = unwritable.expect("a file");
    say("same", file.is_same_object(&unwritable));
    say("write", unwritable.write(b"x", 0));
    say("set size", unwritable.set_size(0));
    let unreadable = open(
        directory,
        "file",
        OpenFlags::empty(),
        DescriptorFlags::WRITE,
    );
    say("read", unreadable.expect("a file").read(1, 0).err());
    say(
        "given",
        open(directory, "given", OpenFlags::empty(), both).map(|given| {
            let (bytes, end) = given.read(1 << 20, 50_000).expect("read");
            (
                bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
                bytes.len(),
                end,
            )
        }),
    );
}

fn about_streams(directory: &Descriptor) {
    let both = DescriptorFlags::READ | DescriptorFlags::WRITE;
    let file = open(directory, "streamed", OpenFlags::CREATE, both).expect("a file");
    let output = file.write_via_stream(0).expect("a stream");
    say(
        "permitted",
        stream(output.check_write()).map(|bytes| bytes > 0),
    );
    say("write", stream(output.blocking_write_and_flush(b"first")));
    say("zeroes", stream(output.blocking_write_zeroes_and_flush(3)));
    output.subscribe().block();
    say(
        "permitted",
        stream(output.check_write()).map(|bytes| bytes >= 4096),
    );
    say("write", stream(output.write(b"second")));
    say("flush", stream(output.blocking_flush()));
    drop(output);
    let output = file.append_via_stream().expect("a stream");
    say("append", stream(output.blocking_write_and_flush(b"end")));
    drop(output);
    say("all", file.read(100, 0));
    let input = file.read_via_stream(2).expect("a stream");
    // It goes on without the descriptor.
    drop(file);
    say("read", stream(input.blocking_read(4)));
    say("skip", stream(input.blocking_skip(3)));
    let mut rest = Vec::new();
    let end = loop {
        input.subscribe().block();
        match input.read(4) {
            Ok(bytes) => rest.extend(bytes),
            Err(error) => break stream::<()>(Err(error)),
        }
    };
    say("rest", (rest, end));
    say("after the end", stream(input.read(1)));
    drop(input);
    let given = open(directory, "given", OpenFlags::empty(), both).expect("a file");
    let input = given.read_via_stream(10).expect("a stream");
    let copy = open(directory, "copy", OpenFlags::CREATE, both).expect("a file");
    let output = copy.write_via_stream(0).expect("a stream");
    let mut copied = 0;
    while let Ok(bytes) = output.blocking_splice(&input, 1 << 20) {
        copied += bytes;
    }
    say("spliced", copied);
    say("copy", stat(copy.stat()));
    drop((input, output));
    let beyond = given.read_via_stream(1 << 30).expect("a stream");
    say("beyond", stream(beyond.blocking_read(1)));
    let invalid = given.read_via_stream(u64::MAX).expect("a stream");
    say("invalid", stream(invalid.blocking_read(1)));
    say("closed", stream(invalid.blocking_read(1)));
    let unwritable = open(
        directory,
        "given",
        OpenFlags::empty(),
        DescriptorFlags::READ,
    );
    let output = unwritable
        .expect("a file")
        .write_via_stream(0)
        .expect("a stream");
    say("unwritable", stream(output.blocking_write_and_flush(b"x")));
    say("closed", stream(output.check_write()));
}

fn about_reading_only(directories: &[(Descriptor, String)]) {
    let Some((directory, name)) = directories.first() else {
        return;
    };
    say("its name", name);
    say("flags", directory.get_flags());
    say("make", directory.create_directory_at("made"));
    say("make above", directory.create_directory_at("../made"));
    say("unlink", directory.unlink_file_at("given"));
    say("rename", directory.rename_at("given", directory, "taken"));
    say(
        "times",
        directory.set_times(NewTimestamp::Now, NewTimestamp::Now),
    );
    say("link", directory.symlink_at("given", "link"));
    let write = DescriptorFlags::WRITE;
    say(
        "write",
        open(directory, "given", OpenFlags::empty(), write).err(),
    );
    say(
        "create",
        open(directory, "x", OpenFlags::CREATE, DescriptorFlags::READ).err(),
    );
    let file = open(
        directory,
        "given",
        OpenFlags::empty(),
        DescriptorFlags::READ,
    )
    .expect("a file");
    say("write", file.write(b"x", 0));
    say("set size", file.set_size(0));
    say("write stream", file.write_via_stream(0).err());
    say("append stream", file.append_via_stream().err());
    say("read", file.read(3, 0));
}
