//! Sides, and packet sockets on them.

use hostnet::netns;
use std::time::Duration;
use testkit::{Batch, PacketSocket, Result, Side, Test, join, tests, wait_until};

const PROTOCOL: u16 = 0x88b5;
const STEP: Duration = Duration::from_secs(10);

pub fn tests() -> Vec<Test> {
    tests![
        a_frame_goes_from_side_to_side,
        a_tag_is_put_back,
        commands_run_in_the_namespace,
    ]
}

fn pair() -> Result<[Side; 2]> {
    let sides = [Side::new("near0")?, Side::new("far0")?];
    join([&sides[0], &sides[1]], 1, 1, 1500)?;
    for side in &sides {
        side.set_up(true)?;
    }
    Ok(sides)
}

fn frame() -> Vec<u8> {
    let addresses = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    [&addresses[..], &PROTOCOL.to_be_bytes(), &[7; 50]].concat()
}

fn a_frame_goes_from_side_to_side() -> Result {
    let [near, far] = pair()?;
    let before = netns::current()?;
    let open = |side: &Side| -> Result<PacketSocket> {
        let options = PacketSocket::on(side.index()?).protocol(PROTOCOL);
        Ok(side.inside(|| options.ignoring_outgoing().open())?)
    };
    let (near, far) = (open(&near)?, open(&far)?);
    assert_eq!(netns::current()?, before);
    near.send(&frame())?;
    let mut buffer = [0; 100];
    assert_eq!(far.receive(&mut buffer, STEP)?, Some(&frame()[..]));
    let own = near.receive(&mut buffer, Duration::from_millis(1))?;
    assert_eq!(own, None, "its own frame");
    Ok(())
}

fn a_tag_is_put_back() -> Result {
    let [near, far] = pair()?;
    let sender = PacketSocket::on(near.index()?).sending_only();
    let sender = near.inside(|| sender.open())?;
    let receiver = PacketSocket::on(far.index()?).with_tags().nonblocking();
    let receiver = far.inside(|| receiver.open())?;
    let mut tagged = frame();
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
    sender.send(&tagged)?;
    let (mut batch, mut came) = (Batch::new(), Vec::new());
    let got = wait_until(STEP, || {
        let drained = batch.drain(&receiver, |frame| came.push(frame));
        drained.is_ok() && !came.is_empty()
    });
    assert!(got);
    assert_eq!(came, [tagged]);
    Ok(())
}

fn commands_run_in_the_namespace() -> Result {
    let [near, far] = pair()?;
    let shown = near.output("ip", "-o link")?;
    assert!(
        shown.contains("near0") && !shown.contains("far0"),
        "{shown}"
    );
    let beside = near.beside("near1")?;
    join([&beside, &far.beside("far1")?], 3, 2, 3000)?;
    assert_eq!(beside.link()?.mtu, 3000);
    near.ip("link set near1 mtu 1400")?;
    assert_eq!(beside.link()?.mtu, 1400);
    let refused = near.ip("link set none up").expect_err("no such device");
    assert!(refused.to_string().contains("none"), "{refused}");
    near.sysctl("ipv4/ip_forward", "1")?;
    assert_eq!(near.output("sysctl", "-n net.ipv4.ip_forward")?, "1\n");
    assert_eq!(far.output("sysctl", "-n net.ipv4.ip_forward")?, "0\n");
    Ok(())
}
