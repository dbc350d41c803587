//! The kernel's time on each CPU, by tracepoints: hard interrupts, softirqs by vector, NAPI
//! polls, ksoftirqd and threaded NAPI, and the tasks that all of it interrupted.
