//! What commands of the durable application under test do, and the same on a model.

use crate::rng::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Blocks that the state can hold.
pub(crate) const SLOT_COUNT: usize = 16;
/// Of these, the ones that random commands use.
const RANDOM_SLOT_COUNT: u64 = 12;
/// Bytes that a block with room to spare uses.
pub(crate) const ROOMY_LEN: u32 = 24;
/// Mappings that the state can hold.
pub(crate) const MAP_COUNT: usize = 3;
/// Variables of the program that commands write.
pub(crate) const VARIABLE_COUNT: usize = 1024;
/// A mapping of at least this many pages needs more than the arena has at first.
const GROWTH_PAGES: u64 = 980;

/// A part of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandStep {
    /// Allocates or resizes a block to this many bytes in a slot, and fills new bytes from the seed.
    Put(u8, u32, u8),
    /// Puts a block of this many zeros into a slot, in place of the old one.
    Zeroed(u8, u32),
    /// Puts a block with room for this many bytes into a slot, in place of the old one. It uses the first
    /// [`ROOMY_LEN`] only, so that long blocks cost little log.
    Roomy(u8, u32, u8),
    /// Asks for a block that no arena has room for. The arena looks everywhere, and gives nothing.
    TooLong,
    /// Fills up to this many bytes of a block from the seed, starting at so many 256ths of it.
    Patch(u8, u8, u32, u8),
    /// Frees the block.
    Free(u8),
    /// Frees the block when the command is over.
    FreeOutside(u8),
    /// Puts a node in front of the list.
    Push(u64),
    /// Frees the first node.
    Pop,
    /// Sets a variable of the program.
    Variable(u16, u64),
    /// Maps this many pages, in place of the old mapping.
    Map(u8, u64),
    /// Writes a word into the page that lies at so many 256ths of the mapping.
    Word(u8, u8, u64),
    /// Resizes the mapping to this many pages.
    Remap(u8, u64),
    /// Unmaps the mapping.
    Unmap(u8),
}

/// What another client runs in the middle of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurableInner {
    /// A command.
    Command(DurableCommand),
    /// A read.
    Read,
}

/// A command: its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableCommand(pub(crate) Vec<CommandStep>);

/// One operation on a durable application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurableOp {
    /// Commands in one batch; the client waits for the answer, or does not.
    Batch(Vec<DurableCommand>, bool),
    /// Commands in a batch that the program fills itself, call by call; it waits until that is durable, or does not.
    Filled(Vec<DurableCommand>, bool),
    /// A read that waits until its answer may be given.
    Read,
    /// Waits until everything is durable.
    Sync,
    /// Writes everything into the data file.
    Checkpoint,
    /// Gives back what holds nothing in use.
    Compact,
    /// As `Filled`, and asks for that before the batch is committed: it is refused.
    FilledCompact(Vec<DurableCommand>),
    /// A command, and at its n-th step on the medium another client does something.
    During(DurableCommand, u32, DurableInner),
}

/// A mapping: its pages, and the words that were written.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct MappingModel {
    pub(crate) pages: u64,
    pub(crate) words: BTreeMap<u64, u64>,
}

/// What the state holds.
#[derive(Clone, Default)]
pub(crate) struct AppState {
    pub(crate) slots: [Option<Vec<u8>>; SLOT_COUNT],
    pub(crate) list: Vec<u64>,
    pub(crate) variables: BTreeMap<u16, u64>,
    pub(crate) maps: [Option<MappingModel>; MAP_COUNT],
    pub(crate) commands: u64,
    /// Blocks that were freed outside commands: a crash may leak them.
    pub(crate) freed_outside: u64,
}

/// What a durable application holds.
#[derive(Clone, Default)]
pub struct DurableModel(pub(crate) Arc<AppState>);

pub(crate) fn byte(seed: u8, n: usize) -> u8 {
    seed.wrapping_add((n as u8).wrapping_mul(7)) | 1
}

/// The bytes that a patch covers.
pub(crate) fn patched(len: usize, at: u8, count: u32) -> std::ops::Range<usize> {
    let from = len * usize::from(at) / 256;
    from..len.min(from + count as usize)
}

/// The page that a word lies in.
pub(crate) fn page_of(pages: u64, at: u8) -> u64 {
    pages * u64::from(at) / 256
}

impl AppState {
    pub(crate) fn run(&mut self, command: &DurableCommand) {
        self.commands += 1;
        for step in &command.0 {
            self.step(step);
        }
    }

