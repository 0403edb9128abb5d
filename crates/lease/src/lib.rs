//! Leases: the contract of a tenant, from lease.toml or flags
