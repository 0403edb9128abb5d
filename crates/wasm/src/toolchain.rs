//! What a program is loaded with: an engine, what was compiled before, and a process that compiles.

use std::path::Path;

use wasmtime::Engine;

use crate::artifact::{CodeCache, Digest, Key};
use crate::code::{Purpose, check_entry_type};
use crate::compiled::{Compiled, read};
use crate::compiler::{Compiler, EngineKind, Extent};
use crate::entry::{Content, Kept};
use crate::error::ProgramError;

/// What a program is loaded with.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)]
pub struct Toolchain<'a> {
    /// The engine that will run it.
    pub engine: &'a Engine,
    /// Programs that were compiled before; `None` compiles every time.
    pub cache: Option<&'a CodeCache>,
    /// The process that compiles, and what it knows the engine by; `None` compiles in this one.
    pub compiler: Option<(&'a Compiler, EngineKind)>,
}

/// A program that was compiled just now.
struct Made {
    program: Compiled,
    /// Of the file as it was read.
    digest: Digest,
    /// What the cache keeps of it, if another process compiled it.
    content: Option<Vec<u8>>,
}

impl<'a> Toolchain<'a> {
    /// An engine, and programs that were compiled before: what is missing is compiled in this process.
    pub fn new(engine: &'a Engine, cache: Option<&'a CodeCache>) -> Self {
        Self {
            engine,
            cache,
            compiler: None,
        }
    }

    /// Reads, checks and compiles a file: a module, a component, or the text of either. With a
    /// cache, a program that was compiled before is read from there; an entry that cannot be used
    /// costs the time to compile, and is not an error. What `check` refuses is not kept there; what it returns
    /// is returned with the program.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`].
    pub fn load<T>(
        &self,
        purpose: Purpose,
        path: &Path,
        check: impl FnOnce(&Compiled) -> Result<T, ProgramError>,
    ) -> Result<(Compiled, T), ProgramError> {
        if let Some(kept) = self.kept(purpose, path)? {
            let checked = check(&kept)?;
            return Ok((kept, checked));
        }
        let made = self.make(purpose, path)?;
        let checked = check(&made.program)?;
        self.keep(&made);
        Ok((made.program, checked))
    }

    /// Reads and checks a file without a look at the bodies of its functions, for which the program may be refused yet: in what is
    /// returned they only trap. It is kept nowhere.
    ///
    /// # Errors
    ///
    /// Any [`ProgramError`] that loading it for this purpose would have, but for what only function bodies show.
    pub fn outline(&self, purpose: Purpose, path: &Path) -> Result<Compiled, ProgramError> {
        let Some((compiler, engine)) = self.compiler else {
            return Compiled::outline(purpose, self.engine, &read(path)?);
        };
        let object = compiler.compile(Extent::Outline, purpose, engine, path)?;
        self.restored(
            purpose,
            object.restore(self.engine, purpose.form)?,
            object.digest(),
        )
    }

    /// The program in a file, if it was compiled before.
    fn kept(&self, purpose: Purpose, path: &Path) -> Result<Option<Compiled>, ProgramError> {
        let Some(cache) = self.cache else {
            return Ok(None);
        };
        let digest = cache.digest(path)?;
        let found = cache.get(self.engine, &Key::new(self.engine, &digest, purpose.form));
        let found = found.map(|kept| self.restored(purpose, kept, digest));
        // It may have been compiled for another entry: the checks before compilation report what
        // it lacks.
        Ok(found.and_then(Result::ok))
    }

    /// Reads, checks and compiles the program in a file.
    fn make(&self, purpose: Purpose, path: &Path) -> Result<Made, ProgramError> {
        if let Some((compiler, engine)) = self.compiler {
            let object = compiler.compile(Extent::Whole, purpose, engine, path)?;
            let kept = object.restore(self.engine, purpose.form)?;
            return Ok(Made {
                program: self.restored(purpose, kept, object.digest())?,
                digest: object.digest(),
                content: self.cache.and_then(|_| object.content()),
            });
        }
        let bytes = read(path)?;
        let program = Compiled::from_bytes(purpose, self.engine, &bytes)?;
        // What is refused needs none: a third of a millisecond for each megabyte.
        let digest = Digest::of(&bytes);
        Ok(Made {
            program: Compiled {
                digest: Some(digest),
                ..program
            },
            digest,
            content: None,
        })
    }

    /// Keeps a program for the next time. That it cannot be kept is not an error.
    fn keep(&self, made: &Made) {
        let Some(cache) = self.cache else {
            return;
        };
        let key = Key::new(self.engine, &made.digest, made.program.form);
        let kept = match &made.content {
            Some(content) => cache.put(&key, &[content]).map_err(Into::into),
            None => Content::of(&made.program)
                .and_then(|content| Ok(cache.put(&key, &content.parts())?)),
        };
        if let Err(error) = kept {
            tracing::warn!(%error, "a compiled program was not kept");
        }
    }

    fn restored(
        &self,
        Purpose { entry, form }: Purpose,
        kept: Kept,
        digest: Digest,
    ) -> Result<Compiled, ProgramError> {
        check_entry_type(entry, self.engine, &kept.code)?;
        let Kept {
            code,
            pages,
            code_bytes,
            inventory,
            image,
        } = kept;
        Ok(Compiled {
            code,
            pages,
            code_bytes,
            form,
            inventory,
            image,
            digest: Some(digest),
        })
    }
}
