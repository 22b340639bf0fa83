//! The files that an `include` with a pattern names: as the server finds them, by glob(3) in the C locale.

use mangrove_sys::file::name_matches;
use std::path::{Path, PathBuf};

/// Whether the server takes the value of an `include` for a pattern.
pub(crate) fn is_pattern(value: &str) -> bool {
    value.contains(['*', '?', '['])
}

/// Whether `files` does not know what the pattern means: it escapes a character, or names a class of them.
pub(crate) fn is_unknown(pattern: &str) -> bool {
    ["\\", "[:", "[.", "[="].iter().any(|sign| pattern.contains(sign))
}

/// Seen from `base`, in the order of their names. Directories are left out; what cannot be looked into has none.
pub(crate) fn files(base: &Path, pattern: &str) -> Vec<PathBuf> {
    let begin = if pattern.starts_with('/') { Path::new("/") } else { base };
    let mut found = vec![begin.to_owned()];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        found = found.iter().flat_map(|place| beneath(place, part)).collect();
    }
    found.retain(|place| place.exists() && !place.is_dir());
    found.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    found
}

/// What a part of a pattern, between two slashes, names in a directory.
fn beneath(dir: &Path, part: &str) -> Vec<PathBuf> {
    if !is_pattern(part) {
        return vec![dir.join(part)];
    }
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter(|name| name_matches(part.as_ref(), name)).map(|name| dir.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_matches_as_in_glob() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            (".*", ".conf", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b", false),
            ("?", "a", true),
            ("?", "", false),
            ("[0-4]?.conf", "3x.conf", true),
            ("[0-4]?.conf", "5x.conf", false),
            ("[!0-4]", "5", true),
            ("[^0-4]", "0", false),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("[a", "[a", true),
            ("[a", "a", false),
            ("", "", true),
        ] {
            assert_eq!(name_matches(pattern.as_ref(), name.as_ref()), expected, "{pattern}, {name}");
        }
    }

    #[test]
    fn files_are_found_in_the_order_of_their_names() {
        let place = tempfile::tempdir().unwrap();
        for dir in ["b", "a", "a/c.conf"] {
            std::fs::create_dir(place.path().join(dir)).unwrap();
        }
        for file in ["b/1.conf", "a/2.conf", "a/1.conf", "a/1.txt", "a/.0.conf"] {
            std::fs::write(place.path().join(file), "").unwrap();
        }
        let expected = ["a/1.conf", "a/2.conf", "b/1.conf"].map(|file| place.path().join(file));
        assert_eq!(files(place.path(), "*/*.conf"), expected);
        let absolute = format!("{}/*/1.conf", place.path().display());
        let expected = ["a/1.conf", "b/1.conf"].map(|file| place.path().join(file));
        assert_eq!(files(Path::new("/nowhere"), &absolute), expected);
        assert!(files(place.path(), "c/*.conf").is_empty());
    }
}
