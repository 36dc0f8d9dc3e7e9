//! Giving an adopted agent back: the package's agent runs again, and sidle's agent has ended.
//!
//! The package's agent has no guard before it runs, so the two never run at once: sidle's agent ends once no job runs, and what is published
//! until the package's agent is up is missed.

use super::AdoptingInstance;
use super::plan::no_answer;
use super::record::Adoption;
use crate::agent::{AgentSettings, Answers, Parts, Subject};
use crate::config::Settings;
use crate::failure::{Class, Report};
use crate::os::clock::Moment;
use crate::os::process::Program;
use crate::os::{again, clock, proc_fs, units};
use crate::supervise::control::{Answer, Command, ask};
use crate::supervise::status::SupervisorStatus;
use crate::switch::driver::Driver;
use crate::switch::journal::downtimes::{Downtime, DowntimeCause};
use crate::switch::journal::files::FilesError;
use crate::switch::process::described;
use crate::version::Release;
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_millis(100);
/// How long the package's agent may take to come up.
const START_WAIT: Duration = Duration::from_secs(60);
/// A supervisor checks a few times a second whether its agent is idle.
const ANSWER_ROOM: Duration = Duration::from_secs(10);
/// How often the jobs that are waited for are asked for.
const SAY_INTERVAL: Duration = Duration::from_secs(1);

/// How giving back ended.
pub enum Unadopted {
    /// The package's agent runs.
    Back {
        /// For how long no agent ran.
        downtime: Duration,
        /// How to list what was published meanwhile.
        missed: Option<String>,
        /// Packages that went back with the agent, and those that did not.
        extras: Vec<String>,
    },
    /// Sidle's agent stayed busy, with these jobs; nothing was changed.
    Busy(Option<String>),
}

/// An adopted agent that can be given back.
pub struct Return<'a> {
    instance: &'a AdoptingInstance,
    /// The adoption.
    pub adoption: Adoption,
}

impl<'a> Return<'a> {
    /// Reads the adoption, and refuses an agent that cannot be given back.
    pub fn new(instance: &'a AdoptingInstance) -> Result<Self, Report> {
        let name = instance.name();
        let Some(adoption) = Adoption::read(instance.layout(), name)? else {
            return Err(Report::of(Class::NothingToDo, format!("cannot unadopt {name}: it was not adopted"))
                .hint(format!("`sidle adopt {}` takes over the agent of a package", instance.package())));
        };
        if let Some(why) = adoption.lacks(instance.layout())? {
            return Err(Report::of(Class::Failed, format!("cannot unadopt {name}: {why}"))
                .hint("install the package again; the running agent is not touched meanwhile"));
        }
        let back = Self { instance, adoption };
        if let Err(why) = back.program() {
            let message = format!("cannot unadopt {name}: sidle could not start the package's agent again: {why}");
            return Err(Report::of(Class::Failed, message)
                .hint(format!("end sidle's agent, undo its changes, and start the other by hand: {}", back.manual())));
        }
        Ok(back)
    }

    /// The steps, for a dry run.
    pub fn steps(&self) -> Result<Vec<String>, Report> {
        let Adoption { unit, commands, .. } = &self.adoption;
        let extras = self.adoption.extras(self.instance, self.release()?.as_ref())?;
        let extras =
            extras.map_or_else(Vec::new, |extras| extras.plan().unwrap_or_else(|error| vec![error.to_string()]));
        let mut steps = vec![
            "wait until no job runs, then end the running release: the package's agent has no guard, and beside sidle's agent it would do \
             every job a second time"
                .to_owned(),
            "from then on no agent runs until the package's agent is up: what is published meanwhile is missed".to_owned(),
            format!("remove the replacement unit for {unit} and {} commands", commands.len()),
        ];
        steps.extend(extras);
        steps.push(format!("start the package's agent: {}", self.manual()));
        Ok(steps)
    }

    /// The release that runs, or after an earlier try that did: the newest.
    fn release(&self) -> Result<Option<Release>, Report> {
        let proven = self.instance.files.journal()?.proven;
        Ok(proven.or(self.instance.store().releases()?.into_iter().next_back()))
    }

