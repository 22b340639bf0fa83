//! Little address space. The test runs itself again as a child process under the limit, because a limit holds for a
//! whole process.

use mangrove_shadow::{Create, Error, Latency, Medium, Options, Shadow};
use std::process::Command;

const ROLE: &str = "MANGROVE_LIMITS_FOLDER";

#[test]
fn too_little_address_space_is_not_called_damage() {
    let options = || {
        let options = Options::new().create(Create::IfMissing).capacity(64 << 30);
        options.medium(Medium::Emulated(Latency::default())).log_bytes(64 << 10)
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

#[test]
fn a_read_only_configuration_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = mangrove_shadow::PoolConfig { read_only: true, ..Default::default() };
    let refused = mangrove_shadow::Options::new().config(config).open(dir.path().join("s")).unwrap_err();
    assert_eq!(refused.to_string(), "a shadow cannot be opened read-only");
}
