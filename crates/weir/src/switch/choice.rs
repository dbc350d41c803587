//! The choice of a port's hook.

use super::settings::Hook;

/// The facts that decide about a port's hook.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The kind of a virtual device; none for a card.
    pub kind: Option<String>,
    /// Whether the driver has XDP; none where the kernel cannot tell (before Linux 6.3).
    pub native: Option<bool>,
    /// Whether frames can be redirected to it by XDP; none where the kernel cannot tell.
    pub redirect_target: Option<bool>,
    /// The MTU, which a driver may not have with XDP.
    pub mtu: u32,
    /// Of a tap: its frames have a header for pending offloads (`IFF_VNET_HDR`).
    pub vnet_header: bool,
    /// The root queueing discipline.
    pub qdisc: Option<String>,
    /// Filters of tc or programs of tcx at ingress, which only the kernel's path passes.
    pub ingress_filters: bool,
    /// Filters of tc or programs of tcx at egress.
    pub egress_filters: bool,
    /// Another XDP program: its id and name.
    pub other_xdp: Option<(u32, String)>,
    /// Of a bond: a card that takes VLAN tags out of frames, where XDP cannot see them.
    pub takes_tags: Option<String>,
    /// The name of a setting of the port that only the kernel honours.
    pub unsupported: Option<&'static str>,
}

/// A hook, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Never [`Hook::Auto`].
    pub hook: Hook,
    /// Why this one.
    pub why: String,
    /// Whether another hook may be tried where this one is refused.
    pub may_fall_back: bool,
}

impl Choice {
    fn new(hook: Hook, why: impl Into<String>) -> Self {
        Self {
            hook,
            why: why.into(),
            may_fall_back: true,
        }
    }
}

/// Queueing disciplines without a rate: a frame that bypasses them arrives as it would with them.
const WITHOUT_RATE: [&str; 8] = [
    "noqueue",
    "pfifo_fast",
    "pfifo",
    "bfifo",
    "fq_codel",
    "fq",
    "mq",
    "noop",
];

impl Facts {
    /// The hook of a port.
    ///
    /// # Errors
    ///
    /// Where the wanted hook cannot be had: the obstacle.
    pub fn choose(&self, wanted: Hook) -> Result<Choice, String> {
        if wanted == Hook::Kernel {
            return Ok(Choice::new(Hook::Kernel, "as set"));
        }
        if let Some(setting) = self.unsupported {
            let why = format!("{setting} is in use, which only the kernel's bridge honours");
            return Ok(Choice::new(Hook::Kernel, why));
        }
        if self.ingress_filters {
            let why = "it has tc filters or programs at ingress, which the fast path would skip";
            return Ok(Choice::new(Hook::Kernel, why));
        }
        match wanted {
            Hook::Xdp => self.choose_xdp(),
            Hook::Tcx => Ok(Choice {
                may_fall_back: false,
                ..Choice::new(Hook::Tcx, "as set")
            }),
            _ => Ok(self.choose_any()),
        }
    }

    fn choose_xdp(&self) -> Result<Choice, String> {
        if let Some((id, name)) = &self.other_xdp {
            return Err(format!(
                "the XDP program {name} (id {id}) is attached to it: end its owner (`bpftool net` and \
                 `bpftool prog show id {id}` show more), or choose the hook tcx"
            ));
        }
        if self.native == Some(false) {
            return Err(
                "its driver has no XDP, or not with its present queues: choose the hook tcx".into(),
            );
        }
        if let Some(card) = &self.takes_tags {
            return Err(format!(
                "its card {card} takes VLAN tags out of frames, where XDP cannot see them: `ethtool -K {card} \
                 rxvlan off rx-vlan-stag-hw-parse off`, or choose the hook tcx"
            ));
        }
        Ok(Choice {
            may_fall_back: false,
            ..Choice::new(Hook::Xdp, "as set")
        })
    }

    fn choose_any(&self) -> Choice {
        if let Some((id, name)) = &self.other_xdp {
            let why = format!("the XDP program {name} (id {id}) is attached to it");
            return Choice::new(Hook::Tcx, why);
        }
        match self.kind.as_deref() {
            Some("tun") if self.vnet_header => Choice::new(
                Hook::Tcx,
                "frames of this tap may have pending offloads (vnet_hdr), which XDP would lose",
            ),
            Some("tun") => Choice::new(Hook::Xdp, "a tap without offloads"),
            Some("veth") => Choice::new(
                Hook::Tcx,
                "frames of a veth may have pending offloads, which XDP would lose",
            ),
            Some("bond") if self.takes_tags.is_some() => Choice::new(
                Hook::Tcx,
                "a card of this bond takes VLAN tags out of frames, where XDP cannot see them",
            ),
            None | Some("bond") if self.native == Some(true) => {
                Choice::new(Hook::Xdp, "its driver has XDP")
            }
            None if self.native.is_none() => Choice::new(Hook::Xdp, "a card"),
            None | Some("bond") => Choice::new(Hook::Tcx, "its driver has no XDP"),
            Some(kind) => Choice::new(Hook::Tcx, format!("a device of kind {kind}")),
        }
    }

