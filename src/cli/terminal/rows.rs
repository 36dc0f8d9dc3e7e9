//! Rows about work that goes on at several places: redrawn on a terminal, plain lines elsewhere.

use super::output::{Lines, Output};
use crate::cli::facts::{count, size};
use crate::cli::plain::line;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The rows of those that work now, and one of sums.
pub struct Rows {
    output: Output,
    total: usize,
    /// None: standard error is no terminal.
    screen: Option<(MultiProgress, ProgressBar)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bars: BTreeMap<usize, ProgressBar>,
    steps: BTreeMap<usize, &'static str>,
    ended: usize,
    failed: usize,
}

impl Rows {
    /// Rows for `total` places.
    pub fn new(output: &Output, total: usize) -> Self {
        let screen = output.is_redrawn().then(|| {
            let screen = MultiProgress::new();
            let sums = screen.add(plain_bar());
            (screen, sums)
        });
        Self { output: output.clone(), total, screen, state: Mutex::default() }
    }

    /// What happens at a place.
    pub fn show(&self, place: usize, name: &str, step: &'static str, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = state.steps.insert(place, step) != Some(step);
        match &self.screen {
            Some((screen, sums)) => {
                let bar = state.bars.entry(place).or_insert_with(|| screen.insert_before(sums, plain_bar()));
                bar.set_message(format!("{}  {step}  {}", line(name), size(bytes)));
            }
            None if is_new => self.output.step(format!("{name}: {step}")),
            None => {}
        }
    }

    /// The work at a place has ended with this result, which is printed now.
    pub fn end(&self, place: usize, result: Lines, is_good: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended += 1;
        state.failed += usize::from(!is_good);
        if let Some((screen, sums)) = &self.screen {
            if let Some(bar) = state.bars.remove(&place) {
                bar.finish_and_clear();
                screen.remove(&bar);
            }
            sums.set_message(format!(
                "{} of {} ended, {} failed",
                state.ended,
                count(self.total, "host"),
                state.failed
            ));
            screen.suspend(|| self.output.step(result));
        } else {
            self.output.step(result);
        }
    }

    /// Takes the rows off the terminal.
    pub fn clear(&self) {
        if let Some((screen, sums)) = &self.screen {
            sums.finish_and_clear();
            let _ = screen.clear();
        }
    }
}

fn plain_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner().with_style(style)
}
