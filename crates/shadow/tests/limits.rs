//! What an opening may not do. Little address space: the test runs itself again as a child process under the limit,
//! because a limit holds for a whole process. Nothing to write to: read-only.

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
            let is_told = matches!(error, Error::Unsupported { .. } | Error::MemoryLimit { limit: 0, .. });
            assert!(is_told, "{text}");
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

/// Its owner sees what was committed, also from a log that nobody has replayed, and can commit nothing.
#[test]
fn a_read_only_shadow_takes_no_commit() {
    for medium in [Medium::File, Medium::Emulated(Latency::default())] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let options = Options::new().create(Create::IfMissing).capacity(64 << 20).log_bytes(64 << 10);
        let shadow = options.medium(medium).background(false).open(&path).unwrap();
        shadow.grow(1 << 20).unwrap();
        // SAFETY: inside what was grown.
        unsafe { shadow.base().add(5000).write(7) };
        shadow.commit(0, &[(shadow.base() as usize + 5000, 1)]).unwrap();
        shadow.sync().unwrap();
        let (base, len) = (shadow.base() as usize, shadow.len());
        drop(shadow);
        let shadow = Options::new().read_only(true).open(&path).unwrap();
        assert!(shadow.is_read_only() && shadow.try_lease().is_none());
        assert_eq!((shadow.base() as usize, shadow.len()), (base, len));
        // SAFETY: inside what was grown; private memory.
        assert_eq!(unsafe { shadow.base().add(5000).read() }, 7);
        let refused = shadow.commit(0, &[(base, 1)]);
        assert!(matches!(refused, Err(Error::ReadOnly { .. })), "{refused:?}");
        shadow.sync().unwrap();
        shadow.close().unwrap();
        assert!(!Shadow::check(&path).unwrap().clean, "a reader closed it");
    }
}
