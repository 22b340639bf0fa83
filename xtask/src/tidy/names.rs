//! Names of types that stand for more than one thing: a list for whoever gives or changes names. It is no
//! failure, because two crates may each have a good reason.

use super::sources::Sources;
use super::types::Types;

/// Names that mean the same thing wherever they are.
const EVERYWHERE: [&str; 3] = ["Error", "Args", "Options"];

/// A line for each name of several visible structs, enums or traits, with the files that define them.
pub(super) fn shared(sources: &Sources) -> Vec<String> {
    let types = Types::read(sources).types;
    let mut lines = Vec::new();
    for (name, found) in types.iter().filter(|(name, _)| !EVERYWHERE.contains(&name.as_str())) {
        let is_type = |keyword: &str| ["struct", "enum", "trait"].contains(&keyword);
        // Tests and examples are read on their own.
        let shipped =
            |file: &str| file.contains("/src/") && !file.contains("/tests/") && !file.ends_with("tests.rs");
        let seen = found.iter().filter(|t| t.public && is_type(&t.keyword) && shipped(&t.file));
        let places: Vec<String> = seen.map(|t| format!("{} {}", t.keyword, t.file)).collect();
        if places.len() > 1 {
            lines.push(format!("{name}: {}", places.join(", ")));
        }
    }
    lines
}
