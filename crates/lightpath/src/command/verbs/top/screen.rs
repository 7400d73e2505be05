//! The terminal: which tables it shows, and what keys do.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Row, Table, TableState};
use ratatui::{DefaultTerminal, Frame};

use super::report::{Report, Run, sum};
use super::sample::Sample;
use crate::command::output::shown::{counted, grouped, human, printable, user};

/// What the runs are sorted by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Calls,
    Space,
    Age,
}

/// The table below the runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    Processes,
    Calls,
    Files,
    Waits,
}

/// What is shown, and how.
struct Screen {
    report: Report,
    order: Order,
    detail: Detail,
    filter: String,
    /// Whether keys go into the filter.
    types: bool,
    /// The chosen run, by name.
    chosen: Option<u32>,
}

/// Shows the runs until a key ends it.
pub(super) fn run(delay: Duration) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let ended = watch(&mut terminal, delay);
    ratatui::try_restore()?;
    ended
}

fn watch(terminal: &mut DefaultTerminal, delay: Duration) -> io::Result<()> {
    let mut before = Sample::take(None);
    // The first look is a short one, so that there is something to see at once.
    let mut due = Instant::now() + delay.min(Duration::from_millis(200));
    let mut screen = Screen::new();
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        if event::poll(due.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
                && screen.press(key)
            {
                return Ok(());
            }
            continue;
        }
        let now = Sample::take(Some(&before));
        screen.report = Report::between(&before, &now);
        before = now;
        due = Instant::now() + delay;
    }
}

impl Screen {
    fn new() -> Screen {
        Screen {
            report: Report { runs: Vec::new() },
            order: Order::Calls,
            detail: Detail::Processes,
            filter: String::new(),
            types: false,
            chosen: None,
        }
    }

    /// The runs that are shown, in their order.
    fn shown(&self) -> Vec<&Run> {
        let matches = |run: &&Run| self.filter.is_empty() || what(run).contains(&self.filter);
        let mut runs: Vec<_> = self.report.runs.iter().filter(matches).collect();
        match self.order {
            Order::Calls => runs.sort_by(|a, b| rate(b).total_cmp(&rate(a))),
            Order::Space => runs.sort_by_key(|run| std::cmp::Reverse(run.space.map_or(0, |(used, _)| used))),
            // The report's order is that of their start.
            Order::Age => {}
        }
        runs
    }

    /// Where the chosen run stands among the shown ones; the first if it is gone.
    fn position(&self, shown: &[&Run]) -> usize {
        shown.iter().position(|run| Some(run.name) == self.chosen).unwrap_or(0)
    }