    /// The commands of a batch that the program fills. Its commit frees what was freed outside commands, in this batch
    /// and before: no crash leaks that.
    pub(crate) fn run_filled(&mut self, commands: &[DurableCommand]) {
        commands.iter().for_each(|command| self.run(command));
        self.freed_outside = 0;
    }

    fn step(&mut self, step: &CommandStep) {
        match *step {
            CommandStep::Put(slot, len, seed) => {
                let bytes = self.slots[usize::from(slot)].get_or_insert_default();
                let old = bytes.len();
                bytes.truncate(len as usize);
                bytes.extend((old..len as usize).map(|n| byte(seed, n)));
            }
            CommandStep::Zeroed(slot, len) => self.slots[usize::from(slot)] = Some(vec![0; len as usize]),
            CommandStep::Roomy(slot, _, seed) => {
                self.slots[usize::from(slot)] =
                    Some((0..ROOMY_LEN as usize).map(|n| byte(seed, n)).collect());
            }
            CommandStep::TooLong => {}
            CommandStep::Patch(slot, at, count, seed) => {
                if let Some(bytes) = &mut self.slots[usize::from(slot)] {
                    for n in patched(bytes.len(), at, count) {
                        bytes[n] = byte(seed, n);
                    }
                }
            }
            CommandStep::Free(slot) => self.slots[usize::from(slot)] = None,
            CommandStep::FreeOutside(slot) => {
                self.freed_outside += u64::from(self.slots[usize::from(slot)].take().is_some());
            }
            CommandStep::Push(value) => self.list.push(value),
            CommandStep::Pop => drop(self.list.pop()),
            CommandStep::Variable(at, value) => drop(self.variables.insert(at, value)),
            CommandStep::Map(at, pages) => {
                self.maps[usize::from(at)] = Some(MappingModel { pages, ..MappingModel::default() });
            }
            CommandStep::Word(at, page, value) => {
                if let Some(map) = &mut self.maps[usize::from(at)] {
                    map.words.insert(page_of(map.pages, page), value);
                }
            }
            CommandStep::Remap(at, pages) => {
                if let Some(map) = &mut self.maps[usize::from(at)] {
                    map.pages = pages;
                    map.words.retain(|page, _| *page < pages);
                }
            }
            CommandStep::Unmap(at) => self.maps[usize::from(at)] = None,
        }
    }
}

const SCENARIOS: [&str; 10] = [
    "small commands",
    "batches and answers not waited for",
    "long units",
    "two clients at once",
    "mappings and growth",
    "variables of the program",
    "a mixture of commands",
    "free runs of the arena",
    "slabs of the arena",
    "space that is given back",
];

pub(crate) fn scenario_count() -> u32 {
    SCENARIOS.len() as u32
}

pub(crate) fn scenario_name(scenario: u32) -> &'static str {
    SCENARIOS[scenario as usize]
}

pub(crate) fn workload(scenario: u32, rng: &mut Rng) -> Vec<DurableOp> {
    match scenario {
        7 => return planned(free_runs(rng), rng),
        8 => return planned(slabs(rng), rng),
        9 => return given_back(rng),
        _ => {}
    }
    let count = 8 + rng.below(6);
    let mut ops: Vec<_> = (0..count).map(|_| operation(scenario, rng)).collect();
    if scenario == 4 || scenario == 2 && rng.one_in(2) {
        // Once a run, because a second such mapping would fill the pages of the first with zeros. In the scenario
        // of long groups, the new pages have held log records before.
        let at = rng.below(count) as usize;
        let grown =
            vec![CommandStep::Map(0, GROWTH_PAGES + rng.below(200)), CommandStep::Word(0, 255, rng.next())];
        ops.insert(at, DurableOp::Batch(vec![DurableCommand(grown)], true));
    }
    ops.into_iter().map(|op| filled(op, rng)).collect()
}

/// Some batches are filled by the program itself, and free a block natively before the commit.
fn filled(op: DurableOp, rng: &mut Rng) -> DurableOp {
    match op {
        DurableOp::Batch(mut commands, wait) if rng.one_in(3) => {
            let slot = rng.below(RANDOM_SLOT_COUNT) as u8;
            commands
                .push(DurableCommand(vec![CommandStep::Put(slot, 40, 1), CommandStep::FreeOutside(slot)]));
            DurableOp::Filled(commands, wait)
        }
        op => op,
    }
}

