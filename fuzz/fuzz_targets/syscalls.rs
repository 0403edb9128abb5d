//! Any sequence of system calls, from several tenants in two trees that end at any time: nothing
//! panics, nothing is charged beyond a budget, and only registered executions are woken.
#![no_main]

use arbitrary::Arbitrary;
use leasehold_kernel::{
    Call, ExecutionId, Kernel, KernelConfig, Reply, Rights, Selector, TenantId,
};
use leasehold_reclaim::{Config, HeapBacking, Mode, Progress};
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/kernel/tests/common/costs.rs"]
mod costs;

use costs::costs;

#[derive(Debug, Arbitrary)]
struct Script {
    individual: bool,
    budget_ns: u16,
    steps: Vec<Step>,
}

#[derive(Debug, Arbitrary)]
struct Step {
    tenant: u8,
    execution: u8,
    selector: u8,
    other: u8,
    number: u32,
    what: u8,
}

/// Selectors are small, with now and then another generation or a wild one.
fn selector(of: u8, number: u32) -> Selector {
    match of {
        0..=199 => Selector(u32::from(of) % 24),
        200..=250 => Selector(u32::from(of % 12) | 1 << 20),
        _ => Selector(number),
    }
}

fn call(
    kernel: &mut Kernel<HeapBacking>,
    tenant: TenantId,
    id: ExecutionId,
    step: &Step,
) -> Option<Reply> {
    let (n, one) = (step.number, selector(step.selector, step.number));
    let two = [
        selector(step.other, n),
        selector(step.other.wrapping_add(1), n),
    ];
    let two = &two[..usize::from(step.other % 3)];
    let rights = Rights::from_bits(n % 16).unwrap_or(Rights::NONE);
    let bytes = &[0xA5; 96][..(n % 97) as usize];
    let (mut buffer, mut room) = ([0; 64], [Selector::OWN; 2]);
    let call = match step.what % 30 {
        0 => Call::CapabilityDerive {
            capability: one,
            rights,
        },
        1 => Call::CapabilityDrop { capability: one },
        2 => Call::CapabilityRevoke { capability: one },
        3 => Call::SemaphoreCreate { value: n % 3 },
        4 => Call::SemaphoreUp { semaphore: one, n },
        5 => Call::SemaphoreDown { semaphore: one },
        6 => Call::SemaphoreTryDown { semaphore: one },
        7 => Call::ChannelCreate { capacity: n % 512 },
        8 => Call::ChannelSend {
            channel: one,
            bytes,
            capabilities: two,
        },
        9 => Call::ChannelTrySend {
            channel: one,
            bytes,
            capabilities: two,
        },
        10 => Call::ChannelReceive {
            channel: one,
            bytes: &mut buffer,
            capabilities: &mut room,
        },
        11 => Call::ChannelTryReceive {
            channel: one,
            bytes: &mut buffer,
            capabilities: &mut room,
        },
        12 => Call::RegionCreate {
            length: u64::from(n % 8192),
        },
        13 => Call::RegionLength { region: one },
        14 => Call::RegionRead {
            region: one,
            offset: u64::from(n),
            into: &mut buffer,
        },
        15 => Call::RegionWrite {
            region: one,
            offset: u64::from(n % 4096),
            from: bytes,
        },
        16 => Call::TimerCreate,
        17 => {
            let (after_ns, period_ns) = (u64::from(n % 1024), u64::from(n % 7));
            Call::TimerSet {
                timer: one,
                now_ns: u64::from(n),
                after_ns,
                period_ns,
            }
        }
        18 => Call::TimerWait { timer: one },
        19 => Call::TaskCreate,
        20 => Call::TaskWait { task: one },
        21 => Call::TaskStop { task: one },
        22 => Call::TenantCreate {
            budget_ns: u64::from(n % 4096),
            memory_bytes: u64::from(n % 64),
        },
        23 => Call::TenantOf { tenant: one },
        24 => Call::TenantGrant {
            tenant: one,
            capability: selector(step.other, n),
            rights,
            links: n % 5,
        },
        25 => Call::TenantWait { tenant: one },
        26 => Call::TenantEnd { tenant: one },
        27 => Call::RegionCreateMapped {
            length: u64::from(n % 8192),
        },
        28 => Call::RegionMapping { region: one },
        _ => Call::TenantStatement,
    };
    kernel.call(tenant, id, call).ok()
}

fuzz_target!(|script: Script| {
    let mode = if script.individual {
        Mode::Individual
    } else {
        Mode::Grouped
    };
    let reclaim = Config {
        arena_bytes: 1 << 20,
        keep_resident: 1 << 19,
        mode,
        max_groups: 64,
    };
    let config = KernelConfig {
        reclaim,
        max_executions: 16,
        max_channel_bytes: 4096,
        max_region_bytes: 1 << 16,
        timer_floor_ns: 1,
    };
    let mut kernel = Kernel::new(config, costs(), HeapBacking);
    let mut tenants: Vec<TenantId> = Vec::new();
    let mut next = 0u64;
    for step in &script.steps {
        if tenants.len() < 2 {
            tenants.extend(kernel.admit(u64::from(script.budget_ns), 1 << 10));
            if tenants.is_empty() {
                return;
            }
        }
        let at = usize::from(step.tenant) % tenants.len();
        let tenant = tenants[at];
        let id = ExecutionId(next.saturating_sub(u64::from(step.execution % 8)));
        match step.what {
            224..=231 => {
                next += 1;
                let _ = kernel.register_execution(tenant, ExecutionId(next));
            }
            232..=235 => {
                next += 1;
                let task = selector(step.selector, step.number);
                let _ = kernel.register_task(tenant, task, ExecutionId(next));
            }
            236..=239 => kernel.execution_finished(id, 1),
            240 => kernel.cancel_wait(id),
            241..=243 => {
                kernel.expire(tenant, u64::from(step.number), 8);
                while kernel.next_rearmed().is_some() {}
            }
            244..=247 => {
                let to = tenants[usize::from(step.other) % tenants.len()];
                let capability = selector(step.selector, step.number);
                let rights = Rights::from_bits(step.number % 16).unwrap_or(Rights::NONE);
                let _ = kernel.connect(tenant, capability, to, rights, step.number % 5);
            }
            248..=251 => {
                tenants.swap_remove(at);
                let _ = kernel.end(tenant, &mut |_| {});
            }
            252.. => {
                tenants.swap_remove(at);
                let Ok(mut end) = kernel.begin_end(tenant) else {
                    continue;
                };
                let mut steps = 0;
                while kernel.step_end(&mut end, &mut |_| {}, 1) != Progress::Done {
                    steps += 1;
                    assert!(steps < 100_000, "an end that does not come to an end");
                    // Others go on in between.
                    if let Some(&other) = tenants.first() {
                        call(&mut kernel, other, id, step);
                    }
                }
            }
            _ => {
                if let Some(Reply::Tenant(tenant)) = call(&mut kernel, tenant, id, step)
                    && tenants.len() < 32
                    && !tenants.contains(&tenant)
                {
                    tenants.push(tenant);
                }
            }
        }
        while let Some((woken, _)) = kernel.next_wake() {
            assert!(woken.0 <= next, "not registered: {woken:?}");
        }
        for &tenant in &tenants {
            if let Ok(statement) = kernel.statement(tenant) {
                let sum = statement.charged.0 + statement.carved.0 + statement.left.0;
                assert_eq!(sum, statement.budget.0);
            }
        }
    }
});