    /// The commands that do the same by hand.
    fn manual(&self) -> String {
        self.adoption.manual_undo(self.instance).join("; ")
    }

    /// Gives the agent back. `patience`: how long to wait until no job runs. `say` takes each step.
    pub fn perform(&self, patience: Option<Duration>, say: &dyn Fn(&str)) -> Result<Unadopted, Report> {
        self.refuse_own_job()?;
        let settings = Settings::read(self.instance.layout())?;
        // After an earlier try that ended the release, too: by its configuration the package's agent is looked for.
        let agent = match self.release()? {
            Some(release) => Some(self.instance.agent(&self.instance.store().head(&release)?, Answers::Kept)?),
            None => self.instance.named_configuration()?.map(|directory| AgentSettings::new(&directory)),
        };
        let patience = patience.unwrap_or(*settings.switch_deadline);
        let extras = self.adoption.extras(self.instance, self.release()?.as_ref())?;
        let since = match self.end_ours(patience, &settings, agent.as_ref(), say)? {
            Ended::Since(since) => since,
            Ended::Not(work) => return Ok(Unadopted::Busy(work)),
        };
        let elapsed = SignedDuration::try_from(clock::since_boot().saturating_sub(since)).unwrap_or_default();
        let from = clock::now().checked_sub(elapsed).unwrap_or(Timestamp::MIN);
        // The packaged agent looks for them when it starts.
        let mut extras = extras.map_or_else(Vec::new, |extras| extras.give());
        let by_hand = |report: Report| report.hint(format!("sidle's agent has ended; by hand: {}", self.manual()));
        self.adoption.undo(self.instance).map_err(|error| by_hand(error.into()))?;
        self.start().map_err(by_hand)?;
        let is_up = self.comes_up(agent.as_ref());
        let downtime = clock::since_boot().saturating_sub(since);
        if !is_up {
            let (unit, seconds) = (&self.adoption.unit, START_WAIT.as_secs());
            let message = format!("cannot see the agent of {unit} reach its peers within {seconds} s");
            return Err(Report::of(Class::Failed, message)
                .hint(format!("sidle's agent has ended; if the package's agent does not run: {}", self.manual())));
        }
        // The agent is back, whether that can be noted or not.
        let unnoted = self.note_downtime(from).err();
        extras.extend(unnoted.map(|error| format!("the downtime is not in `sidle missed`: {error}")));
        Ok(Unadopted::Back { downtime, missed: self.missed(from)?, extras })
    }

    /// Refuses a job of the agent itself: it would wait for its own end.
    fn refuse_own_job(&self) -> Result<(), Report> {
        let name = self.instance.name();
        let agent = SupervisorStatus::read(self.instance.layout(), name)?.and_then(|status| status.agent);
        let leader: Vec<u32> = agent.map(|agent| agent.leader.pid).into_iter().collect();
        if !proc_fs::is_below(&leader)? {
            return Ok(());
        }
        let message = format!(
            "cannot unadopt {name}: this command runs in a job of {name}, which is not idle before the job ends"
        );
        Err(Report::of(Class::Conflict, message)
            .hint("use a shell, or let the job start it later: `systemd-run --on-active=5 sidle unadopt …`"))
    }

    /// Ends the running release once it is idle.
    fn end_ours(
        &self,
        patience: Duration,
        settings: &Settings,
        agent: Option<&AgentSettings>,
        say: &dyn Fn(&str),
    ) -> Result<Ended, Report> {
        let (layout, files) = (self.instance.layout(), &self.instance.files);
        match ask(layout, files.instance(), &Command::Unadopt { deadline_seconds: patience.as_secs() })? {
            Some(Answer::Refused(report)) => return Err(report),
            Some(Answer::Accepted { .. }) => say("waiting until no job runs"),
            None => {
                let lock = files.try_drive()?.ok_or_else(no_answer)?;
                let now = Moment::now();
                Driver::new(files.clone(), lock, settings.limits(), now)?.release(now)?;
            }
        }
        let give_up_at = clock::since_boot() + patience + ANSWER_ROOM;
        let (mut since, mut asked, mut work) = (None, Duration::ZERO, None);
        loop {
            let now = clock::since_boot();
            if files.journal()?.proven.is_none() {
                let since = *since.get_or_insert(now);
                let status = SupervisorStatus::read(layout, files.instance())?;
                if status.is_none_or(|status| status.agent.is_none()) {
                    return Ok(Ended::Since(since));
                }
            } else if now >= give_up_at {
                return Ok(Ended::Not(work));
            } else if now >= asked + SAY_INTERVAL {
                let before = std::mem::replace(&mut work, self.work(agent)?);
                if let Some(work) = work.as_ref().filter(|work| before.as_ref() != Some(work)) {
                    say(&format!("waiting for {work}"));
                }
                asked = now;
            }
            clock::sleep(INTERVAL);
        }
    }

