//! Prints which of the features that the library uses this kernel has, and this process may use.

use xsk::Feature;

fn main() {
    for feature in Feature::ALL {
        match feature.probe() {
            Ok(()) => println!("{feature}: yes"),
            Err(missing) => println!("{missing}"),
        }
    }
}