    /// Does what a key asks for. Whether it asks to end.
    fn press(&mut self, key: KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return true;
        }
        if self.types {
            match key.code {
                KeyCode::Char(letter) => self.filter.push(letter),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Esc => {
                    self.filter.clear();
                    self.types = false;
                }
                KeyCode::Enter => self.types = false,
                _ => {}
            }
            return false;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('s') => {
                self.order = match self.order {
                    Order::Calls => Order::Space,
                    Order::Space => Order::Age,
                    Order::Age => Order::Calls,
                }
            }
            KeyCode::Char('/') => self.types = true,
            KeyCode::Tab => {
                self.detail = match self.detail {
                    Detail::Processes => Detail::Calls,
                    Detail::Calls => Detail::Files,
                    Detail::Files => Detail::Waits,
                    Detail::Waits => Detail::Processes,
                }
            }
            KeyCode::Up => self.choose(|position| position.saturating_sub(1)),
            KeyCode::Down => self.choose(|position| position + 1),
            _ => {}
        }
        false
    }

    fn choose(&mut self, step: impl Fn(usize) -> usize) {
        let shown = self.shown();
        let position = step(self.position(&shown)).min(shown.len().saturating_sub(1));
        self.chosen = shown.get(position).map(|run| run.name);
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let shown = self.shown();
        let height = (shown.len() as u16 + 2).min(frame.area().height / 2).max(4);
        let parts =
            [Constraint::Length(1), Constraint::Length(height), Constraint::Min(3), Constraint::Length(1)];
        let [head, runs, detail, foot] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(self.summary(), head);
        self.draw_runs(frame, runs, &shown);
        self.draw_detail(frame, detail, shown.get(self.position(&shown)).copied());
        frame.render_widget(self.keys(), foot);
    }

    fn summary(&self) -> Line<'static> {
        let runs = &self.report.runs;
        let processes: usize = runs.iter().map(|run| run.processes.len()).sum();
        let calls: f64 = runs.iter().map(rate).sum();
        let waits: usize = runs.iter().flat_map(|run| &run.waits).map(|(_, count)| count).sum();
        let line = format!(
            "lightpath top: {}, {}, {} calls/s, {waits} waiting",
            counted(runs.len(), "run", "runs"),
            counted(processes, "process", "processes"),
            shorten(calls)
        );
        Line::styled(line, Modifier::BOLD)
    }

    fn keys(&self) -> Line<'static> {
        let order = match self.order {
            Order::Calls => "calls",
            Order::Space => "space",
            Order::Age => "age",
        };
        match (self.types, self.filter.as_str()) {
            (true, filter) => Line::raw(format!("filter: {filter}_  (Enter keeps it, Esc clears it)")),
            (false, "") => Line::raw(format!("q end  Up/Down run  Tab table  s sort: {order}  / filter")),
            (false, filter) => {
                Line::raw(format!("q end  Up/Down run  Tab table  s sort: {order}  / filter: {filter}"))
            }
        }
    }

    fn draw_runs(&self, frame: &mut Frame<'_>, area: Rect, shown: &[&Run]) {
        let rows = shown.iter().map(|run| {
            let (used, limit) =
                run.space.map_or(("-".into(), "-".into()), |(used, limit)| (human(used), human(limit)));
            let [ours, kernels] = pair(run.calls);
            let user = user(run.owner);
            Row::new([
                run.name.to_string(),
                user,
                run.processes.len().to_string(),
                used,
                limit,
                ours,
                kernels,
                what(run),
            ])
        });
        let widths = [7, 8, 5, 8, 8, 9, 9].map(Constraint::Length).into_iter().chain([Constraint::Min(10)]);
        let head = ["RUN", "USER", "PROCS", "USED", "LIMIT", "CALLS/s", "KERNEL/s", "MOUNTS, COMMAND"];
        let table = Table::new(rows, widths)
            .header(Row::new(head).style(Modifier::UNDERLINED))
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        let mut state = TableState::new().with_selected((!shown.is_empty()).then(|| self.position(shown)));
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn draw_detail(&self, frame: &mut Frame<'_>, area: Rect, run: Option<&Run>) {
        let Some(run) = run else {
            let line = match self.filter.as_str() {
                "" => "no runs; start one with: lightpath run -- CMD",
                _ => "no run has this in its mounts or command",
            };
            return frame.render_widget(Line::raw(line), area);
        };
        let number = |calls: Option<[f64; 2]>| pair(calls);
        let (title, head, rows): (_, Vec<&str>, Vec<Vec<String>>) = match self.detail {
            Detail::Processes => (
                "processes",
                vec!["CALLS/s", "KERNEL/s", "WAITS", "PID", "COMMAND"],
                run.processes
                    .iter()
                    .map(|process| {
                        let [ours, kernels] = number(process.calls);
                        vec![
                            ours,
                            kernels,
                            process.waits.to_string(),
                            process.pid.to_string(),
                            printable(&process.command),
                        ]
                    })
                    .collect(),
            ),
            Detail::Calls => (
                "calls",
                vec!["CALLS/s", "KERNEL/s", "CALL"],
                run.by_call
                    .iter()
                    .map(|(name, calls)| {
                        let [ours, kernels] = number(Some(*calls));
                        vec![ours, kernels, name.clone()]
                    })
                    .collect(),
            ),
            Detail::Files => (
                "files that change",
                vec!["CHANGES/s", "FILE"],
                run.files.iter().map(|(path, changes)| vec![shorten(*changes), path.clone()]).collect(),
            ),
            Detail::Waits => (
                "waits for locks",
                vec!["THREADS", "LOCK OF"],
                run.waits.iter().map(|(what, count)| vec![count.to_string(), (*what).to_owned()]).collect(),
            ),
        };
        let hint = match run.calls {
            None if matches!(self.detail, Detail::Processes | Detail::Calls) => {
                ": start it with --stats to count calls"
            }
            _ => "",
        };
        let columns = head.len();
        let widths = (0..columns).map(|column| match column + 1 == columns {
            true => Constraint::Min(10),
            false => Constraint::Length(9),
        });
        let table = Table::new(rows.into_iter().map(Row::new), widths)
            .header(Row::new(head).style(Modifier::UNDERLINED))
            .block(Block::new().borders(Borders::TOP).title(format!(" {title} of run {}{hint} ", run.name)));
        frame.render_widget(table, area);
    }
}

/// Calls per second of a run.
fn rate(run: &Run) -> f64 {
    run.calls.map_or(0.0, sum)
}

/// Mounts and command of a run.
fn what(run: &Run) -> String {
    let mounts: Vec<_> = run.mounts.iter().map(|mount| mount.display().to_string()).collect();
    let command = run.processes.iter().min_by_key(|process| (process.pid != run.name, process.pid));
    printable(&format!("{}  {}", mounts.join(" "), command.map_or("", |process| started(&process.command))))
}

