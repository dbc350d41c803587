fn misuse(first: &mut xsk::Socket, second: &mut xsk::Socket) {
    first.receive_each(1, |outer| {
        let mut decision = None;
        second.receive_each(1, |inner| {
            decision = Some(inner.recycle());
            outer.recycle()
        });
        decision.expect("a packet")
    });
}

fn main() {}
