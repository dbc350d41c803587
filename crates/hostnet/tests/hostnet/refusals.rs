//! Errors of the kernel: their kind, errno, reason and cure.

use std::os::fd::AsFd as _;

use hostnet::ethtool::{self, Offload};
use hostnet::rtnetlink::Rtnetlink;
use hostnet::tap::Tap;
use hostnet::{ErrorKind, netns};
use rustix::thread::{CapabilitySet, CapabilitySets};

use testkit::{Need, Result, Test};

use crate::{devices, refusal};

pub fn tests() -> Vec<Test> {
    vec![
        Test::new("an_object_twice_already_exists", twice),
        Test::new("a_missing_device_is_not_found", missing),
        Test::new("a_refusal_has_the_kernels_reason", reason),
        Test::new("a_missing_capability_is_named", capability),
        Test::new("a_tap_has_a_name_of_its_own", tap_name).needing(&[Need::File("/dev/net/tun")]),
    ]
}

fn twice() -> Result<()> {
    let namespace = netns::create()?;
    let error = netns::run_in(namespace.as_fd(), || -> hostnet::Result<_> {
        let mut rtnetlink = Rtnetlink::open()?;
        rtnetlink.add_bridge("br0")?;
        let index = rtnetlink.link("br0")?.index;
        rtnetlink.add_address(index, [192, 0, 2, 1].into(), 24)?;
        let address = rtnetlink.add_address(index, [192, 0, 2, 1].into(), 24);
        assert_eq!(refusal(address).kind(), ErrorKind::AlreadyExists);
        Ok(refusal(rtnetlink.add_bridge("br0")))
    })?;
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(error.errno(), Some(17));
    assert_eq!(
        error.to_string(),
        "cannot make the bridge br0 (EEXIST 17: File exists)"
    );
    Ok(())
}

fn missing() -> Result<()> {
    let namespace = netns::create()?;
    netns::run_in(namespace.as_fd(), || -> hostnet::Result<_> {
        let mut rtnetlink = Rtnetlink::open()?;
        let error = refusal(rtnetlink.link("nowhere"));
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("`ip link`"), "{error}");
        let error = refusal(rtnetlink.set_up(4711));
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let error = refusal(ethtool::set("nowhere", Offload::Gro, true));
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        // The socket is good for the next request.
        assert!(rtnetlink.link("lo")?.loopback);
        Ok(())
    })?;
    Ok(())
}

fn reason() -> Result<()> {
    let namespace = netns::create()?;
    let error = netns::run_in(namespace.as_fd(), || -> hostnet::Result<_> {
        let mut rtnetlink = Rtnetlink::open()?;
        rtnetlink.add_bridge("br0")?;
        rtnetlink.add_bridge("br1")?;
        let (br0, br1) = (rtnetlink.link("br0")?.index, rtnetlink.link("br1")?.index);
        Ok(refusal(rtnetlink.add_port(br0, br1)))
    })?;
    // The text and errno of br_add_if in net/bridge/br_if.c.
    assert_eq!(error.errno(), Some(40), "{error}");
    assert!(error.to_string().contains("enslave a bridge"), "{error}");
    Ok(())
}

fn capability() -> Result<()> {
    let [a, _b] = devices::pair(1, 1500)?;
    // Capabilities belong to a thread, and this one ends with the test.
    let checked = netns::run_in(a.as_fd(), || -> hostnet::Result<_> {
        let mut rtnetlink = Rtnetlink::open()?;
        let index = rtnetlink.link("v0")?.index;
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none).expect("a thread can drop its capabilities");
        // Reading needs none.
        rtnetlink.links()?;
        Ok([
            refusal(rtnetlink.set_up(index)),
            refusal(ethtool::set("v0", Offload::Gro, true)),
            refusal(netns::create()),
            refusal(netns::enter(a.as_fd())),
        ])
    })?;
    for error in checked {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains("this needs CAP_"), "{error}");
    }
    Ok(())
}

fn tap_name() -> Result<()> {
    let namespace = netns::create()?;
    netns::run_in(namespace.as_fd(), || -> hostnet::Result<_> {
        let error = refusal(Tap::create("tap%d"));
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        let _first = Tap::create("t0")?;
        let error = refusal(Tap::create("t0"));
        assert_eq!(error.errno(), Some(16), "{error}");
        Ok(())
    })?;
    Ok(())
}
