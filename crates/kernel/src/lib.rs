//! Capabilities and kernel objects of one cell, built on reclamation groups; no_std
