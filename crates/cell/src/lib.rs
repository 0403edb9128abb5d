//! One core: WebAssembly tenants under reclamation budgets

pub mod bulk;
pub mod engine_config;
pub mod inventory;
pub mod program;
