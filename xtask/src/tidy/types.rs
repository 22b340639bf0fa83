//! Every item of the workspace by its name, for the checks that ask whether a name exists and how many
//! things it stands for. Files are taken one by one, whichever crate they belong to.

use super::scan::{Scope, scan};
use super::sources::Sources;
use std::collections::{BTreeMap, BTreeSet};

/// The items of the workspace.
#[derive(Default)]
pub(super) struct Types {
    /// Structs, enums, unions, traits and aliases by name.
    pub(super) types: BTreeMap<String, Vec<Type>>,
    /// Each type's functions, constants, variants and fields.
    pub(super) members: BTreeSet<(String, String)>,
    /// What modules hold, by the module's last name, and crates by the name in Rust.
    pub(super) modules: BTreeMap<String, BTreeSet<String>>,
}

/// One definition of a name.
pub(super) struct Type {
    pub(super) file: String,
    pub(super) keyword: String,
    pub(super) public: bool,
}

impl Types {
    /// Reads the files; what is no Rust is the circles' check's to tell.
    pub(super) fn read(sources: &Sources) -> Self {
        let mut types = Self::default();
        for (file, text) in sources.ending(&[".rs"]) {
            if let Ok(scope) = scan(text) {
                types.add(file, &module_name(file), scope);
            }
        }
        types
    }

    fn add(&mut self, file: &str, module: &str, scope: Scope) {
        let held = self.modules.entry(module.to_owned()).or_default();
        held.extend(scope.items.keys().cloned());
        held.extend(scope.imports.into_iter().map(|import| import.name));
        held.extend(scope.children.iter().map(|child| child.name.clone()));
        for (name, item) in scope.items {
            if ["struct", "enum", "union", "trait", "type"].contains(&item.keyword.as_str()) {
                let found = Type { file: file.to_owned(), keyword: item.keyword, public: item.public };
                self.types.entry(name).or_default().push(found);
            }
        }
        self.members.extend(scope.members);
        for child in scope.children {
            if let Some(inner) = child.inline {
                self.add(file, &child.name, inner);
            }
        }
    }
}

/// The name by which paths call a file's module: its own, its directory's, or its crate's.
fn module_name(file: &str) -> String {
    let parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    match parts.as_slice() {
        ["crates", "mangrove", "src", "lib"] => "mangrove".into(),
        ["crates", name, "src", "lib"] => format!("mangrove_{name}"),
        [.., folder, "mod"] => (*folder).to_owned(),
        [.., name] => (*name).to_owned(),
        [] => String::new(),
    }
}
