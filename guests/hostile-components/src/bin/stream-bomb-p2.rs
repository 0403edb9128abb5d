//! Makes input streams on the file `given`, begins to read each, and keeps them. `stream-bomb-p2 N
//! AFTERMATH`

use std::{env, mem};

use leasehold_hostile_components::{aftermath, count, tally};
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{DescriptorFlags, OpenFlags, PathFlags};

fn main() {
    let mut arguments = env::args().skip(1);
    let (directory, _) = get_directories().remove(0);
    let (follow, read) = (PathFlags::SYMLINK_FOLLOW, DescriptorFlags::READ);
    let given = directory.open_at(follow, "given", OpenFlags::empty(), read);
    let given = given.expect("the file is there");
    tally(count(arguments.next()), |_| {
        let stream = given.read_via_stream(0)?;
        // The answer does not matter: the host has begun to read.
        let _ = stream.read(64 << 10);
        mem::forget(stream);
        Ok::<_, wasip2::filesystem::types::ErrorCode>(())
    });
    aftermath(arguments.next());
}