    /// Why frames cannot be redirected to it by XDP; `hook` is its own.
    pub fn no_redirect(&self, hook: Hook) -> Option<String> {
        if self.egress_filters {
            return Some("it has tc filters or programs at egress, which XDP would skip".into());
        }
        match &self.qdisc {
            Some(qdisc) if !WITHOUT_RATE.contains(&qdisc.as_str()) => {
                return Some(format!("XDP would skip its queueing discipline {qdisc}"));
            }
            _ => {}
        }
        match (self.kind.as_deref(), self.redirect_target) {
            (Some("veth"), Some(false)) => Some(
                "its peer has no NAPI: `ethtool -K PEER gro on` in the peer's namespace gives it one"
                    .into(),
            ),
            (_, Some(false)) => Some("its driver takes no redirected frames".into()),
            (None | Some("bond"), _) if hook != Hook::Xdp => {
                Some("a card takes redirected frames only with an XDP program".into())
            }
            (None, _) | (Some("tun"), None) | (_, Some(true)) => None,
            _ => Some("this kernel does not tell whether it takes redirected frames".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(kind: Option<&str>, native: Option<bool>) -> Facts {
        Facts {
            kind: kind.map(str::to_owned),
            native,
            redirect_target: native,
            ..Facts::default()
        }
    }

    fn auto(facts: &Facts) -> Hook {
        facts.choose(Hook::Auto).expect("auto finds a hook").hook
    }

    #[test]
    fn auto_is_by_the_kind_of_device() {
        assert_eq!(auto(&device(None, Some(true))), Hook::Xdp);
        assert_eq!(auto(&device(None, Some(false))), Hook::Tcx);
        assert_eq!(auto(&device(None, None)), Hook::Xdp);
        assert_eq!(auto(&device(Some("veth"), Some(true))), Hook::Tcx);
        assert_eq!(auto(&device(Some("bond"), Some(true))), Hook::Xdp);
        assert_eq!(auto(&device(Some("vxlan"), Some(false))), Hook::Tcx);
        let mut bond = device(Some("bond"), Some(true));
        bond.takes_tags = Some("eth1".into());
        assert_eq!(auto(&bond), Hook::Tcx);
        let refused = bond.choose(Hook::Xdp).expect_err("tags are hidden");
        assert!(refused.contains("ethtool -K eth1 rxvlan off"), "{refused}");
        let mut tap = device(Some("tun"), Some(true));
        assert_eq!(auto(&tap), Hook::Xdp);
        tap.vnet_header = true;
        assert_eq!(auto(&tap), Hook::Tcx);
    }

    #[test]
    fn a_port_is_left_to_the_kernel_where_the_fast_path_would_skip_something() {
        let mut facts = device(None, Some(true));
        facts.ingress_filters = true;
        let choice = facts.choose(Hook::Xdp).expect("a choice");
        assert_eq!(choice.hook, Hook::Kernel);
        assert!(
            choice.why.contains("tc filters or programs"),
            "{}",
            choice.why
        );
        facts.ingress_filters = false;
        facts.unsupported = Some("backup_port");
        assert_eq!(auto(&facts), Hook::Kernel);
    }

    #[test]
    fn another_program_has_the_place() {
        let mut facts = device(None, Some(true));
        facts.other_xdp = Some((7, "theirs".into()));
        assert_eq!(auto(&facts), Hook::Tcx);
        let refused = facts.choose(Hook::Xdp).expect_err("the place is taken");
        assert!(refused.contains("theirs (id 7)"), "{refused}");
        assert!(facts.choose(Hook::Tcx).is_ok());
    }

    #[test]
    fn only_some_devices_take_redirected_frames() {
        let veth = device(Some("veth"), Some(false));
        assert!(
            veth.no_redirect(Hook::Tcx)
                .expect("no NAPI")
                .contains("gro on")
        );
        assert_eq!(
            device(Some("veth"), Some(true)).no_redirect(Hook::Tcx),
            None
        );
        assert_eq!(device(Some("tun"), None).no_redirect(Hook::Tcx), None);
        let card = device(None, Some(true));
        assert_eq!(card.no_redirect(Hook::Xdp), None);
        assert!(card.no_redirect(Hook::Tcx).is_some());
        let bond = device(Some("bond"), Some(true));
        assert_eq!(bond.no_redirect(Hook::Xdp), None);
        assert!(bond.no_redirect(Hook::Tcx).is_some());
        assert!(device(Some("vxlan"), None).no_redirect(Hook::Tcx).is_some());
        let mut shaped = device(Some("tun"), Some(true));
        shaped.qdisc = Some("tbf".into());
        assert!(
            shaped
                .no_redirect(Hook::Xdp)
                .expect("a rate")
                .contains("tbf")
        );
    }
}
