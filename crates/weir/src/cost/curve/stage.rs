//! A lab with one path in it, ready for load.

use anyhow::Result;

use super::Path;
use super::counts::Counts;
use super::guest::{Guest, GuestSettings};
use super::path::{Installed, ReceiverKind, Site, Station};
use crate::lab::{Lab, LabConfig};
use crate::process::stop::StopSignal;
use crate::traffic::programs::receiver_mac;
use hostnet::tap::Tap;

/// A lab with one path in it.
#[must_use = "the lab is removed when this is dropped"]
pub struct Stage<'a> {
    /// The path.
    pub path: Path,
    /// The number of receivers.
    pub receivers: u8,
    /// The namespaces: the application's side is the host.
    pub lab: Lab,
    /// One for each receiver, if the path ends at taps.
    pub taps: Vec<Tap>,
    /// Virtual machines on the taps, if guests receive.
    pub guests: Vec<Guest<'a>>,
    /// The path as it is set up.
    pub installed: Box<dyn Installed + 'a>,
}

impl<'a> Stage<'a> {
    /// Makes the lab and sets the path up in it, with guests on its taps if they are described. A
    /// path's processes share `app_cpu` with the receivers.
    pub fn make(
        path: Path,
        receivers: u8,
        app_cpu: usize,
        guest: Option<&GuestSettings>,
        stop: &'a StopSignal,
    ) -> Result<Self> {
        let mut lab = Lab::anonymous(&LabConfig::default())?;
        let datapath = path.datapath();
        let taps: Vec<Tap> = (0..receivers)
            .filter(|_| datapath.receiver() == ReceiverKind::Tap)
            .map(|receiver| lab.app().add_tap(&format!("tap{receiver}")))
            .collect::<Result<_>>()?;
        let stations: Vec<Station<'_>> = taps.iter().zip((0..).map(receiver_mac)).collect();
        let installed = datapath.install(Site {
            lab: &mut lab,
            stations: &stations,
            app_cpu,
            stop,
        })?;
        // The last step: until here nothing could have been received on the taps.
        let guests = guest
            .into_iter()
            .flat_map(|guest| taps.iter().map(move |tap| (guest, tap)))
            .map(|(guest, tap)| Guest::start(guest, lab.app(), tap, stop))
            .collect::<Result<_>>()?;
        Ok(Self {
            path,
            receivers,
            lab,
            taps,
            guests,
            installed,
        })
    }

    /// All counters, now.
    pub fn counts(&self) -> Result<Counts> {
        let taps = self.taps.iter().map(|tap| tap.device().counters());
        Ok(Counts {
            load: self.lab.load().counters()?,
            host: self.lab.app().counters()?,
            taps: taps.collect::<hostnet::Result<_>>()?,
            path: self.installed.counters(&self.lab)?,
        })
    }
}
