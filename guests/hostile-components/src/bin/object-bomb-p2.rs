//! Makes kernel objects of one class through `wit/kernel.wit`. `object-bomb-p2 CLASS N AFTERMATH`
//!
//! CLASS is `semaphore`, `channel`, `region`, `timer`, `task`, `capability` or `tenant`, as for
//! `object-bomb`.

use std::env;
use std::process::ExitCode;

use bindings::leasehold::kernel::types::{Errno, Rights};
use bindings::leasehold::kernel::{capability, channel, region, semaphore, task, tenant, timer};
use leasehold_hostile_components::{aftermath, count, sleep, tally};

/// The argument of the bomb's tasks: to sleep.
const LEAF: &str = "leaf";

#[allow(missing_docs, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({ path: "../../wit", world: "guest" });
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let class = arguments.next().unwrap_or_else(|| "semaphore".to_owned());
    if class == LEAF {
        sleep();
    }
    let limit = count(arguments.next());
    let Some(mut create) = creator(&class) else {
        println!("no class {class}");
        return ExitCode::from(2);
    };
    tally(limit, |_| create().map(drop).map_err(|errno| errno.name()));
    aftermath(arguments.next());
    ExitCode::SUCCESS
}

/// A function that makes one object of `class`.
fn creator(class: &str) -> Option<Box<dyn FnMut() -> Result<u32, Errno>>> {
    Some(match class {
        "semaphore" => Box::new(|| semaphore::create(0)),
        "channel" => Box::new(|| channel::create(64)),
        "region" => Box::new(|| region::create(4096)),
        "timer" => Box::new(timer::create),
        "task" => Box::new(|| task::start(&[LEAF.to_owned()])),
        "capability" => {
            let object = semaphore::create(0);
            Box::new(move || capability::derive(object?, Rights::all()))
        }
        "tenant" => Box::new(|| tenant::create(1_000_000, 1 << 20)),
        _ => return None,
    })
}