    /// The jobs of the running release; None: none, or unknown.
    fn work(&self, settings: Option<&AgentSettings>) -> Result<Option<String>, Report> {
        let status = SupervisorStatus::read(self.instance.layout(), self.instance.name())?;
        let agent = status.and_then(|status| status.agent);
        let (Some(agent), Some(settings)) = (agent, settings) else { return Ok(None) };
        let parts = (self.instance.registry)(&self.adoption.agent)?;
        let observer = (parts.observer)(settings).ok();
        Ok(observer.and_then(|observer| described(&observer.activity(Subject::unguarded(&agent.leader)))))
    }

    /// Starts the package's agent as it was started before.
    fn start(&self) -> Result<(), Report> {
        if self.adoption.managed {
            return Ok(units::start(&self.adoption.unit)?);
        }
        if let Some(program) =
            self.program().map_err(|why| Report::of(Class::Failed, format!("cannot start it: {why}")))?
        {
            program.start_detached()?;
        }
        Ok(())
    }

    /// The program that starts the package's agent as it was started before; None: its unit does.
    fn program(&self) -> Result<Option<Program>, String> {
        let Adoption { managed, command, rights, .. } = &self.adoption;
        if *managed { Ok(None) } else { again::program(command, rights.as_ref()).map(Some) }
    }

    /// Waits until the package's agent reaches its peers.
    fn comes_up(&self, settings: Option<&AgentSettings>) -> bool {
        let Ok(Parts { observer, adopter: Some(adopter), .. }) = (self.instance.registry)(&self.adoption.agent) else {
            return true;
        };
        let Some(settings) = settings else { return true };
        let give_up_at = clock::since_boot() + START_WAIT;
        while clock::since_boot() < give_up_at {
            if let Ok(Some(found)) = adopter.find(settings, None) {
                let health = observer(settings).map(|agent| agent.health(Subject::unguarded(&found.leader)));
                if health.is_ok_and(|health| health.lacks(&[]).is_none()) {
                    return true;
                }
            }
            clock::sleep(INTERVAL);
        }
        false
    }

    /// Notes that nobody heard since a moment. Who hears from now on is not sidle's agent.
    fn note_downtime(&self, from: Timestamp) -> Result<(), FilesError> {
        let (until, cause) = (clock::now(), DowntimeCause::Unadopted);
        let downtime = Downtime { from: from.min(until), until, cause, detail: String::new() };
        self.instance.files.change_downtimes(|kept| kept.heard(None, None).with(downtime))?;
        Ok(())
    }

    /// How to list what was published since a moment.
    fn missed(&self, from: Timestamp) -> Result<Option<String>, Report> {
        let zone = clock::zone(None)?;
        let now = clock::now();
        // Peers list by the second: rounded up, nothing is left out.
        let until = now.checked_add(SignedDuration::from_secs(1)).unwrap_or(now);
        let adopter = self.instance.adopter(&self.adoption.agent)?;
        Ok(adopter.map(|adopter| adopter.missed(&from.to_zoned(zone.clone()), &until.to_zoned(zone))))
    }
}

/// How ending the running release ended.
enum Ended {
    /// No agent runs since then (time since boot).
    Since(Duration),
    /// It stayed busy, with these jobs.
    Not(Option<String>),
}
