//! A kernel whose locks can be queried: its image, its modules and its source.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::body::Body;
use crate::error::Error;
use crate::image::Image;
use crate::preprocess::Macros;
use crate::resolve::{ChainStep, Resolver};
use crate::scope::{Caller, Scope};
use crate::site::{Lock, Reason, Site};
use crate::source::Sources;
use crate::unit::{Function, Unit};

/// Where the parts of a kernel are.
#[derive(Clone, Debug)]
pub struct Paths {
    /// `vmlinux` with debug information.
    pub vmlinux: PathBuf,
    /// A directory with the modules' debug files, at any depth.
    pub modules: PathBuf,
    /// The source tree that the kernel was built from.
    pub source: PathBuf,
    /// The configuration that it was built with.
    pub config: PathBuf,
}

impl Paths {
    /// The places in a directory into which Debian's packages of a kernel were unpacked, the
    /// image and its `-dbg` package.
    ///
    /// # Errors
    /// When there is no configuration in `boot` or no debug image for it.
    pub fn of_package(kernel: &Path, source: &Path) -> Result<Self, Error> {
        let boot = kernel.join("boot");
        let entries = fs::read_dir(&boot).map_err(|source| Error::Read {
            path: boot.clone(),
            source,
        })?;
        let mut releases: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter_map(|name| name.strip_prefix("config-").map(str::to_owned))
            .collect();
        releases.sort();
        let release = releases
            .pop()
            .ok_or(Error::NoConfig { path: boot.clone() })?;
        let debug = kernel.join("usr/lib/debug");
        Ok(Self {
            vmlinux: debug.join(format!("boot/vmlinux-{release}")),
            modules: debug.join(format!("lib/modules/{release}")),
            source: source.into(),
            config: boot.join(format!("config-{release}")),
        })
    }
}

/// A place in the code of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// An address of the kernel's image, as it was linked: the running address less the kernel's
    /// displacement (`_text` there minus `_text` in the image).
    Linked(u64),
    /// So many bytes into the function of that name, in a module or, for `None`, the image.
    Symbol {
        /// The module, as `/proc/modules` names it.
        module: Option<String>,
        /// The function, as `/proc/kallsyms` names it.
        symbol: String,
        /// Bytes from its start.
        offset: u64,
        /// Its length, if that is known: static functions can share a name.
        size: Option<u64>,
    },
}

/// A kernel with debug information and source.
///
/// Everything is read when it is needed for the first time and kept.
pub struct Kernel {
    vmlinux: Rc<Image>,
    modules_root: PathBuf,
    sources: Sources,
    /// Debug files of modules by name.
    module_files: HashMap<String, PathBuf>,
    modules: RefCell<HashMap<String, Rc<Image>>>,
    macros: RefCell<HashMap<String, Rc<Macros>>>,
    bodies: RefCell<HashMap<BodyKey, Option<Rc<Body>>>>,
    headers: RefCell<HashMap<HeaderKey, Option<Definition>>>,
}

/// The unit, and the name of a function that a header of it has.
type HeaderKey = (String, String);

/// The file and the line of a definition.
type Definition = (String, u32);

/// The unit, the file and line of a definition, and the function's name.
type BodyKey = (String, String, u32, String);

impl Kernel {
    /// Opens the kernel at the given places.
    ///
    /// # Errors
    /// When `vmlinux` cannot be read, has no debug information or is malformed, or when the
    /// source tree is not one.
    pub fn open(paths: &Paths) -> Result<Self, Error> {
        let sources = Sources::open(&paths.source, &paths.config)?;
        Self::with_sources(&paths.vmlinux, &paths.modules, sources)
    }

    pub(crate) fn with_sources(
        vmlinux: &Path,
        modules: &Path,
        sources: Sources,
    ) -> Result<Self, Error> {
        let mut module_files = HashMap::new();
        find_modules(modules, &mut module_files, 0);
        Ok(Self {
            vmlinux: Rc::new(Image::open(vmlinux)?),
            modules_root: modules.into(),
            sources,
            module_files,
            modules: RefCell::new(HashMap::new()),
            macros: RefCell::new(HashMap::new()),
            bodies: RefCell::new(HashMap::new()),
            headers: RefCell::new(HashMap::new()),
        })
    }

    /// The GNU build id of the image, in hexadecimal; empty if it has none.
    #[must_use]
    pub fn build_id(&self) -> &str {
        self.vmlinux.build_id()
    }

    /// The address of a symbol of the image as it was linked, such as `_text`.
    #[must_use]
    pub fn symbol(&self, name: &str) -> Option<u64> {
        self.vmlinux.addresses_of(name).first().copied()
    }

