//! Whether the executor on RTM runs in hardware on this machine. A test that passes by its lock alone says so.

/// Says it on standard error, once for each test.
pub(crate) fn say_where_rtm_runs() {
    let rtm = mangrove_sys::rtm();
    eprintln!(
        "RTM: transactions run {}",
        if rtm.commits() { "in hardware" } else { "by the lock: no RTM here" }
    );
}
