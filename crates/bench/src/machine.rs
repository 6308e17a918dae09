//! The machine of the measurements.

use serde::Serialize;

/// The properties of the machine that matter for the figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Number of cores that this process may use.
    pub cores: usize,
    /// The processor's name.
    pub cpu: String,
    /// The kernel's name and version.
    pub kernel: String,
}

impl Machine {
    /// The current machine.
    pub fn this() -> Machine {
        let cores = std::thread::available_parallelism().map_or(1, Into::into);
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let system = rustix::system::uname();
        let (kernel, release) = (system.sysname().to_string_lossy(), system.release().to_string_lossy());
        Machine {
            cores,
            cpu: name.map_or("an unnamed processor", |(_, name)| name).trim().into(),
            kernel: format!("{kernel} {release}"),
        }
    }
}