    /// The variable of the image that contains a linked address.
    #[must_use]
    pub fn variable_at(&self, address: u64) -> Option<&str> {
        self.vmlinux
            .variable_at(address)
            .map(|symbol| symbol.name.as_str())
    }

    /// Which lock `primitive` takes when it is called through `chain`, return addresses from the
    /// innermost on. The first argument of the primitive is the lock, as of all that LockScope's
    /// table 3 names. A longer chain never does harm; a wrapper needs the caller.
    ///
    /// Costs milliseconds, and some ten more for each unit seen for the first time.
    ///
    /// # Errors
    /// When debug information is malformed. Code that there is no debug information for is no
    /// error: the lock is then unknown.
    pub fn site(&self, primitive: &str, chain: &[Code]) -> Result<Site, Error> {
        let mut steps = Vec::new();
        for code in chain {
            self.add_steps(code, &mut steps)?;
            if steps.len() >= MAX_STEPS {
                break;
            }
        }
        // A tracer's chain may begin in the lock function itself.
        let own = steps
            .iter()
            .take_while(|step| step.scope.function.name == primitive)
            .count();
        steps.drain(..own);
        for (index, step) in steps.iter_mut().enumerate() {
            if let Some(scope) = Rc::get_mut(&mut step.scope) {
                scope.caller = Caller::Step(index + 1);
            }
        }
        Ok(self.resolved(primitive, steps))
    }

    fn resolved(&self, primitive: &str, steps: Vec<ChainStep>) -> Site {
        let places: Vec<(String, String, u32)> = steps
            .iter()
            .map(|step| {
                let name = step.scope.function.name.clone();
                (name, self.path_of(&step.scope.unit, step.file), step.line)
            })
            .collect();
        let (settled, lock) = match Resolver::new(self, steps).lock(primitive) {
            Ok(origin) => {
                let unknown = Lock::Unknown {
                    reason: Reason::Expression,
                };
                (origin.step(), origin.lock().unwrap_or(unknown))
            }
            Err(reason) => (0, Lock::Unknown { reason }),
        };
        let place = places.into_iter().nth(settled);
        let (function, file, line) = place.unwrap_or_default();
        Site {
            function,
            file,
            line,
            lock,
        }
    }

    fn path_of(&self, unit: &Unit, file: usize) -> String {
        let named = unit.file(file);
        self.sources
            .locate(named)
            .unwrap_or_else(|| named.to_owned())
    }

    /// Adds the functions that a return address is in, inlined ones first.
    fn add_steps(&self, code: &Code, steps: &mut Vec<ChainStep>) -> Result<(), Error> {
        let Some((image, address)) = self.find(code)? else {
            return Ok(());
        };
        // The call is before the address that it returns to.
        let call = address.saturating_sub(1);
        let Some(unit) = image.unit_at(call)? else {
            return Ok(());
        };
        for step in unit.steps_at(call) {
            let function = unit.function(step.function).clone();
            let body = self.body(&image, &unit, &function);
            let scope = Scope::new(&image, &unit, function, body, Caller::Step(0));
            steps.push(ChainStep {
                scope: Rc::new(scope),
                file: step.file,
                line: step.line,
            });
        }
        Ok(())
    }

    /// The image that has the code, and the address there.
    fn find(&self, code: &Code) -> Result<Option<(Rc<Image>, u64)>, Error> {
        match code {
            Code::Linked(address) => Ok(Some((Rc::clone(&self.vmlinux), *address))),
            Code::Symbol {
                module,
                symbol,
                offset,
                size,
            } => {
                let image = match module {
                    None => Rc::clone(&self.vmlinux),
                    Some(module) => match self.module(module) {
                        Err(Error::NoModule { .. }) => return Ok(None),
                        found => found?,
                    },
                };
                let mut starts = image.addresses_of(symbol).iter().copied();
                let fits = |start: &u64| {
                    let function = image.function_at(*start);
                    size.is_none() || function.map(|function| function.size) == *size
                };
                let start = starts.clone().find(fits).or_else(|| starts.next());
                Ok(start.map(|start| (image, start + offset)))
            }
        }
    }

    /// The debug information of a module.
    ///
    /// # Errors
    /// [`Error::NoModule`] when there is no file for it, and errors of reading the file.
    fn module(&self, name: &str) -> Result<Rc<Image>, Error> {
        let name = name.replace('-', "_");
        if let Some(image) = self.modules.borrow().get(&name) {
            return Ok(Rc::clone(image));
        }
        let Some(path) = self.module_files.get(&name) else {
            return Err(Error::NoModule {
                module: name,
                searched: self.modules_root.clone(),
            });
        };
        let image = Rc::new(Image::open(path)?);
        self.modules.borrow_mut().insert(name, Rc::clone(&image));
        Ok(image)
    }

