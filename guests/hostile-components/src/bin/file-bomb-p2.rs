//! Opens the file `given` again and again, and keeps the descriptors. `file-bomb-p2 N AFTERMATH`

use std::{env, mem};

use leasehold_hostile_components::{aftermath, count, tally};
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{DescriptorFlags, OpenFlags, PathFlags};

fn main() {
    let mut arguments = env::args().skip(1);
    let (directory, _) = get_directories().remove(0);
    let (follow, read) = (PathFlags::SYMLINK_FOLLOW, DescriptorFlags::READ);
    tally(count(arguments.next()), |_| {
        directory
            .open_at(follow, "given", OpenFlags::empty(), read)
            .map(mem::forget)
    });
    aftermath(arguments.next());
}
