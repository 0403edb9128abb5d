//! Wraps a core module as a component of the attackers' world.

use crate::offer::attack_world;
use anyhow::Result;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

/// Makes a component of a module that imports what its world offers, and exports `run`.
///
/// # Errors
/// When the module does not fit its world.
pub(crate) fn wrap(mut module: Vec<u8>) -> Result<Vec<u8>> {
    let (resolve, world) = attack_world()?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    ComponentEncoder::default().module(&module)?.encode()
}
