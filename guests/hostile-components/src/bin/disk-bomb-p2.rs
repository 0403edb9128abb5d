//! Appends 4,096 bytes at a time to the file `added` through a stream, and after a refusal through the
//! descriptor, which has to be refused, too. `disk-bomb-p2 N AFTERMATH`

use std::env;

use leasehold_hostile_components::{aftermath, count, tally};
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{
    DescriptorFlags, ErrorCode, OpenFlags, PathFlags, filesystem_error_code,
};
use wasip2::io::streams::StreamError;

fn main() {
    let mut arguments = env::args().skip(1);
    let (directory, _) = get_directories().remove(0);
    let (follow, write) = (PathFlags::SYMLINK_FOLLOW, DescriptorFlags::WRITE);
    let file = directory.open_at(follow, "added", OpenFlags::CREATE, write);
    let file = file.expect("a file");
    let stream = file.append_via_stream().expect("a stream");
    tally(count(arguments.next()), |_| {
        stream
            .blocking_write_and_flush(&[1; 4096])
            .map_err(|error| match error {
                StreamError::Closed => ErrorCode::Pipe,
                StreamError::LastOperationFailed(error) => {
                    filesystem_error_code(&error).unwrap_or(ErrorCode::Io)
                }
            })
    });
    println!("{:?}", file.write(&[1; 4096], 0).is_ok());
    println!("{:?}", file.write(&[1; 65536], 1 << 30));
    aftermath(arguments.next());
}
