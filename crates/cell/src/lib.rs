//! One core: WebAssembly tenants under reclamation budgets
