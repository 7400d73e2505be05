//! A stage's report, and whether the kernel could have produced the same result.

use anyhow::{Context, Result};

use crate::calls::{BUSY, DIRS, Part};
use crate::control::{OTHER, PEER, VICTIM};
use crate::judge::{COUNTS, LATER, WAKES};
use crate::oracle::{Oracle, Seen, Turn, merges};
use crate::schedule::{Outcome, Schedule, first, other};
use crate::world::FOREIGN;

/// An error that a schedule has revealed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    /// Its kind, in one word.
    pub kind: String,
    /// The details.
    pub detail: String,
}

/// A parsed report of a stage.
#[derive(Default)]
pub(crate) struct Report {
    /// The stage's own findings.
    pub findings: Vec<Finding>,
    /// Whether the victim was stopped before its calls were over.
    pub stopped: bool,
    /// Whether the peer had to wait.
    pub waited: bool,
    /// Number of calls that the victim had made when it was stopped, and the peer when it waited.
    made: [usize; 2],
    results: Vec<(usize, Vec<i64>)>,
    trees: [Vec<String>; 2],
    counts: Option<Vec<String>>,
}

impl Report {
    /// Parses a report.
    ///
    /// # Errors
    /// When the text is not a report.
    pub(crate) fn parse(text: &str) -> Result<Report> {
        let (mut report, mut part) = (Report::default(), 0);
        for line in text.lines() {
            let mut fields = line.splitn(3, '\t');
            let (kind, one, two) = (fields.next(), fields.next().unwrap_or(""), fields.next().unwrap_or(""));
            match kind {
                Some("F") => report.findings.push(Finding { kind: one.into(), detail: two.into() }),
                Some("S") => {
                    report.stopped = one == "1";
                    report.made[0] = two.parse()?;
                }
                Some("P") => {
                    report.waited = one == "1";
                    report.made[1] = two.parse()?;
                }
                Some("R") => {
                    let numbers = two.trim_matches(['[', ']']).split(", ").map(str::parse);
                    report.results.push((one.parse()?, numbers.collect::<Result<_, _>>()?));
                }
                Some("J") if one == LATER => part = 1,
                Some("J") if one == COUNTS => {
                    part = 2;
                    report.counts = Some(Vec::new());
                }
                Some("J") if part == 2 => report.counts.get_or_insert_default().push(one.into()),
                Some("J") => report.trees[part].push(one.into()),
                _ => anyhow::bail!("not a report: {line}"),
            }
        }
        Ok(report)
    }

