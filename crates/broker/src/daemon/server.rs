//! The state that all connections share.

use super::connections::Connections;
use super::log::event;
use super::supervision::Supervision;
use crate::confine::{Needs, Report};
use crate::lease::Leases;
use crate::policy::Policy;
use crate::turns::Turns;
use anyhow::{Result, bail};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

/// Requests that are answered at one time: all, and of one user.
pub(super) const MAX_REQUESTS: usize = 64;
pub(super) const MAX_REQUESTS_OF_USER: usize = 1;

/// State that all connections share.
pub(super) struct Server {
    pub(super) policy: RwLock<Arc<Policy>>,
    pub(super) policy_file: PathBuf,
    /// Needs of the policy when privileges were given up.
    pub(super) needs: Needs,
    pub(super) confinement: Report,
    pub(super) leases: Arc<Leases>,
    pub(super) supervision: Supervision,
    pub(super) started: SystemTime,
    pub(super) keeps_programs: bool,
    pub(super) connections: Arc<Connections>,
    /// Of users, by their ids, and of their processes, to have requests answered.
    pub(super) turns: Turns<u32>,
    /// The devices of the plugin's sockets; none where the service manager made one for all, or there is
    /// none.
    pub(super) plugin_devices: Option<BTreeSet<String>>,
}

impl Server {
    /// The policy in force.
    pub(super) fn policy(&self) -> Arc<Policy> {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&policy)
    }

    /// Reads the policy file again; one with faults leaves the policy in force as it is.
    pub(super) fn reload(&self) {
        let file = self.policy_file.display().to_string();
        match self.load() {
            Ok(policy) => {
                let tenants = policy.tenants.len();
                *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
                event("reload", json!({"policy": file, "tenants": tenants}));
            }
            Err(error) => event(
                "reload-failed",
                json!({"policy": file, "error": format!("{error:#}"), "in_force": "the former policy"}),
            ),
        }
    }

    fn load(&self) -> Result<Policy> {
        let policy = Policy::load(&self.policy_file)?;
        let missing = Needs::of(&policy).exceeds(&self.needs);
        if !missing.is_empty() {
            bail!(
                "it needs privileges that this broker has given up ({}): restart weir-broker, which keeps all leases",
                missing.join(", ")
            );
        }
        let mut devices = plugin_devices(&policy).into_iter();
        if let Some(known) = &self.plugin_devices
            && let Some(new) = devices.find(|device| !known.contains(device))
        {
            bail!(
                "{new} has no socket for clients of the device plugin yet: restart weir-broker, which keeps all leases"
            );
        }
        Ok(policy)
    }
}

/// The devices whose maps are given out.
pub(super) fn plugin_devices(policy: &Policy) -> BTreeSet<String> {
    let grants = policy.tenants.iter().flat_map(|tenant| &tenant.devices);
    let devices = grants.filter(|grant| grant.plugin);
    devices.map(|grant| grant.device.clone()).collect()
}