/// A command without its directory, and without the launcher that waits for it.
fn started(command: &str) -> &str {
    let program = command.split(' ').next().unwrap_or_default();
    let name = &command[program.rfind('/').map_or(0, |slash| slash + 1)..];
    match name.split_once(" -- ") {
        Some((launcher, rest)) if launcher.starts_with("lightpath ") => rest,
        _ => name,
    }
}

fn pair(calls: Option<[f64; 2]>) -> [String; 2] {
    calls.map_or_else(|| ["-".to_owned(), "-".to_owned()], |calls| calls.map(shorten))
}

/// A rate in at most seven characters.
fn shorten(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{rate:.1}"),
        ..1e6 => grouped(rate.round() as u64),
        ..1e9 => format!("{:.1} M", rate / 1e6),
        _ => format!("{:.1} G", rate / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::report::Process;
    use super::*;

    fn run(name: u32, calls: Option<[f64; 2]>) -> Run {
        let process = Process { pid: name, command: format!("make -C {name}"), calls, waits: 1 };
        Run {
            name,
            owner: 0,
            mounts: vec!["/light".into()],
            file: None,
            space: Some((u64::from(name) << 20, 1 << 30)),
            calls,
            by_call: vec![("openat".to_owned(), calls.unwrap_or_default())],
            processes: vec![process],
            waits: vec![("inode", 1)],
            files: vec![("/light/log".to_owned(), 12.0)],
        }
    }

    fn screen() -> Screen {
        let runs = vec![run(10, None), run(20, Some([1500.0, 2.0]))];
        Screen { report: Report { runs }, ..Screen::new() }
    }

    fn seen(screen: &Screen) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..80).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..24).map(|y| line(y).trim_end().to_owned()).collect()
    }

    #[test]
    fn no_terminal_is_too_small() {
        for height in 1..12 {
            let mut terminal = Terminal::new(TestBackend::new(height * 7, height)).unwrap();
            terminal.draw(|frame| screen().draw(frame)).unwrap();
        }
    }

    fn press(screen: &mut Screen, code: KeyCode) -> bool {
        screen.press(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn runs_and_the_processes_of_the_chosen_one_fit_80_columns() {
        let mut screen = screen();
        let lines = seen(&screen);
        assert_eq!(lines[0], "lightpath top: 2 runs, 2 processes, 1,502 calls/s, 2 waiting");
        assert!(
            lines[2].starts_with("20 ")
                && lines[2].contains("1,500")
                && lines[2].ends_with("/light  make -C 20")
        );
        assert!(lines[3].starts_with("10 "), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("processes of run 20")), "{lines:?}");
        press(&mut screen, KeyCode::Down);
        let lines = seen(&screen);
        assert!(lines.iter().any(|line| line.contains("of run 10: start it with --stats")), "{lines:?}");
    }

    #[test]
    fn keys_choose_tables_order_and_filter() {
        let mut screen = screen();
        for title in
            ["calls of run", "files that change of run", "waits for locks of run", "processes of run"]
        {
            press(&mut screen, KeyCode::Tab);
            assert!(seen(&screen).iter().any(|line| line.contains(title)), "{title}");
        }
        press(&mut screen, KeyCode::Char('s'));
        press(&mut screen, KeyCode::Char('s'));
        assert!(seen(&screen)[2].starts_with("10 "));
        press(&mut screen, KeyCode::Char('/'));
        for letter in "make -C 2".chars() {
            assert!(!press(&mut screen, KeyCode::Char(letter)));
        }
        press(&mut screen, KeyCode::Enter);
        assert_eq!(screen.shown().len(), 1);
        assert!(seen(&screen)[23].ends_with("/ filter: make -C 2"));
        for letter in "/z".chars() {
            press(&mut screen, KeyCode::Char(letter));
        }
        assert!(seen(&screen).iter().any(|line| line.contains("no run has this in its mounts or command")));
        press(&mut screen, KeyCode::Enter);
        assert!(press(&mut screen, KeyCode::Char('q')));
    }

    #[test]
    fn a_run_is_named_by_what_was_started() {
        for (command, name) in [
            ("/usr/bin/make -C /tmp", "make -C /tmp"),
            ("/usr/bin/lightpath run --stats -- /bin/sh -c 'a -- b'", "/bin/sh -c 'a -- b'"),
            ("git log -- a", "git log -- a"),
            ("bash", "bash"),
            ("", ""),
        ] {
            assert_eq!(started(command), name);
        }
    }

    #[test]
    fn rates_stay_short() {
        for (rate, text) in
            [(0.0, "0"), (0.25, "0.2"), (999_999.0, "999,999"), (2.5e6, "2.5 M"), (3e9, "3.0 G")]
        {
            assert_eq!(shorten(rate), text);
        }
    }
}
