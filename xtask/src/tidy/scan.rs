//! What one Rust module says, in tokens: the items it defines, the modules it has, what it imports, and
//! every path it spells. Tokens rather than a syntax tree, because paths inside the arguments of macros
//! count like all others. What only tests compile is left out.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

/// A module: a file's, or one written inside a file.
#[derive(Default)]
pub(super) struct Scope {
    /// What it defines, by name: `fn`, `struct` and so on.
    pub(super) items: BTreeMap<String, Item>,
    pub(super) children: Vec<Submodule>,
    pub(super) imports: Vec<Import>,
    /// Paths of two names or more, in code.
    pub(super) paths: BTreeSet<Vec<String>>,
    /// Every identifier in code, for what comes through a `*`.
    pub(super) words: BTreeSet<String>,
    /// Macros that are called by their bare name.
    pub(super) calls: BTreeSet<String>,
    /// Functions, constants, variants and fields, each with the type it belongs to.
    pub(super) members: BTreeSet<(String, String)>,
    /// Its macros are known without a path, behind its `#[macro_use] mod`.
    pub(super) is_macro_use: bool,
}

/// What an item is, and whether other modules see it.
pub(super) struct Item {
    pub(super) keyword: String,
    pub(super) public: bool,
}

/// `mod name;` or `mod name { .. }`.
pub(super) struct Submodule {
    pub(super) name: String,
    /// From `#[path = ".."]`.
    pub(super) path: Option<String>,
    pub(super) macro_use: bool,
    pub(super) inline: Option<Scope>,
}

/// One leaf of a `use` tree.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// What it is called here; "*" for a glob.
    pub(super) name: String,
    pub(super) public: bool,
}

const ITEMS: [&str; 9] = ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod"];

/// Scans a file. An error says what could not be read as Rust.
pub(super) fn scan(text: &str) -> Result<Scope, String> {
    let tokens: TokenStream = text.parse().map_err(|error| format!("not Rust ({error})"))?;
    let mut scope = Scope::default();
    walk(&mut scope, &tokens.into_iter().collect::<Vec<_>>(), true);
    Ok(scope)
}

pub(super) fn tokens_of(group: &Group) -> Vec<TokenTree> {
    group.stream().into_iter().collect()
}

/// The identifier at `at`, without `r#`.
pub(super) fn word(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at)? {
        TokenTree::Ident(ident) => Some(ident.to_string().trim_start_matches("r#").to_owned()),
        _ => None,
    }
}

pub(super) fn is_punct(tokens: &[TokenTree], at: usize, char: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == char)
}

pub(super) fn group(tokens: &[TokenTree], at: usize, delimiter: Delimiter) -> Option<&Group> {
    match tokens.get(at)? {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group),
        _ => None,
    }
}

/// Whether a `::` begins at `at`.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens, at, ':') && is_punct(tokens, at + 1, ':')
}

/// What stood before an item and belongs to it.
#[derive(Default)]
struct Before {
    public: bool,
    macro_use: bool,
    path: Option<String>,
}

/// Goes through `tokens`; `top` where they are a module's own, and not inside one of its items.
fn walk(scope: &mut Scope, tokens: &[TokenTree], top: bool) {
    let (mut at, mut before) = (0, Before::default());
    while at < tokens.len() {
        if is_punct(tokens, at, '#') {
            at = attribute(scope, tokens, at, &mut before);
            continue;
        }
        match &tokens[at] {
            TokenTree::Ident(_) => at = identifier(scope, tokens, at, top, &mut before),
            TokenTree::Group(inner) => {
                // What an `extern` block declares are items of the module around it.
                let ends = at.saturating_sub(2)..at;
                let foreign = top && ends.into_iter().any(|i| word(tokens, i).is_some_and(|w| w == "extern"));
                walk(scope, &tokens_of(inner), foreign);
                before = Before::default();
                at += 1;
            }
            TokenTree::Punct(punct) => {
                if matches!(punct.as_char(), ';' | ',' | '=') {
                    before = Before::default();
                }
                at += 1;
            }
            TokenTree::Literal(_) => at += 1,
        }
    }
}

/// An attribute, or a `#` that is none. Skips what follows one that says: tests only.
fn attribute(scope: &mut Scope, tokens: &[TokenTree], at: usize, before: &mut Before) -> usize {
    let inner = is_punct(tokens, at + 1, '!');
    let at = at + 1 + usize::from(inner);
    let Some(attribute) = group(tokens, at, Delimiter::Bracket) else { return at };
    let content = tokens_of(attribute);
    let name = word(&content, 0).unwrap_or_default();
    if name == "cfg" && group(&content, 1, Delimiter::Parenthesis).is_some_and(|g| for_tests(&tokens_of(g))) {
        return if inner { tokens.len() } else { past_item(tokens, at + 1) };
    }
    match name.as_str() {
        "macro_use" => before.macro_use = true,
        "path" => before.path = content.get(2).map(|t| t.to_string().trim_matches('"').to_owned()),
        _ => walk(scope, &content, false),
    }
    at + 1
}

