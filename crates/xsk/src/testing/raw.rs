//! Ways around the checks, to see the kernel refuse what the library never lets through.
