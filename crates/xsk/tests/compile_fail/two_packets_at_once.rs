fn misuse(batch: &mut xsk::RxBatch<'_>) {
    let first = batch.next_packet();
    let second = batch.next_packet();
    drop((first, second));
}

fn main() {}
