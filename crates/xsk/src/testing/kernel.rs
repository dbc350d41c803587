//! The kernel of the rings, modelled in memory: for property tests, fuzzing and Miri.
