//! Little address space. The test runs itself again as a child under the limit, because limits are for whole processes.

use mangrove_shadow::{CreateMode, Error, Latency, MediumChoice, Options, Shadow};
use std::process::Command;

const ROLE: &str = "MANGROVE_LIMITS_FOLDER";

#[test]
fn too_little_address_space_is_not_called_damage() {
    let options = || {
        let options = Options::new().create(CreateMode::CreateIfMissing).capacity(64 << 30);
        options.medium(MediumChoice::Emulated(Latency::default())).log_bytes(64 << 10)
    };
    if let Some(path) = std::env::var_os(ROLE) {
        for error in [options().open(&path).unwrap_err(), Shadow::check(&path).unwrap_err()] {
            let text = error.to_string();
            assert!(matches!(error, Error::Unsupported { .. }), "{text}");
            assert!(text.contains("address space") && text.contains("ulimit -v"), "{text}");
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    options().open(&path).unwrap().close().unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 20000000 && exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "too_little_address_space_is_not_called_damage", "--nocapture"])
        .env(ROLE, &path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    options().open(&path).unwrap().close().unwrap();
}
