//! Reclamation groups with a time budget, group arenas and scrub lists (BRR); no_std
