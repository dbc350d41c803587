
pub mod frame;
pub mod load;
