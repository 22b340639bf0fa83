//! Pools that were not closed and whose files were damaged: a slice of `cargo xtask fuzz`.

use mangrove_crashlab::{fuzz, mix};

#[test]
fn every_damage_of_an_unclosed_pool_is_refused_or_harmless() {
    match fuzz::damage_search(false, false) {
        Ok(tally) => {
            assert!(tally.tried > 800, "{tally:?}");
            assert!(tally.refused > tally.tried / 3, "{tally:?}");
        }
        Err(finding) => panic!("{finding}"),
    }
}

#[test]
fn damages_of_several_files_do_no_harm() {
    let seeds = fuzz::damage_seeds();
    for count in 0..150u64 {
        let mut input = seeds[(count % seeds.len() as u64) as usize].clone();
        for (at, byte) in (0u64..).zip(&mut input) {
            if mix(count, at).is_multiple_of(3) {
                *byte = mix(at, count) as u8;
            }
        }
        if let Err(finding) = fuzz::damaged_pool(&input) {
            panic!("input {input:02x?}: {finding}");
        }
    }
}
