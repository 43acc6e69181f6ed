//! Names of partitions.

/// The longest name of a partition, in bytes.
pub(crate) const PARTITION_BYTES_MAX: usize = 128;

/// Returns true if a partition can have this name.
pub(crate) fn is_partition_name(name: &str) -> bool {
    (1..=PARTITION_BYTES_MAX).contains(&name.len())
}
