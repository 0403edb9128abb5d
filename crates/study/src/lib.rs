//! The experiments: every figure and table of the papers that Leasehold reproduces