/// Whether a condition holds in tests only: `test`, or `all(..)` with it among others.
fn for_tests(condition: &[TokenTree]) -> bool {
    condition.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')).any(|part| {
        let name = word(part, 0);
        match name.as_deref() {
            Some("test") => part.len() == 1,
            Some("all") => group(part, 1, Delimiter::Parenthesis).is_some_and(|g| for_tests(&tokens_of(g))),
            _ => false,
        }
    })
}

/// Past the item, statement or field that begins at `at`, with its other attributes.
fn past_item(tokens: &[TokenTree], mut at: usize) -> usize {
    while is_punct(tokens, at, '#') {
        at += 2;
    }
    let starts = ["use", "impl", "unsafe", "async", "extern", "let", "macro_rules"];
    let visibility = usize::from(word(tokens, at).is_some_and(|first| first == "pub"));
    let scoped = visibility == 1 && group(tokens, at + 1, Delimiter::Parenthesis).is_some();
    let first = word(tokens, at + visibility + usize::from(scoped)).unwrap_or_default();
    // A field ends at its comma, which between the `<` and `>` of an item would not be the end.
    let is_item = starts.contains(&first.as_str()) || ITEMS.contains(&first.as_str());
    while at < tokens.len() {
        let ends = is_punct(tokens, at, ';')
            || group(tokens, at, Delimiter::Brace).is_some()
            || !is_item && is_punct(tokens, at, ',');
        at += 1;
        if ends {
            break;
        }
    }
    at
}

fn identifier(scope: &mut Scope, tokens: &[TokenTree], at: usize, top: bool, before: &mut Before) -> usize {
    let first = word(tokens, at).unwrap_or_default();
    let next = word(tokens, at + 1);
    match (first.as_str(), next) {
        ("pub", _) => {
            before.public = true;
            // `pub(in crate::x)` names who may see it, which is no use of x.
            return at + 1 + usize::from(group(tokens, at + 1, Delimiter::Parenthesis).is_some());
        }
        ("use", _) if !is_punct(tokens, at + 1, '<') => {
            let end = (at..tokens.len()).find(|i| is_punct(tokens, *i, ';')).unwrap_or(tokens.len());
            use_tree(scope, &tokens[at + 1..end], &[], std::mem::take(before).public);
            return end;
        }
        ("mod", Some(name)) if top => return module(scope, tokens, at, name, std::mem::take(before)),
        ("macro_rules", _) if top && is_punct(tokens, at + 1, '!') => {
            if let Some(name) = word(tokens, at + 2) {
                define(scope, "macro", name, true);
            }
            return at + 3;
        }
        ("impl", _) if top && begins_item(tokens, at) => implementation(scope, tokens, at),
        (keyword, Some(name)) if top && ITEMS.contains(&keyword) => {
            // `const fn` and `static mut` have their name one further on.
            if keyword == "const" && ["fn", "unsafe", "extern", "async"].contains(&name.as_str()) {
                return at + 1;
            }
            let name = if name == "mut" { word(tokens, at + 2).unwrap_or_default() } else { name };
            body(scope, tokens, at, keyword, &name);
            define(scope, keyword, name, std::mem::take(before).public);
            return at + 2;
        }
        _ => {}
    }
    path(scope, tokens, at)
}

fn define(scope: &mut Scope, keyword: &str, name: String, public: bool) {
    if name == "_" {
        return;
    }
    scope.items.insert(name, Item { keyword: keyword.to_owned(), public });
}

/// Notes the path that begins at `at`, however short, and goes past it.
fn path(scope: &mut Scope, tokens: &[TokenTree], mut at: usize) -> usize {
    // After `::` it is the rest of something: of `<T as X>::`, or of a path from outside.
    let rest = at >= 2 && is_separator(tokens, at - 2);
    let mut segments = Vec::new();
    while let Some(name) = word(tokens, at) {
        segments.push(name);
        at += 1;
        if !is_separator(tokens, at) || word(tokens, at + 2).is_none() {
            break;
        }
        at += 2;
    }
    scope.words.extend(segments.iter().cloned());
    if segments.len() == 1 && is_punct(tokens, at, '!') && !is_punct(tokens, at + 1, '=') {
        scope.calls.insert(segments[0].clone());
    }
    if segments.len() > 1 && !rest {
        scope.paths.insert(segments);
    }
    at
}

