//! A model of a host: a link, processes, releases of every kind of health, and a driver's acts on them.

use sidle::switch::{Act, Former as Taking, Journal, Mode, Outcome, Purpose, Side, Switch};
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
    /// Dies beside the new one before that one has proven itself.
    DiesBeside,
    /// Dies when the jobs are handed over.
    DiesAtHandover,
    /// Dies while the new one is on probation.
    DiesInProbation,
    /// Never follows the gate.
    DeafToTheGate,
    /// Has a job that it finishes late.
    JobInRetirement,
}

impl Former {
    /// It ends by itself, in some mode.
    pub fn dies(self) -> bool {
        use Former::{DiesAtFreeze, DiesAtHandover, DiesBeside, DiesInProbation, DiesWhileWaiting};
        matches!(self, DiesWhileWaiting | DiesAtFreeze | DiesBeside | DiesAtHandover | DiesInProbation)
    }

    /// It ends beside this release on trial.
    pub fn dies_beside(self, trial: Trial) -> bool {
        match self {
            Self::DiesBeside => trial != Trial::CrashesAtStart,
            Self::DiesAtHandover | Self::DiesInProbation => trial.is_proven(),
            _ => false,
        }
    }

    pub fn matters_beside(self) -> bool {
        use Former::{DeafToTheGate, DiesAtHandover, DiesBeside, DiesInProbation, JobInRetirement};
        matches!(self, DiesBeside | DiesAtHandover | DiesInProbation | DeafToTheGate | JobInRetirement)
    }

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
    /// Has a job of its own when it is left, and finishes that late.
    JobWhenLeft,
    /// The same, and never finishes it.
    JobForEver,
    DiesWhenLeft,
}

impl Trial {
    /// It reaches its peers.
    pub fn is_proven(self) -> bool {
        use Trial::{DiesInProbation, FlapsForever, UnknownInProbation};
        self.can_pass() || matches!(self, FlapsForever | DiesInProbation | UnknownInProbation)
    }

    pub fn matters_when_left(self) -> bool {
        matches!(self, Self::JobWhenLeft | Self::JobForEver | Self::DiesWhenLeft)
    }

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
    RehearsalFails,
    RehearsalTakesLong,
}

#[derive(Debug, Clone, Copy)]
pub struct World {
    pub purpose: Purpose,
    pub mode: Mode,
    pub former: Former,
    pub trial: Trial,
    pub hitch: Hitch,
}

impl World {
    /// A process of the old release runs when the switch is asked for.
    pub fn starts_with_a_process(self) -> bool {
        !matches!(self.former, Former::None | Former::Absent | Former::Broken)
    }
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

fn lost(side: Side) -> Outcome {
    Outcome::Lost(side, "it ended".to_owned())
}

impl Host {
    pub fn boot_id(&self) -> String {
        format!("boot {}", self.boot)
    }

    /// A process of a side that was not told to go.
    pub fn running(&self, side: Side) -> Option<&Process> {
        self.processes.iter().find(|process| process.side == side && !process.doomed)
    }

