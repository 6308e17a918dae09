//! A progress bar on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockkeeper_lab::Progress;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Runs `work` with a bar on standard error that counts entries. It is only drawn on a terminal.
pub fn bar<T: Send>(total: u64, work: impl FnOnce(&Progress) -> T + Send) -> T {
    counting("entries", total, work)
}

/// The same, with another unit.
pub fn counting<T: Send>(what: &str, total: u64, work: impl FnOnce(&Progress) -> T + Send) -> T {
    let progress = Progress::default();
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(&format!(
        "{{bar:40}} {{percent:>3}} %  {{human_pos}} of {{human_len}} {what}, {{eta}} left"
    ));
    bar.set_style(style.expect("the template is tested by every run"));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| work(&progress));
        // Work of less than 0.9 s ends before the bar is drawn, so that it does not flicker.
        let mut beats = 0;
        while !running.is_finished() {
            std::thread::park_timeout(Duration::from_millis(if beats < 20 { 5 } else { 100 }));
            beats += 1;
            if beats > 28 {
                bar.set_position(progress.entries.load(Ordering::Relaxed));
            }
        }
        bar.finish_and_clear();
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
