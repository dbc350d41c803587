use crate::Test;
pub fn tests() -> Vec<Test> {
    Vec::new()
}