    fn running_mut(&mut self, side: Side) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.side == side && !process.doomed)
    }

    fn end(&mut self, side: Side) {
        self.processes.retain(|process| process.side != side);
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

    /// What the supervisor does by itself: the process that is to be kept runs, and nothing but what is allowed.
    pub fn kept(&self, world: World, keeps: Option<(Side, &Release)>, allowed: &[Side]) -> Self {
        let mut host = self.clone();
        let stays = |process: &Process| allowed.contains(&process.side) && !process.doomed;
        host.ended_original |= host.processes.iter().any(|process| process.original && !stays(process));
        host.processes.retain(|process| stays(process) || Self::stays(world, process));
        // One that doesn't end is not waited for for ever.
        if let Some((side, release)) = keeps {
            if host.running(side).is_none() && host.can_start(world, side) {
                host.spawn(release, side);
            }
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
        let beside = switch.former() == Taking::Beside && switch.phase.is_beside();
        let outcome = if beside && self.running(Side::Former).is_none() {
            lost(Side::Former)
        } else {
            match act {
                Act::AwaitBeginning => Outcome::Done,
                Act::Check => host.check(world),
                Act::Rehearse => host.rehearse(world),
                Act::AwaitIdle => host.await_idle(world),
                Act::Freeze => host.freeze(world, &mut midway),
                Act::Stop(side) => host.stop(world, side, beside, &mut midway),
                Act::Start(side) => host.start(world, side, switch, beside, &mut midway),
                Act::Prove(side) => host.prove(world, side, beside),
                Act::HandOver => host.hand_over(world),
                Act::Watch => host.watch(world, beside),
                Act::Flip => host.flip(world, journal),
                Act::Drain(side) => host.drain(world, side, &mut midway),
                Act::Pause => not_yet("a pause"),
                Act::Settle => {
                    host.processes.iter_mut().for_each(|process| process.frozen = false);
                    if !host.history.contains(&switch.id) {
                        host.history.push(switch.id);
                    }
                    Outcome::Done
                }
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

    fn rehearse(&mut self, world: World) -> Outcome {
        match world.hitch {
            Hitch::RehearsalFails => failed("a module can't be imported"),
            Hitch::RehearsalTakesLong if self.strikes("rehearsal") => not_yet("it is being rehearsed"),
            _ => Outcome::Done,
        }
    }

    fn await_idle(&mut self, world: World) -> Outcome {
        let Some(process) = self.running_mut(Side::Former) else { return lost(Side::Former) };
        process.frozen = false;
        match world.former {
            Former::BusyForever => not_yet("a job runs"),
            Former::BusyOnce if self.strikes("busy") => not_yet("a job runs"),
            Former::DiesWhileWaiting if self.strikes("dies") => {
                self.end(Side::Former);
                lost(Side::Former)
            }
            _ => Outcome::Done,
        }
    }

    fn freeze(&mut self, world: World, midway: &mut Vec<Self>) -> Outcome {
        let Some(process) = self.running_mut(Side::Former) else { return lost(Side::Former) };
        process.frozen = true;
        midway.push(self.clone());
        let job = match world.former {
            Former::JobAtFreezeAlways => true,
            Former::JobAtFreezeOnce => self.strikes("job"),
            Former::DiesAtFreeze if self.strikes("dies") => {
                self.end(Side::Former);
                return lost(Side::Former);
            }
            _ => false,
        };
        if world.hitch == Hitch::FreezeFails {
            return failed("the operation is not permitted");
        }
        if job {
            self.running_mut(Side::Former).unwrap().frozen = false;
            return not_yet("a job came");
        }
        Outcome::Done
    }

    /// Ends everything but the old process where that one is beside.
    fn stop(&mut self, world: World, side: Side, beside: bool, midway: &mut Vec<Self>) -> Outcome {
        let once = match (world.hitch, side) {
            (Hitch::StopFailsOnce, Side::Former) | (Hitch::TrialStopFailsOnce, Side::Trial) => self.strikes("stop"),
            _ => false,
        };
        if once {
            return failed("the operation is not permitted");
        }
        let spared = |process: &Process| beside && process.side == Side::Former;
        self.ended_original |= self.processes.iter().any(|process| process.original && !spared(process));
        self.processes.iter_mut().filter(|process| !spared(process)).for_each(|process| process.doomed = true);
        midway.push(self.clone());
        let lingers = match (world.hitch, side) {
            (Hitch::StopLingers, Side::Former) | (Hitch::TrialStopLingers, Side::Trial) => self.strikes("linger"),
            _ => false,
        };
        if lingers && self.processes.iter().any(|process| process.doomed) {
            return not_yet("the process is ending");
        }
        self.processes.retain(|process| !process.doomed || Self::stays(world, process));
        if self.processes.iter().any(|process| process.doomed) {
            return not_yet("the process doesn't end");
        }
        Outcome::Done
    }

    fn start(&mut self, world: World, side: Side, switch: &Switch, beside: bool, midway: &mut Vec<Self>) -> Outcome {
        let release = switch.release(side).unwrap();
        if side == Side::Trial {
            let stranger = self.processes.iter().find(|process| process.side == Side::Former);
            assert!(beside || stranger.is_none(), "the new release is started beside the old one");
            assert!(self.checked, "a release is started that was not checked");
        }
        let spared = |process: &Process| process.side == side || (beside && process.side == Side::Former);
        self.ended_original |= self.processes.iter().any(|process| process.original && !spared(process));
        for process in self.processes.iter_mut().filter(|process| !spared(process)) {
            process.doomed = true;
        }
        midway.push(self.clone());
        self.processes.retain(|process| !process.doomed || Self::stays(world, process));
        if self.processes.iter().any(|process| process.doomed) {
            return not_yet("the process doesn't end");
        }
        if let Some(process) = self.running_mut(side) {
            process.frozen = false;
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
            self.end(side);
            return lost(side);
        }
        Outcome::Done
    }

    fn prove(&mut self, world: World, side: Side, beside: bool) -> Outcome {
        let Some(process) = self.running(side) else { return lost(side) };
        assert!(!process.frozen, "a frozen process is waited for");
        if beside && world.former == Former::DiesBeside && self.strikes("dies") {
            self.end(Side::Former);
            return lost(Side::Former);
        }
        match (side, world.trial, world.former) {
            (Side::Trial, Trial::CrashesAtStart | Trial::DiesBeforeProof, _) => {
                self.end(side);
                lost(side)
            }
            (Side::Trial, Trial::NeverProves | Trial::JobWhenLeft | Trial::JobForEver | Trial::DiesWhenLeft, _) => {
                not_yet("no peer answers")
            }
            (Side::Trial, Trial::SlowToProve, _) if self.strikes("slow") => not_yet("no peer answers"),
            (Side::Former, _, Former::PeersDown) if self.ended_original => not_yet("no peer answers"),
            _ => Outcome::Done,
        }
    }

    fn hand_over(&mut self, world: World) -> Outcome {
        if self.running(Side::Trial).is_none() {
            return lost(Side::Trial);
        }
        match world.former {
            Former::DeafToTheGate => not_yet("the old process has not handed its jobs over yet"),
            Former::DiesAtHandover if self.strikes("dies") => {
                self.end(Side::Former);
                lost(Side::Former)
            }
            _ => Outcome::Done,
        }
    }

    fn watch(&mut self, world: World, beside: bool) -> Outcome {
        if self.running(Side::Trial).is_none() {
            return lost(Side::Trial);
        }
        if beside && world.former == Former::DiesInProbation && self.strikes("dies") {
            self.end(Side::Former);
            return lost(Side::Former);
        }
        match world.trial {
            Trial::FlapsForever => failed("no peer answers"),
            Trial::FlapsOnce if self.strikes("flap") => failed("no peer answers"),
            Trial::UnknownInProbation => not_yet("can't be known"),
            Trial::DiesInProbation => {
                self.end(Side::Trial);
                lost(Side::Trial)
            }
            _ => Outcome::Done,
        }
    }

    /// The old process is ended by this act, the one on trial by the next phase.
    fn drain(&mut self, world: World, side: Side, midway: &mut Vec<Self>) -> Outcome {
        if self.running(side).is_none() {
            return lost(side);
        }
        if side == Side::Trial {
            return match world.trial {
                Trial::JobWhenLeft if self.strikes("left") => not_yet("a job runs"),
                Trial::JobForEver => not_yet("a job runs"),
                Trial::DiesWhenLeft => {
                    self.end(side);
                    lost(side)
                }
                _ => Outcome::Done,
            };
        }
        if world.former == Former::JobInRetirement && self.strikes("retirement") {
            return not_yet("a job runs");
        }
        self.running_mut(side).unwrap().frozen = true;
        midway.push(self.clone());
        self.ended_original = true;
        self.processes.iter_mut().filter(|process| process.side == side).for_each(|process| process.doomed = true);
        midway.push(self.clone());
        self.processes.retain(|process| process.side != side || Self::stays(world, process));
        if self.processes.iter().any(|process| process.side == side) {
            return not_yet("the process doesn't end");
        }
        Outcome::Done
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
