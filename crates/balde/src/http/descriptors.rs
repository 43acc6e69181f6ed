//! The limit on the file descriptors of this process.

/// How many file descriptors this process may open. See [`descriptor_limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DescriptorLimits {
    /// The limit that applies.
    pub soft: u64,
    /// What a process may raise the soft limit to.
    pub hard: u64,
}

/// Returns how many file descriptors this process may open, from `/proc/self/limits`; `None` on systems
/// without that file. A system without a limit reports `u64::MAX`.
pub fn descriptor_limits() -> Option<DescriptorLimits> {
    parse(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

fn parse(limits: &str) -> Option<DescriptorLimits> {
    let mut lines = limits.lines();
    let numbers = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    let mut numbers = numbers.split_whitespace().map(|number| match number {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some(DescriptorLimits {
        soft: numbers.next()??,
        hard: numbers.next()??,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_open_files_is_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max processes             unlimited            unlimited            processes\n\
                    Max open files            1024                 unlimited            files\n";
        let expected = DescriptorLimits {
            soft: 1_024,
            hard: u64::MAX,
        };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("Max open files few many files"), None);
        assert_eq!(parse(""), None);
    }
}
