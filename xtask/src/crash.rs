//! `cargo xtask crash`: the crash simulator on an engine, and injected faults that it must catch.

use anyhow::bail;
use mangrove_crashlab::{
    Campaign, CrashDomain, EngineKind, Limits, SiteKey, Sites, SweepWatch, Tally, Token, Violation,
};
use planted::HANGS;
use std::process::exit;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod planted;

/// An image that takes longer than this to judge hangs.
const IMAGE_SECONDS_MAX: u64 = 60;

/// Options of this chore.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The engine under test.
    #[arg(long, default_value = "map")]
    engine: EngineKind,
    /// What survives a crash: adr, eadr, file, or all of them in turn.
    #[arg(long, default_value = "all")]
    domain: String,
    /// Distinct crash images to judge in each domain (with --planted: at most, for each site).
    #[arg(long)]
    images: Option<u64>,
    /// Everything follows from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Judge just the image that this token names.
    #[arg(long, value_name = "TOKEN")]
    replay: Option<Token>,
    /// Silence each flush, fence, wait, sync and report of the engine and of the floors below in turn: each must be
    /// caught.
    #[arg(long)]
    planted: bool,
    /// With --planted: only places of the engine's own sources (for the map also those of the floors below that the
    /// shadow does not reach)
    #[arg(long, requires = "planted")]
    own: bool,
    /// With --planted: only every N-th of those places, in the order of their names
    #[arg(long, requires = "planted", value_name = "N", default_value = "1")]
    every: std::num::NonZeroUsize,
    /// Silence one site, as --planted prints it ("FILE:LINE:COLUMN KIND").
    #[arg(long, value_name = "SITE")]
    without: Option<SiteKey>,
    /// Only the form of the engine with this name, as tokens have it ("txn-other").
    #[arg(long, value_name = "NAME", conflicts_with = "planted")]
    form: Option<String>,
    /// Campaigns at a time (with --planted).
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// Runs the chore.
pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if let Some(token) = &args.replay {
        return replay(&args, token);
    }
    if args.planted {
        let (images, every) = (args.images.unwrap_or(60_000), args.every.get());
        return planted::run(args.engine, args.seed, images, args.jobs, args.own, every);
    }
    let forms = args.engine.forms();
    if let Some(form) = args.form.as_deref().filter(|form| !forms.contains(form)) {
        bail!("the engine {} has no form {form}; choose one of {}", args.engine.name(), forms.join(", "));
    }
    let images = args.images.unwrap_or(100_000);
    let domains = if args.domain == "all" {
        CrashDomain::ALL.to_vec()
    } else {
        vec![args.domain.parse::<CrashDomain>().map_err(anyhow::Error::msg)?]
    };
    println!(
        "crash simulator: engine {}, seed {}, {images} distinct images a domain",
        args.engine.name(),
        args.seed
    );
    let mut violations = 0;
    let mut counts = Vec::new();
    let mut is_reached = args.without.is_none();
    for domain in domains {
        let campaign = campaign(&args, domain, images);
        watch_over(&campaign.watch, args.without.clone());
        let start = Instant::now();
        let mut progress = Progress::new(domain, images);
        match campaign.sweep(&mut |tally| progress.show(tally)) {
            Ok(tally) => {
                progress.clear();
                report(domain, &tally, start.elapsed());
                counts.push((domain, tally.images()));
            }
            Err(violation) => {
                progress.clear();
                say_violation(&violation, args.without.as_ref());
                violations += 1;
            }
        }
        is_reached |= args.without.as_ref().is_some_and(|site| campaign.sites.reached().contains_key(site));
    }
    for (domain, count) in &counts {
        println!("{:>5}: {count} distinct crash images", domain.name());
    }
    println!("{violations} violations");
    if violations > 0 {
        bail!("the engine does not survive every crash: replay the line above");
    }
    // Some forms run in some domains only.
    if counts.iter().all(|(_, count)| *count == 0) {
        bail!("no crash image was judged: nothing of this runs in these domains");
    }
    // `--planted` asks for one domain at a time, in which a site need not be reached.
    if !is_reached && args.domain == "all" {
        bail!("nothing was silenced: no workload of this engine reaches that site");
    }
    Ok(())
}

fn campaign(args: &Args, domain: CrashDomain, images: u64) -> Campaign {
    let limits = Limits { images, ..Limits::default() };
    let mut campaign =
        Campaign { engine: args.engine, form: args.form.clone(), ..Campaign::new(domain, args.seed, limits) };
    if let Some(site) = &args.without {
        campaign.sites = Arc::new(Sites::without(site.clone()));
    }
    campaign
}

fn replay(args: &Args, token: &Token) -> anyhow::Result<()> {
    let campaign = campaign(args, token.domain, 1);
    watch_over(&campaign.watch, args.without.clone());
    match campaign.replay(token) {
        Ok(said) => {
            println!("{said}\nno violation");
            Ok(())
        }
        Err(violation) => {
            say_violation(&violation, args.without.as_ref());
            bail!("the image breaks the promise")
        }
    }
}

/// Ends the process when one image takes too long, and prints the line that replays it.
fn watch_over(watch: &SweepWatch, without: Option<SiteKey>) {
    let watch = watch.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let Some((token, since)) = watch.now() else { continue };
            if since.elapsed() > Duration::from_secs(IMAGE_SECONDS_MAX) {
                let message = format!("{HANGS} {IMAGE_SECONDS_MAX} seconds");
                say_violation(&Violation { token, scenario: "", message }, without.as_ref());
                exit(1);
            }
        }
    });
}

fn say_violation(violation: &Violation, without: Option<&SiteKey>) {
    println!("VIOLATION in {} ({})", violation.token, violation.scenario);
    println!("  {}", violation.message);
    let without = without.map(|site| format!(" --without \"{site}\"")).unwrap_or_default();
    println!("  replay: cargo xtask crash --replay {}{without}", violation.token);
}

fn report(domain: CrashDomain, tally: &Tally, took: Duration) {
    println!(
        "{:>5}: {} distinct images from {} runs in {:.0} s ({} recoveries judged, {} of a second crash; {} \
         crash points exhaustive, {} sampled)",
        domain.name(),
        tally.images(),
        tally.runs,
        took.as_secs_f64(),
        tally.judged,
        tally.second,
        tally.exhaustive,
        tally.sampled
    );
    for (scenario, count) in &tally.by_scenario {
        println!("         {count:>8}  {scenario}");
    }
}

/// One line of progress.
struct Progress {
    domain: CrashDomain,
    images: u64,
    start: Instant,
    last: Instant,
}

impl Progress {
    fn new(domain: CrashDomain, images: u64) -> Self {
        Self { domain, images, start: Instant::now(), last: Instant::now() }
    }

    fn show(&mut self, tally: &Tally) {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let pause = if terminal { Duration::from_millis(200) } else { Duration::from_secs(20) };
        if self.last.elapsed() < pause {
            return;
        }
        self.last = Instant::now();
        let (done, spent) = (tally.images(), self.start.elapsed().as_secs_f64());
        let left = self.images.saturating_sub(done) as f64 * spent / done.max(1) as f64;
        let line = format!(
            "{:>5}: {done} of {} images, {} runs, {:.0} images/s, {left:.0} s left",
            self.domain.name(),
            self.images,
            tally.runs,
            done as f64 / spent
        );
        if terminal { eprint!("\r\x1b[K{line}") } else { eprintln!("{line}") }
    }

    fn clear(&self) {
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            eprint!("\r\x1b[K");
        }
    }
}