    /// The function that `name` means in a unit: one of the unit, one of another unit of the
    /// image or of the kernel's, or one that the compiler left nothing of and a header has.
    pub(crate) fn function(
        &self,
        image: &Rc<Image>,
        unit: &Rc<Unit>,
        name: &str,
        caller: Caller,
    ) -> Option<Scope> {
        if let Some(id) = unit.function_named(name)
            && !unit.function(id).declared_only
        {
            let function = unit.function(id).clone();
            let body = self.body(image, unit, &function);
            return Some(Scope::new(image, unit, function, body, caller));
        }
        for other in [image, &self.vmlinux] {
            let Some(&address) = other.addresses_of(name).first() else {
                continue;
            };
            let Some(home) = other.unit_at(address).ok().flatten() else {
                continue;
            };
            let Some(id) = home.function_named(name) else {
                continue;
            };
            let function = home.function(id).clone();
            let body = self.body(other, &home, &function);
            return Some(Scope::new(other, &home, function, body, caller));
        }
        let (file, line) = self.in_headers(image, unit, name)?;
        let body = self.body_at(image, unit, &file, line, name);
        body.as_ref()?;
        let function = Function {
            name: name.to_owned(),
            line,
            ..Function::default()
        };
        Some(Scope::new(image, unit, function, body, caller))
    }

    fn body(&self, image: &Image, unit: &Unit, function: &Function) -> Option<Rc<Body>> {
        let file = self.sources.locate(unit.file(function.file))?;
        self.body_at(image, unit, &file, function.line, &function.name)
    }

    fn body_at(
        &self,
        image: &Image,
        unit: &Unit,
        file: &str,
        line: u32,
        name: &str,
    ) -> Option<Rc<Body>> {
        let key = (unit.name.clone(), file.to_owned(), line, name.to_owned());
        if let Some(known) = self.bodies.borrow().get(&key) {
            return known.clone();
        }
        let macros = self.macros(image, unit);
        let source = self.sources.file(file);
        let body = source
            .and_then(|source| Body::find(&macros, &source, line, name))
            .map(Rc::new);
        self.bodies.borrow_mut().insert(key, body.clone());
        body
    }

    fn macros(&self, image: &Image, unit: &Unit) -> Rc<Macros> {
        if let Some(known) = self.macros.borrow().get(&unit.name) {
            return Rc::clone(known);
        }
        let main = self.sources.locate(&unit.name).unwrap_or_default();
        let module = image.path() != self.vmlinux.path();
        let macros = Rc::new(Macros::of_unit(&self.sources, &main, module));
        self.macros
            .borrow_mut()
            .insert(unit.name.clone(), Rc::clone(&macros));
        macros
    }

    /// Where a header of the unit, or its source file, has the text `name(`, followed by a body.
    fn in_headers(&self, image: &Image, unit: &Unit, name: &str) -> Option<Definition> {
        let key = (unit.name.clone(), name.to_owned());
        if let Some(known) = self.headers.borrow().get(&key) {
            return known.clone();
        }
        let macros = self.macros(image, unit);
        let searched = format!("{name}(");
        let found = unit.files().iter().find_map(|named| {
            let path = self.sources.locate(named)?;
            let file = self.sources.file(&path)?;
            let text = file.text();
            text.match_indices(&searched).find_map(|(at, _)| {
                let line_start = text[..at].rfind('\n').map_or(0, |end| end + 1);
                let before = &text[line_start..at];
                let declares = !before.starts_with(char::is_whitespace)
                    && !before.starts_with('#')
                    && before
                        .chars()
                        .all(|c| c.is_alphanumeric() || "_ *\t".contains(c))
                    && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
                let end = text[at..].find(['{', ';']).map(|end| at + end)?;
                let line = file.line_of(at);
                (declares && text[end..].starts_with('{') && macros.compiles(&file, line))
                    .then(|| (path.clone(), line))
            })
        });
        self.headers.borrow_mut().insert(key, found.clone());
        found
    }
}

/// The most steps that are ever needed.
const MAX_STEPS: usize = 24;

/// Notes all debug files of modules below a directory: `ext4.ko.debug`, or `ext4.ko`.
fn find_modules(directory: &Path, found: &mut HashMap<String, PathBuf>, depth: u32) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_directory && depth < 16 {
            find_modules(&path, found, depth + 1);
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let module = name
            .strip_suffix(".ko.debug")
            .or_else(|| name.strip_suffix(".ko"));
        if let Some(module) = module {
            found.insert(module.replace('-', "_"), path);
        }
    }
}
