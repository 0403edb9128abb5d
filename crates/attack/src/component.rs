//! Wraps a core module as a component.

use crate::offer::{World, packages};
use anyhow::Result;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

/// Makes a component of a module that imports what its world offers, and exports what that demands.
///
/// # Errors
/// When the module does not fit its world.
pub(crate) fn wrap(mut module: Vec<u8>, world: World) -> Result<Vec<u8>> {
    let (resolve, world) = packages(world)?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    ComponentEncoder::default().module(&module)?.encode()
}
