// The types of the control interface, as `crates/node/src/view.rs` has them.

export type State =
  | "starting" | "running" | "ready" | "blocked" | "depleted"
  | "draining" | "ending" | "restarting" | "ended";

export interface Snapshot {
  at: string;
  node: Node;
  tenants: Tenant[];
  ends: End[];
  steps: Step[];
  costs: Cost[];
  last_event: number;
}

export interface Node {
  version: string;
  started_at: string;
  uptime_ns: number;
  order: string;
  realtime: string;
  own_core: number | null;
  confinement: string;
  schedulable: boolean;
  utilization: number;
  listeners: Listener[];
}

export interface Listener {
  name: string;
  address: string;
  tls: boolean;
}

export interface Tenant {
  name: string;
  desired: "running" | "stopped";
  state: State;
  since: string;
  component: string;
  restarts: number;
  exit?: Exit;
  reclaim: { budget_ns: number; charged_ns?: number };
  cpu?: Cpu;
  processor?: Processor;
  memory: { reserve_bytes: number; limit_bytes: number; used_bytes?: number };
  end_bound?: { effect_ns: number; returned_ns?: number };
  http?: Http;
  last_end?: End;
}

export interface Exit {
  kind: "code" | "killed" | "trap" | "lease" | "memory";
  code?: number;
  message?: string;
}

export interface Cpu {
  budget_ns: number;
  period_ns: number;
  priority: number;
  policy: string;
  utilization: number;
}

export interface Processor {
  state: State;
  budget_ns?: number;
  period_ns?: number;
  left_ns?: number;
  supply: Supply;
}

export interface Supply {
  used_ns: number;
  dispatches: number;
  replenishments: number;
  preemptions: number;
  depletions: number;
  misses: number;
  overrun_max_ns: number;
}

export interface Latency {
  count: number;
  sum_ns: number;
  p50_ns: number;
  p90_ns: number;
  p99_ns: number;
  max_ns: number;
}

export interface Http {
  routes: string[];
  listeners: string[];
  concurrency: number;
  queue: number;
  waiting: number;
  active: number;
  outcomes: Record<string, number>;
  latency: Latency;
}

export interface Requests {
  waiting: number;
  active: number;
  outcomes: Record<string, number>;
  latency: Latency;
  last: Request[];
}

export interface Request {
  id: number;
  at: string;
  remote: string;
  method: string;
  host: string;
  path: string;
  status?: number;
  body_bytes: number;
  elapsed_ns: number;
  queued_ns?: number;
  guest_ns?: number;
  outcome: string;
}

export interface End {
  tenant: string;
  at: string;
  exit: Exit;
  predicted_ns: number;
  measured_ns: number;
  effect_ns: number;
  reusable_ns: number;
  wall_ns: number;
  bound_ns?: number;
  within_bound?: boolean;
  budget_ns: number;
  calls_under_way: number;
}

export interface Event {
  seq: number;
  at: string;
  kind: string;
  tenant?: string;
  message?: string;
  end?: End;
  missed?: number;
}

export interface Statement {
  budget_ns: number;
  charged_ns: number;
  left_ns: number;
  rows: { class: string; count: number; reclamation_ns: number }[];
}

export interface MemoryUse {
  linear_bytes: number;
  reserve_bytes: number;
  limit_bytes: number;
  shared_bytes: number;
  swapped_bytes: number;
  paging?: {
    owned_bytes: number;
    conserved_bytes: number;
    locked_bytes: number;
    free_bytes: number;
    borrowed_bytes: number;
    zero_faults: number;
    minor_faults: number;
    major_faults: number;
    evicted: number;
    written: number;
  };
}

export interface LogLine {
  at: string;
  stream: "stdout" | "stderr" | "host";
  line: string;
  request?: number;
}

export interface Step {
  row: string;
  steps: number;
  longest_ns: number;
  limit_ns: number;
  exceeded: number;
  disturbed: number;
  raised_ns?: number;
}

export interface Cost {
  class: string;
  samples: number;
  exceeded: number;
  drifts: number;
  price: number;
}