/// The leaves of a `use` tree, with braces in braces, names of its own and globs.
fn use_tree(scope: &mut Scope, tokens: &[TokenTree], prefix: &[String], public: bool) {
    let (mut path, mut at) = (prefix.to_vec(), 0);
    while at < tokens.len() {
        if let Some(inner) = group(tokens, at, Delimiter::Brace) {
            let inner = tokens_of(inner);
            for part in inner.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')) {
                use_tree(scope, part, &path, public);
            }
            return;
        }
        if is_punct(tokens, at, '*') {
            scope.imports.push(Import { path, name: "*".into(), public });
            return;
        }
        match word(tokens, at) {
            Some(alias) if alias == "as" => {
                let name = word(tokens, at + 1).unwrap_or_default();
                scope.imports.push(Import { path, name, public });
                return;
            }
            // `a::{self}` is `a`.
            Some(name) if name == "self" && !path.is_empty() => {}
            Some(name) => path.push(name),
            None => {}
        }
        at += 1;
    }
    if path.len() > prefix.len() || tokens.len() == 1 {
        let name = path.last().cloned().unwrap_or_default();
        scope.imports.push(Import { path, name, public });
    }
}

/// `mod name;` and `mod name { .. }`.
fn module(scope: &mut Scope, tokens: &[TokenTree], at: usize, name: String, before: Before) -> usize {
    let inline = group(tokens, at + 2, Delimiter::Brace).map(|inner| {
        let mut scope = Scope::default();
        walk(&mut scope, &tokens_of(inner), true);
        scope
    });
    scope.children.push(Submodule { name, path: before.path, macro_use: before.macro_use, inline });
    at + 3
}

/// Whether an item can begin at `at`: the `impl` in `-> impl X` is none.
fn begins_item(tokens: &[TokenTree], at: usize) -> bool {
    match at.checked_sub(1).map(|last| &tokens[last]) {
        None | Some(TokenTree::Group(_)) => true,
        Some(TokenTree::Punct(punct)) => punct.as_char() == ';',
        Some(last) => last.to_string() == "unsafe",
    }
}

/// What an `impl` block adds to its type, whose name is the last of the header's path.
fn implementation(scope: &mut Scope, tokens: &[TokenTree], at: usize) {
    let Some(end) = (at..tokens.len()).find(|i| group(tokens, *i, Delimiter::Brace).is_some()) else {
        return;
    };
    let (mut depth, mut name, mut over) = (0_i32, None, false);
    for i in at + 1..end {
        if is_punct(tokens, i, '<') {
            depth += 1;
        } else if is_punct(tokens, i, '>') && !is_punct(tokens, i - 1, '-') {
            depth -= 1;
        } else if let Some(word) = word(tokens, i)
            && depth == 0
        {
            match word.as_str() {
                "for" => name = None,
                "where" => over = true,
                _ if !over => name = Some(word),
                _ => {}
            }
        }
    }
    if let (Some(name), Some(inner)) = (name, group(tokens, end, Delimiter::Brace)) {
        associated(scope, &name, &tokens_of(inner));
    }
}

/// The members that the body of a struct, enum or trait gives it.
fn body(scope: &mut Scope, tokens: &[TokenTree], at: usize, keyword: &str, name: &str) {
    let end = |i: &usize| is_punct(tokens, *i, ';') || group(tokens, *i, Delimiter::Brace).is_some();
    let inner = (at..tokens.len()).find(end).and_then(|i| group(tokens, i, Delimiter::Brace));
    let Some(inner) = inner.map(tokens_of) else { return };
    match keyword {
        "trait" => associated(scope, name, &inner),
        "enum" => {
            for i in 0..inner.len() {
                // A variant follows an attribute, a comma or nothing.
                let begins =
                    i == 0 || is_punct(&inner, i - 1, ',') || matches!(inner[i - 1], TokenTree::Group(_));
                if let Some(variant) = word(&inner, i).filter(|_| begins) {
                    scope.members.insert((name.to_owned(), variant));
                }
            }
        }
        "struct" => {
            for i in 0..inner.len() {
                let begins = is_punct(&inner, i + 1, ':') && !is_separator(&inner, i + 1);
                if let Some(field) = word(&inner, i).filter(|_| begins) {
                    scope.members.insert((name.to_owned(), field));
                }
            }
        }
        _ => {}
    }
}

fn associated(scope: &mut Scope, of: &str, tokens: &[TokenTree]) {
    for i in 0..tokens.len() {
        let keyword = word(tokens, i).unwrap_or_default();
        if let Some(name) =
            word(tokens, i + 1).filter(|_| ["fn", "const", "type"].contains(&keyword.as_str()))
        {
            scope.members.insert((of.to_owned(), name));
        }
    }
}
