//! A model of a host: a link, processes, releases of every kind of health, and a driver's acts on them.

use sidle::switch::{Act, Journal, Mode, Outcome, Purpose, Side};
use sidle::version::Release;

/// What runs before the switch, and how it takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Former {
    None,
    Idle,
    BusyOnce,
    BusyForever,
    JobAtFreezeOnce,
    JobAtFreezeAlways,
    DiesWhileWaiting,
    DiesAtFreeze,
    /// Not running when the switch is asked for; it can be started.
    Absent,
    /// Not running, and it can't be started.
    Broken,
    /// Once ended it starts at the second attempt only.
    BackAtSecondTry,
    /// Once ended it can't be started any more.
    NeverBack,
    /// Once ended it never reaches its peers again.
    PeersDown,
}

impl Former {
    pub fn matters_while_waiting(self) -> bool {
        use Former::{BusyForever, BusyOnce, DiesAtFreeze, DiesWhileWaiting, JobAtFreezeAlways, JobAtFreezeOnce};
        matches!(self, BusyOnce | BusyForever | JobAtFreezeOnce | JobAtFreezeAlways | DiesWhileWaiting | DiesAtFreeze)
    }
}

/// How the new release does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trial {
    Good,
    SlowToProve,
    FlapsOnce,
    FlapsForever,
    CrashesAtStart,
    DiesBeforeProof,
    NeverProves,
    DiesInProbation,
    UnknownInProbation,
}

impl Trial {
    pub fn can_pass(self) -> bool {
        matches!(self, Self::Good | Self::SlowToProve | Self::FlapsOnce)
    }
}

/// What else goes wrong on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hitch {
    None,
    CheckFails,
    CheckLater,
    FreezeFails,
    StopFailsOnce,
    StopLingers,
    /// The old process doesn't go until the host is rebooted.
    StopNever,
    TrialStopFailsOnce,
    TrialStopLingers,
    FlipFailsOnce,
    FlipNever,
}

#[derive(Debug, Clone, Copy)]
pub struct World {
    pub purpose: Purpose,
    pub mode: Mode,
    pub former: Former,
    pub trial: Trial,
    pub hitch: Hitch,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    pub release: Release,
    pub side: Side,
    pub frozen: bool,
    /// It was sent a deadly signal.
    pub doomed: bool,
    /// The process that ran when the switch was asked for.
    pub original: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    pub boot: u8,
    pub link: Option<Release>,
    pub processes: Vec<Process>,
    pub history: Vec<u64>,
    /// The switch has ended the original process in this boot.
    pub ended_original: bool,
    /// Bad luck that strikes once has struck.
    pub struck: Vec<&'static str>,
    pub checked: bool,
}

/// An act's effect: the hosts that a crash in its middle can leave, the one after it, and what it came to.
pub struct Effect {
    pub midway: Vec<Host>,
    pub after: Host,
    pub outcome: Outcome,
}

fn not_yet(text: &str) -> Outcome {
    Outcome::NotYet(text.to_owned())
}

fn failed(text: &str) -> Outcome {
    Outcome::Failed(text.to_owned())
}

fn lost() -> Outcome {
    Outcome::Lost("it ended".to_owned())
}

impl Host {
    pub fn boot_id(&self) -> String {
        format!("boot {}", self.boot)
    }

    /// A process of `release` that was not told to go.
    pub fn running(&self, release: &Release) -> Option<&Process> {
        self.processes.iter().find(|process| process.release == *release && !process.doomed)
    }