    /// Holds the report against what the kernel does, and against `clean`, the counts of a region in which
    /// nothing happened.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    pub(crate) fn judge(
        &self,
        schedule: &Schedule,
        oracle: &mut Oracle,
        clean: &[String],
    ) -> Result<Vec<Finding>> {
        let mut findings = self.findings.clone();
        let Some(counts) = &self.counts else { return Ok(findings) };
        let mut orders = self.orders(schedule);
        let third = other(schedule);
        // It prepares itself even if it makes no call after that.
        let with_third = matches!(schedule.outcome, Outcome::Exec | Outcome::Waiter);
        let second = first(schedule);
        let mut parts: Vec<&Part> = vec![&schedule.victim, &second];
        parts.extend(third.as_ref().filter(|_| with_third));
        orders.iter_mut().for_each(|order| self.refuse(order, &parts));
        let mut allowed: Vec<Seen> = Vec::new();
        for turns in &orders {
            allowed.push(oracle.ask(&parts, turns).with_context(|| format!("{turns:?}"))?.clone());
        }
        let torn = self.torn(schedule);
        let mut wrong = [None, None];
        for (place, tree) in wrong.iter_mut().zip(&self.trees) {
            *place = allowed
                .iter()
                .map(|seen| self.differences(seen, tree, &torn, &parts))
                .min_by_key(Vec::len)
                .filter(|differences| !differences.is_empty());
        }
        let [at_once, later] = wrong;
        if let Some(differences) = later {
            findings.push(Finding { kind: "order".into(), detail: differences.join("; ") });
        } else if let Some(differences) = at_once {
            findings.push(Finding { kind: "late".into(), detail: differences.join("; ") });
        }
        if !clean.is_empty() {
            let (wakes, left): (Vec<&String>, Vec<&String>) =
                counts.iter().filter(|line| !clean.contains(line)).partition(|line| line.starts_with(WAKES));
            for (kind, lines) in [("wakes", wakes), ("left", left)] {
                let lines: Vec<&str> = lines.into_iter().map(String::as_str).collect();
                if !lines.is_empty() {
                    findings.push(Finding { kind: kind.into(), detail: lines.join("; ") });
                }
            }
        }
        Ok(findings)
    }

    /// What is in use in the end.
    pub(crate) fn counts(&self) -> &[String] {
        self.counts.as_deref().unwrap_or_default()
    }

    /// What this schedule shows that one order of the kernel's does not. The bystander's calls have no part
    /// in it.
    fn differences(&self, seen: &Seen, tree: &[String], torn: &[String], parts: &[&Part]) -> Vec<String> {
        let mut found = Vec::new();
        let plain = |tree: &[String]| tree.iter().map(|line| without_bytes(line, torn)).collect::<Vec<_>>();
        let (wanted, tree) = (plain(&seen.tree), plain(tree));
        for (index, results) in &self.results {
            let Some(Some(expected)) = seen.results.get(*index) else { continue };
            let also = |call: usize| parts[*index].calls.get(call).and_then(|made| made.call.also);
            let agree = |(call, (seen, wanted)): (usize, (&i64, &i64))| {
                seen == wanted || also(call) == Some((*wanted, *seen))
            };
            if results.len() != expected.len() || !results.iter().zip(expected).enumerate().all(agree) {
                found.push(format!("actor {index}: {results:?} instead of {expected:?}"));
            }
        }
        let missing = wanted.iter().filter(|line| !tree.contains(line)).map(|line| format!("no \"{line}\""));
        let extra = tree.iter().filter(|line| !wanted.contains(line)).map(|line| format!("\"{line}\""));
        found.extend(missing.chain(extra));
        found
    }

    /// Names of the file whose bytes a killed call was changing.
    fn torn(&self, schedule: &Schedule) -> Vec<String> {
        let killed = match schedule.outcome {
            Outcome::Kill | Outcome::Die | Outcome::Stop | Outcome::Exec => (&schedule.victim, self.made[0]),
            Outcome::Waiter => (&schedule.peer, self.made[1]),
            Outcome::Go | Outcome::Signal | Outcome::Two => return Vec::new(),
        };
        match killed.0.calls.get(killed.1) {
            // Others may have renamed it, and mounted it over `m/y`, and that directory over `d`.
            Some(made) if self.stopped && made.call.bytes => {
                ["a", "b", "n", "d", "m/y", "d/y"].map(|name| format!("{}/{name}", DIRS[made.dir])).to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// In an order to be tried, marks those calls that end a mount as failed with `EBUSY` which failed so in
    /// the schedule because another call was under way.
    fn refuse(&self, order: &mut [Turn], parts: &[&Part]) {
        for (index, results) in &self.results {
            let Some(part) = parts.get(*index) else { continue };
            let turns = order.iter_mut().filter(|turn| **turn == Turn::Call(*index));
            for ((turn, made), result) in turns.zip(&part.calls).zip(results) {
                let others = parts.iter().enumerate().filter(|(other, _)| other != index);
                let mut others = others.flat_map(|(_, part)| &part.calls);
                if made.call.ends_mount && *result == BUSY && others.any(|other| other.meets(made)) {
                    *turn = Turn::Refused(*index);
                }
            }
        }
    }

    /// Every order in which the calls may seem to have been made. A killed actor's last call may have been
    /// made or not.
    fn orders(&self, schedule: &Schedule) -> Vec<Vec<Turn>> {
        let calls = |index: usize, count: usize| vec![Turn::Call(index); count];
        let (victim, peer) = (schedule.victim.calls.len(), schedule.peer.calls.len());
        let begun = |made: usize, all: usize| made..=(made + 1).min(all);
        if schedule.outcome == Outcome::Exec {
            let order = |count| {
                let death = [calls(VICTIM, count), vec![Turn::Kill(VICTIM), Turn::Call(PEER)]].concat();
                [death, calls(OTHER, peer)].concat()
            };
            let least = if self.stopped { self.made[0] } else { victim };
            return begun(least, victim).map(order).collect();
        }
        if !self.stopped {
            return vec![[calls(VICTIM, victim), calls(PEER, peer)].concat()];
        }
        let kill = [Turn::Kill(VICTIM)];
        let mut orders = Vec::new();
        match schedule.outcome {
            Outcome::Go | Outcome::Two => return merges(&calls(VICTIM, victim), &calls(PEER, peer)),
            Outcome::Signal => {
                let with_signal = |order: Vec<Turn>| [&order[..], &[Turn::Signal(VICTIM)]].concat();
                let both = merges(&calls(VICTIM, victim), &calls(PEER, peer));
                return both.into_iter().map(with_signal).collect();
            }
            Outcome::Die | Outcome::Kill | Outcome::Stop => {
                for count in begun(self.made[0], victim) {
                    let before = [&calls(VICTIM, count)[..], &kill].concat();
                    orders.push([before.clone(), calls(PEER, peer)].concat());
                    if schedule.outcome == Outcome::Die {
                        continue;
                    }
                    if self.waited {
                        orders.extend(merges(&before, &calls(PEER, peer)));
                    } else {
                        let both = merges(&calls(VICTIM, count), &calls(PEER, peer));
                        orders.extend(both.into_iter().map(|order| [&order[..], &kill].concat()));
                    }
                }
            }
            Outcome::Waiter if self.waited => {
                for count in begun(self.made[1], peer) {
                    let waiter = [calls(PEER, count), vec![Turn::Kill(PEER)], calls(OTHER, peer)].concat();
                    orders.extend(merges(&calls(VICTIM, victim), &waiter));
                }
            }
            Outcome::Exec => {}
            Outcome::Waiter => return merges(&calls(VICTIM, victim), &calls(PEER, peer)),
        }
        orders
    }
}

/// A line of a tree without blocks and bytes if it is one of those `torn`, and holds nothing that nobody
/// wrote.
fn without_bytes(line: &str, torn: &[String]) -> String {
    let (path, rest) = line.split_once(": ").unwrap_or((line, ""));
    if !torn.iter().any(|torn| torn == path) || rest.contains(FOREIGN) {
        return line.to_owned();
    }
    let begin = rest.find(" blocks").unwrap_or(rest.len());
    format!("{path}: {}", &rest[..begin])
}
