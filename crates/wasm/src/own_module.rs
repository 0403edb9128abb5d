//! Modules of the host's own, of a function or two: each is compiled once for an engine on this host, and kept with the
//! compiled programs. Without that, most of what a short run of a program compiled was these.

use crate::artifact::{CodeCache, Key};
use crate::code::Code;
use crate::compile_threads;
use crate::entry::{Content, Kept};
use crate::inventory::Inventory;
use wasmtime::{Engine, Module};

/// Takes a module from the cache, or compiles it and keeps it there. An entry that cannot be read or written costs the time
/// to compile, some milliseconds in a new process, and is no error.
///
/// # Errors
/// The engine's, when it cannot compile it, and when the host refuses a thread.
pub fn own_module(
    engine: &Engine,
    text: &str,
    cache: Option<&CodeCache>,
) -> wasmtime::Result<Module> {
    let key = Key::of_own(engine, text);
    if let Some(Kept {
        code: Code::Module(module),
        pages,
        ..
    }) = cache.and_then(|cache| cache.get(engine, &key))
    {
        // It is a few pages, in use until the engine goes.
        if let Some(pages) = pages {
            pages.leave();
        }
        return Ok(module);
    }
    let module = compile_threads::alone(|| Module::new(engine, text))??;
    if let Some(cache) = cache {
        let content = module
            .serialize()
            .map_err(|error| anyhow::anyhow!("{error:#}"));
        let content =
            content.and_then(|code| Content::new(code, false, &Inventory::default(), None));
        let kept = content.and_then(|content| Ok(cache.put(&key, &content.parts())?));
        if let Err(error) = kept {
            tracing::warn!(%error, "a module of the host's own was not kept");
        }
    }
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::own_module;
    use crate::artifact::{CodeCache, Digest, Key};
    use crate::code::Form;
    use wasmtime::{Engine, Instance, Store};

    #[test]
    fn a_module_is_kept_apart_from_programs_with_the_same_text() {
        const TEXT: &str = "(module (func (export \"k\") (result i32) (i32.const 7)))";
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let cache = CodeCache::open(&path("code"), &path("key")).expect("a cache");
        let engine = Engine::default();
        let digest = Digest::of(TEXT.as_bytes());
        let entries = || std::fs::read_dir(path("code")).expect("there").count();
        let before = entries();
        for _ in 0..2 {
            let module = own_module(&engine, TEXT, Some(&cache)).expect("a module");
            let mut store = Store::new(&engine, ());
            let instance = Instance::new(&mut store, &module, &[]).expect("an instance");
            let seven = instance.get_typed_func::<(), i32>(&mut store, "k");
            let seven = seven.expect("a function").call(&mut store, ());
            assert_eq!(seven.expect("a result"), 7);
            assert_eq!(entries(), before + 1);
        }
        for form in [Form::Whole, Form::Paged, Form::ImageApart, Form::ImageShown] {
            let program = Key::new(&engine, &digest, form);
            assert!(cache.get(&engine, &program).is_none());
        }
        assert!(cache.get(&engine, &Key::of_own(&engine, TEXT)).is_some());
    }
}
