// Included by build.rs and by lib.rs, each with a macro of its own: number of BROKEN in switch.bpf.c, name, meaning.
defects! {
    1 "source-check": "a source may be behind any port",
    2 "move": "an address that moves is not marked",
    3 "isolation": "isolated ports reach each other",
    4 "mtu": "frames may be too long for a port",
    5 "untag": "a tag stays on where it is to be removed (needs VLAN filtering)",
    6 "state": "ports forward that are not in that state",
    7 "vlan": "frames leave by ports that are not in their VLAN (needs VLAN filtering)",
    8 "deadline": "the programs go on without their daemon",
}
