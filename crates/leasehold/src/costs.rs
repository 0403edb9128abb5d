//! The costs of a host, which leases are charged by.

use crate::error::Error;
use leasehold_cell::calibrate::{Effort, calibrate};
use leasehold_cell::profile::Profile;
use std::path::Path;

/// The costs of reclamation, preemption and host calls on this host.
///
/// A lease is charged in these units, so that its budget is a time.
#[derive(Debug, Clone)]
pub struct Costs(Profile);

impl Costs {
    /// Nothing costs anything: budgets refuse nothing, and ends have no bound. For tests.
    pub fn none() -> Self {
        Self(Profile::free())
    }

    /// The costs measured on this host and stored, by `leasehold calibrate` or [`Costs::measured`];
    /// `None` if nothing was.
    ///
    /// # Errors
    /// When what is stored cannot be used here.
    pub fn stored() -> Result<Option<Self>, Error> {
        match Profile::default_path() {
            None => Ok(None),
            Some(path) => Self::stored_in(&path),
        }
    }

    /// The same from a file.
    ///
    /// # Errors
    /// When the profile exists but cannot be used here.
    pub fn stored_in(path: &Path) -> Result<Option<Self>, Error> {
        let profile = Profile::load(path).map_err(|error| Error::Host(error.into()))?;
        Ok(profile.map(Self))
    }

    /// The stored costs; if there are none, they are measured now, in some twenty seconds, and
    /// stored for the next time.
    ///
    /// # Errors
    /// When this host cannot be measured. That the measurement cannot be stored is none.
    pub fn measured() -> Result<Self, Error> {
        if let Ok(Some(stored)) = Self::stored() {
            return Ok(stored);
        }
        let profile = calibrate(Effort::Full, &mut |_| {});
        let profile = profile.map_err(|error| Error::Host(error.into()))?;
        if let Some(path) = Profile::default_path() {
            // The next program measures again.
            let _ = profile.save(&path);
        }
        Ok(Self(profile))
    }

    pub(crate) fn into_profile(self) -> Profile {
        self.0
    }
}

impl From<Profile> for Costs {
    fn from(profile: Profile) -> Self {
        Self(profile)
    }
}