pub(crate) fn follow_up(rng: &mut Rng) -> Vec<DurableOp> {
    // Two clients at once wait for each other, which takes too long for every recovery.
    let scenario = [0, 1, 2, 4, 5, 6][rng.below(6) as usize];
    (0..3)
        .map(|_| match operation(scenario, rng) {
            DurableOp::During(command, ..) => DurableOp::Batch(vec![command], true),
            op => op,
        })
        .collect()
}

/// Commands whose order brings the arena to stores that random commands seldom reach: links between free runs of one
/// bin, and between slabs of one class.
fn planned(commands: Vec<Vec<CommandStep>>, rng: &mut Rng) -> Vec<DurableOp> {
    let mut ops: Vec<_> = commands
        .into_iter()
        .map(|steps| DurableOp::Batch(vec![DurableCommand(steps)], rng.one_in(2)))
        .collect();
    for op in [DurableOp::Checkpoint, DurableOp::Sync] {
        ops.insert(rng.below(ops.len() as u64 + 1) as usize, op);
    }
    ops
}

/// Long blocks, small ones and mappings come and go, and after some batches what is free is given back. What is
/// allocated then lies in pages that were, and must be zero where the program asked for zeros.
fn given_back(rng: &mut Rng) -> Vec<DurableOp> {
    let mut ops = vec![DurableOp::Batch(vec![DurableCommand(roomy(0..7, 9000, rng))], true)];
    let rounds = 7 + rng.below(5);
    for _ in 0..rounds {
        let count = 1 + rng.below(3);
        let commands = (0..count).map(|_| command(rng, 3, coming_and_going)).collect();
        ops.push(DurableOp::Batch(commands, rng.one_in(2)));
        match rng.below(5) {
            0 | 1 => ops.push(DurableOp::Compact),
            2 if rng.one_in(2) => {
                ops.push(DurableOp::FilledCompact(vec![command(rng, 3, coming_and_going)]));
            }
            2 => ops.push([DurableOp::Checkpoint, DurableOp::Sync][rng.below(2) as usize].clone()),
            _ => {}
        }
    }
    ops
}

fn coming_and_going(rng: &mut Rng) -> CommandStep {
    let seed = rng.next() as u8;
    match rng.below(10) {
        0..3 => CommandStep::Free(slot(rng)),
        3 | 4 => {
            let most = if rng.one_in(2) { 60_000 } else { 5000 };
            CommandStep::Roomy(slot(rng), ROOMY_LEN + rng.below(most) as u32, seed)
        }
        5 => CommandStep::Zeroed(slot(rng), 1 + rng.below(6000) as u32),
        6 => CommandStep::Put(slot(rng), 1 + rng.below(5000) as u32, seed),
        7 => mapping(rng),
        _ => small(rng),
    }
}

fn roomy(slots: impl IntoIterator<Item = u8>, bytes: u32, rng: &mut Rng) -> Vec<CommandStep> {
    slots.into_iter().map(|slot| CommandStep::Roomy(slot, bytes, rng.next() as u8)).collect()
}

/// Seven long blocks in a row. 1, 3 and 5 become free runs of one bin; then 4 joins two of them, which leave the
/// front of the bin's list the first time, and its end the second time. At last the arena grows.
fn free_runs(rng: &mut Rng) -> Vec<Vec<CommandStep>> {
    let bytes = 17_000 + rng.below(16_000) as u32;
    let mut commands = vec![roomy(0..7, bytes, rng)];
    commands.extend([1, 3, 5, 4].map(|slot| vec![CommandStep::Free(slot)]));
    commands.push(roomy([1, 3, 4, 5], bytes, rng));
    commands.extend([5, 3, 1, 4].map(|slot| vec![CommandStep::Free(slot)]));
    commands.push(vec![
        CommandStep::Map(0, GROWTH_PAGES + rng.below(200)),
        CommandStep::Word(0, 255, rng.next()),
    ]);
    commands
}

/// Three slabs of four blocks each: 7 to 10, 11 to 14, 15 and later 11 to 13 again. They enter the list of their
/// class while it has none, one and two slabs, and leave it at its front, in its middle, and when an allocation that
/// fails takes what is kept for the next block.
fn slabs(rng: &mut Rng) -> Vec<Vec<CommandStep>> {
    let bytes = [14_000, 16_000][rng.below(2) as usize];
    vec![
        roomy(7..16, bytes, rng),
        vec![CommandStep::Free(7)],
        vec![CommandStep::Free(11)],
        // The second slab is empty, and not the first of the list.
        [12, 13, 14].map(CommandStep::Free).into(),
        // The third slab is full, and leaves the list before the first.
        roomy(11..14, bytes, rng),
        roomy([7], bytes, rng),
        // The list is empty.
        vec![CommandStep::Free(15)],
        [11, 12, 13].map(CommandStep::Free).into(),
        vec![CommandStep::TooLong],
        // Now the first slab is empty, and first.
        [7, 8, 9, 10].map(CommandStep::Free).into(),
        vec![CommandStep::TooLong],
    ]
}