    fn running_mut(&mut self, release: &Release) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.release == *release && !process.doomed)
    }

    fn end(&mut self, release: &Release) {
        self.processes.retain(|process| process.release != *release);
    }

    /// True once for each name.
    fn strikes(&mut self, name: &'static str) -> bool {
        let first = !self.struck.contains(&name);
        if first {
            self.struck.push(name);
            self.struck.sort_unstable();
        }
        first
    }

    fn can_start(&self, world: World, side: Side) -> bool {
        match (side, world.former) {
            (Side::Former, Former::Broken) => false,
            (Side::Former, Former::NeverBack) => !self.ended_original,
            _ => true,
        }
    }

    /// What the supervisor does by itself: the release that is to be kept runs, and nothing else.
    pub fn kept(&self, world: World, side: Side, release: Option<&Release>) -> Self {
        let mut host = self.clone();
        let keep = |process: &Process| release == Some(&process.release) && !process.doomed;
        host.processes.retain(|process| keep(process) || Self::stays(world, process));
        if let Some(release) = release.filter(|_| host.processes.is_empty() && host.can_start(world, side)) {
            host.spawn(release, side);
        }
        host
    }

    /// A deadly signal does not end this process.
    fn stays(world: World, process: &Process) -> bool {
        process.original && world.hitch == Hitch::StopNever
    }

    fn spawn(&mut self, release: &Release, side: Side) {
        let process = Process { release: release.clone(), side, frozen: false, doomed: false, original: false };
        self.processes.push(process);
    }

    /// Performs `act`, the act of the journalled phase.
    pub fn perform(&self, world: World, journal: &Journal, act: Act) -> Effect {
        let switch = journal.live.as_ref().expect("an act needs a live switch");
        let mut host = self.clone();
        let mut midway = Vec::new();
        let outcome = match act {
            Act::Check => host.check(world),
            Act::AwaitIdle => host.await_idle(world, switch.from.as_ref().unwrap()),
            Act::Freeze => host.freeze(world, switch.from.as_ref().unwrap(), &mut midway),
            Act::Stop(side) => host.stop(world, side, &mut midway),
            Act::Start(side) => host.start(world, side, switch.release(side).unwrap(), &mut midway),
            Act::Prove(side) => host.prove(world, side, switch.release(side).unwrap()),
            Act::Watch => host.watch(world, &switch.to),
            Act::Flip => host.flip(world, journal),
            Act::Pause => not_yet("a pause"),
            Act::Settle => {
                host.processes.iter_mut().for_each(|process| process.frozen = false);
                if !host.history.contains(&switch.id) {
                    host.history.push(switch.id);
                }
                Outcome::Done
            }
        };
        Effect { midway, after: host, outcome }
    }

    fn check(&mut self, world: World) -> Outcome {
        match world.hitch {
            Hitch::CheckFails => failed("a file is not what was signed"),
            Hitch::CheckLater if self.strikes("check") => not_yet("the package is locked"),
            _ => {
                self.checked = true;
                Outcome::Done
            }
        }
    }

    fn await_idle(&mut self, world: World, release: &Release) -> Outcome {
        let Some(process) = self.running_mut(release) else { return lost() };
        process.frozen = false;
        match world.former {
            Former::BusyForever => not_yet("a job runs"),
            Former::BusyOnce if self.strikes("busy") => not_yet("a job runs"),
            Former::DiesWhileWaiting if self.strikes("dies") => {
                self.end(release);
                lost()
            }
            _ => Outcome::Done,
        }
    }

    fn freeze(&mut self, world: World, release: &Release, midway: &mut Vec<Self>) -> Outcome {
        let Some(process) = self.running_mut(release) else { return lost() };
        process.frozen = true;
        midway.push(self.clone());
        let job = match world.former {
            Former::JobAtFreezeAlways => true,
            Former::JobAtFreezeOnce => self.strikes("job"),
            Former::DiesAtFreeze if self.strikes("dies") => {
                self.end(release);
                return lost();
            }
            _ => false,
        };
        if world.hitch == Hitch::FreezeFails {
            return failed("the operation is not permitted");
        }
        if job {
            self.running_mut(release).unwrap().frozen = false;
            return not_yet("a job came");
        }
        Outcome::Done
    }

    fn stop(&mut self, world: World, side: Side, midway: &mut Vec<Self>) -> Outcome {
        let once = match (world.hitch, side) {
            (Hitch::StopFailsOnce, Side::Former) | (Hitch::TrialStopFailsOnce, Side::Trial) => self.strikes("stop"),
            _ => false,
        };
        if once {
            return failed("the operation is not permitted");
        }
        self.ended_original |= self.processes.iter().any(|process| process.original);
        self.processes.iter_mut().for_each(|process| process.doomed = true);
        midway.push(self.clone());
        let lingers = match (world.hitch, side) {
            (Hitch::StopLingers, Side::Former) | (Hitch::TrialStopLingers, Side::Trial) => self.strikes("linger"),
            _ => false,
        };
        if lingers && !self.processes.is_empty() {
            return not_yet("the process is ending");
        }
        self.processes.retain(|process| Self::stays(world, process));
        if self.processes.is_empty() { Outcome::Done } else { not_yet("the process doesn't end") }
    }

    fn start(&mut self, world: World, side: Side, release: &Release, midway: &mut Vec<Self>) -> Outcome {
        if side == Side::Trial {
            let stranger = self.processes.iter().find(|process| process.side == Side::Former);
            assert_eq!(stranger, None, "the new release is started beside the old one");
            assert!(self.checked, "a release is started that was not checked");
        }
        for process in self.processes.iter_mut().filter(|process| process.release != *release) {
            process.doomed = true;
        }
        midway.push(self.clone());
        self.processes.retain(|process| !process.doomed || Self::stays(world, process));
        if self.processes.iter().any(|process| process.doomed) {
            return not_yet("the process doesn't end");
        }
        if let Some(process) = self.running_mut(release) {
            process.frozen = false;
            process.side = side;
            return Outcome::Done;
        }
        if !self.can_start(world, side) {
            return failed("it does not start");
        }
        if side == Side::Former && world.former == Former::BackAtSecondTry && self.strikes("back") {
            return failed("it does not start");
        }
        self.spawn(release, side);
        midway.push(self.clone());
        if side == Side::Trial && world.trial == Trial::CrashesAtStart {
            self.end(release);
            return lost();
        }
        Outcome::Done
    }

    fn prove(&mut self, world: World, side: Side, release: &Release) -> Outcome {
        let Some(process) = self.running(release) else { return lost() };
        assert!(!process.frozen, "a frozen process is waited for");
        match (side, world.trial, world.former) {
            (Side::Trial, Trial::CrashesAtStart | Trial::DiesBeforeProof, _) => {
                self.end(release);
                lost()
            }
            (Side::Trial, Trial::NeverProves, _) => not_yet("no peer answers"),
            (Side::Trial, Trial::SlowToProve, _) if self.strikes("slow") => not_yet("no peer answers"),
            (Side::Former, _, Former::PeersDown) if self.ended_original => not_yet("no peer answers"),
            _ => Outcome::Done,
        }
    }

    fn watch(&mut self, world: World, release: &Release) -> Outcome {
        if self.running(release).is_none() {
            return lost();
        }
        match world.trial {
            Trial::FlapsForever => failed("no peer answers"),
            Trial::FlapsOnce if self.strikes("flap") => failed("no peer answers"),
            Trial::UnknownInProbation => not_yet("can't be known"),
            Trial::DiesInProbation => {
                self.end(release);
                lost()
            }
            _ => Outcome::Done,
        }
    }

    fn flip(&mut self, world: World, journal: &Journal) -> Outcome {
        match world.hitch {
            Hitch::FlipNever => failed("the file system is read-only"),
            Hitch::FlipFailsOnce if self.strikes("flip") => failed("the file system is full"),
            _ => {
                self.link.clone_from(&journal.proven);
                Outcome::Done
            }
        }
    }
}
