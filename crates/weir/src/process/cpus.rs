//! CPUs of load and application: apart, so that neither takes time from the other.

use anyhow::Result;

use hostnet::cpulist::{CpuList, pin};

/// The CPUs of a measurement.
#[derive(Debug)]
pub struct Cpus {
    /// The number of CPUs that this process may run on.
    pub allowed: usize,
    /// The CPU of the load.
    pub load: usize,
    /// The CPU of the application.
    pub app: usize,
    /// The CPU of the sending half of an engine on two CPUs.
    pub sender: usize,
}

impl Cpus {
    /// Those asked for, else the first allowed ones; load and application share a CPU only if no
    /// other is allowed, and the sending half has one of its own only if there is a third.
    pub fn choose(load: Option<usize>, app: Option<usize>) -> Result<Self> {
        for cpu in [load, app].into_iter().flatten() {
            CpuList::new([cpu]).check_allowed()?;
        }
        Ok(Self::among(CpuList::allowed()?.as_slice(), load, app))
    }

    fn among(allowed: &[usize], load: Option<usize>, app: Option<usize>) -> Self {
        let other_than = |taken: Option<usize>| {
            let mut free = allowed.iter().filter(|&&cpu| Some(cpu) != taken);
            free.next().or(allowed.first()).copied().unwrap_or(0)
        };
        let load = load.unwrap_or_else(|| other_than(app));
        let app = app.unwrap_or_else(|| other_than(Some(load)));
        let third = allowed.iter().find(|&&cpu| cpu != load && cpu != app);
        Self {
            allowed: allowed.len(),
            load,
            app,
            sender: third.copied().unwrap_or(load),
        }
    }

    /// Pins this process to the load's CPU, off that of the application.
    pub fn leave_to_engines(&self) -> Result<()> {
        Ok(pin(self.load)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_and_engine_get_cpus_of_their_own() {
        let choose = |allowed: &[usize], load, app| {
            let cpus = Cpus::among(allowed, load, app);
            (cpus.load, cpus.app, cpus.sender)
        };
        assert_eq!(choose(&[2, 5, 7], None, None), (2, 5, 7));
        assert_eq!(choose(&[2, 5, 7], None, Some(2)), (5, 2, 7));
        assert_eq!(choose(&[2, 5, 7], Some(5), None), (5, 2, 7));
        assert_eq!(choose(&[2, 5], None, None), (2, 5, 2));
        assert_eq!(choose(&[3], None, None), (3, 3, 3));
        assert!(Cpus::choose(None, Some(usize::MAX)).is_err());
    }
}