fn slot(rng: &mut Rng) -> u8 {
    // Few slots, so that blocks are resized and freed.
    let count = if rng.one_in(2) { 4 } else { RANDOM_SLOT_COUNT };
    rng.below(count) as u8
}

fn small(rng: &mut Rng) -> CommandStep {
    let seed = rng.next() as u8;
    match rng.below(13) {
        0..4 => {
            let most = if rng.one_in(4) { 3000 } else { 200 };
            CommandStep::Put(slot(rng), 1 + rng.below(most) as u32, seed)
        }
        4 | 5 => CommandStep::Patch(slot(rng), rng.next() as u8, 1 + rng.below(80) as u32, seed),
        6 => CommandStep::Free(slot(rng)),
        7 => CommandStep::Pop,
        8..11 => CommandStep::Push(rng.next()),
        11 => CommandStep::Zeroed(slot(rng), 1 + rng.below(400) as u32),
        _ if rng.one_in(3) => CommandStep::FreeOutside(slot(rng)),
        _ => CommandStep::Variable(rng.below(VARIABLE_COUNT as u64) as u16, rng.next()),
    }
}

fn mapping(rng: &mut Rng) -> CommandStep {
    // The first mapping is the long one.
    let at = 1 + rng.below(MAP_COUNT as u64 - 1) as u8;
    match rng.below(8) {
        0 | 1 => CommandStep::Map(at, 1 + rng.below(6)),
        2 | 3 => CommandStep::Remap(at, 1 + rng.below(14)),
        4 if rng.one_in(2) => CommandStep::Unmap(at),
        _ => CommandStep::Word(rng.below(MAP_COUNT as u64) as u8, rng.next() as u8, rng.next()),
    }
}

fn long(rng: &mut Rng) -> CommandStep {
    let seed = rng.next() as u8;
    match rng.below(4) {
        0 => CommandStep::Put(slot(rng), 2000 + rng.below(22_000) as u32, seed),
        1 => CommandStep::Patch(slot(rng), rng.next() as u8, 1 + rng.below(9000) as u32, seed),
        2 if rng.one_in(3) => CommandStep::Zeroed(slot(rng), 1 + rng.below(12_000) as u32),
        _ => small(rng),
    }
}

fn variable(rng: &mut Rng) -> CommandStep {
    // Mostly the same few, and some variables on every page.
    let at = if rng.one_in(2) { rng.below(8) } else { rng.below(VARIABLE_COUNT as u64) };
    if rng.one_in(4) { small(rng) } else { CommandStep::Variable(at as u16, rng.next()) }
}

fn command(rng: &mut Rng, most: u64, step: impl Fn(&mut Rng) -> CommandStep) -> DurableCommand {
    let count = 1 + rng.below(most);
    DurableCommand((0..count).map(|_| step(rng)).collect())
}

fn operation(scenario: u32, rng: &mut Rng) -> DurableOp {
    if rng.one_in(9) {
        return [DurableOp::Checkpoint, DurableOp::Sync, DurableOp::Read][rng.below(3) as usize].clone();
    }
    let one = |command, wait| DurableOp::Batch(vec![command], wait);
    match scenario {
        0 => one(command(rng, 4, small), true),
        1 => {
            let count = 1 + rng.below(4);
            let commands = (0..count).map(|_| command(rng, 3, small)).collect();
            DurableOp::Batch(commands, rng.one_in(3))
        }
        2 => one(command(rng, 3, long), rng.one_in(2)),
        3 => match rng.below(4) {
            0 => {
                let outer = command(rng, 3, small);
                let inner = if rng.one_in(2) {
                    DurableInner::Read
                } else {
                    DurableInner::Command(command(rng, 2, small))
                };
                DurableOp::During(outer, rng.below(14) as u32, inner)
            }
            n => one(command(rng, 3, small), n == 1),
        },
        4 => one(command(rng, 3, mapping), rng.one_in(2)),
        5 => one(command(rng, 4, variable), rng.one_in(2)),
        _ => operation(rng.below(6) as u32, rng),
    }
}
