//! Queues (`print_queuespec`).

use std::fmt::{self, Write as _};

use crate::rule::{Queue, ServiceCurve};

pub(super) fn write(f: &mut String, queue: &Queue) -> fmt::Result {
    write!(f, "queue {}", queue.name)?;
    match (&queue.parent, &queue.interface) {
        (Some(parent), _) => write!(f, " parent {parent}")?,
        (None, Some(interface)) => write!(f, " on {interface}")?,
        (None, None) => {}
    }
    if queue.flows > 0 {
        write!(f, " flows {}", queue.flows)?;
        if queue.quantum > 0 {
            write!(f, " quantum {}", queue.quantum)?;
        }
    }
    if queue.bandwidth.burst > 0 || queue.bandwidth.rate > 0 {
        write_curve(f, " bandwidth ", queue.bandwidth)?;
        write_curve(f, ", min ", queue.min)?;
        write_curve(f, ", max ", queue.max)?;
    }
    if queue.default {
        f.write_str(" default")?;
    }
    if queue.limit > 0 {
        write!(f, " qlimit {}", queue.limit)?;
    }
    f.write_char('\n')
}

fn write_curve(f: &mut String, prefix: &str, curve: ServiceCurve) -> fmt::Result {
    write_rate(f, prefix, curve.rate)?;
    if curve.milliseconds > 0 {
        f.write_str(" burst ")?;
        write_rate(f, "", curve.burst)?;
        write!(f, " for {}ms", curve.milliseconds)?;
    }
    Ok(())
}

fn write_rate(f: &mut String, prefix: &str, mut rate: u64) -> fmt::Result {
    if rate == 0 {
        return Ok(());
    }
    // Below 1000 bit/s pfctl prints a blank as the unit.
    let mut units = " KMG".chars();
    let mut unit = units.next().unwrap_or(' ');
    while rate >= 1000 && rate.is_multiple_of(1000) {
        let Some(next) = units.next() else { break };
        rate /= 1000;
        unit = next;
    }
    write!(f, "{prefix}{rate}{unit}")
}
