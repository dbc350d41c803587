//! The daemon's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = broker::confine::worker::run_if_asked() {
        return code;
    }
    broker::daemon::main()
}
