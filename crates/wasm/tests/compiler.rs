//! What a process that compiles returns is what this one would compile. Such a process is started by one that has one
//! thread: this program is no test harness, and each case is a function.

use std::fs;
use std::path::Path;

use leasehold_confine::Mode;
use leasehold_wasm::artifact::CodeCache;
use leasehold_wasm::code::{Code, Entry, Form, Purpose};
use leasehold_wasm::compiled::Compiled;
use leasehold_wasm::compiler::{Compiler, EngineKind};
use leasehold_wasm::error::ProgramError;
use leasehold_wasm::features::FEATURES;
use leasehold_wasm::image::{Image, PAGE};
use leasehold_wasm::toolchain::Toolchain;
use rustix::fs::OFlags;
use wasmtime::{Config, Engine, Instance, Store};

const KIND: EngineKind = EngineKind(7);

/// A module whose memory is worth an image, and that exports a function.
fn program() -> String {
    let data = "x".repeat(2 << 20);
    format!(
        "(module (memory (export \"memory\") 64) (data (i32.const 65536) \"{data}\") \
           (func (export \"seven\") (result i32) (i32.const 7)))"
    )
}

fn engine(kind: EngineKind) -> anyhow::Result<Engine> {
    assert_eq!(kind, KIND);
    let engine = Engine::new(Config::new().wasm_features(FEATURES, true));
    engine.map_err(|error| anyhow::anyhow!("{error:#}"))
}

struct Bench {
    engine: Engine,
    compiler: Compiler,
    directory: tempfile::TempDir,
}

impl Bench {
    fn file(&self, content: impl AsRef<[u8]>) -> std::path::PathBuf {
        let path = self.directory.path().join("program");
        fs::write(&path, content).expect("written");
        path
    }

    fn cache(&self, name: &str) -> CodeCache {
        let path = |part: &str| self.directory.path().join(name).join(part);
        CodeCache::open(&path("code"), &path("key")).expect("a cache")
    }

    fn tools<'a>(&'a self, cache: Option<&'a CodeCache>, is_elsewhere: bool) -> Toolchain<'a> {
        Toolchain {
            compiler: is_elsewhere.then_some((&self.compiler, KIND)),
            ..Toolchain::new(&self.engine, cache)
        }
    }

    fn load(
        &self,
        purpose: Purpose,
        path: &Path,
        cache: Option<&CodeCache>,
        is_elsewhere: bool,
    ) -> Result<Compiled, ProgramError> {
        let tools = self.tools(cache, is_elsewhere);
        tools.load(purpose, path, |_| Ok(())).map(|loaded| loaded.0)
    }
}

fn seven(program: &Compiled) -> i32 {
    let Code::Module(module) = &program.code else {
        panic!("a module");
    };
    let mut store = Store::new(module.engine(), ());
    let instance = Instance::new(&mut store, module, &[]).expect("an instance");
    let seven = instance.get_typed_func::<(), i32>(&mut store, "seven");
    seven.expect("it is there").call(&mut store, ()).expect("7")
}

fn a_program_is_the_same_wherever_it_is_compiled(bench: &Bench) {
    let path = bench.file(program());
    for form in [Form::Whole, Form::Paged, Form::ImageApart, Form::ImageShown] {
        let purpose = Purpose {
            entry: Entry::Exports,
            form,
        };
        let [here, there] = [false, true].map(|is_elsewhere| {
            bench
                .load(purpose, &path, None, is_elsewhere)
                .expect("valid")
        });
        assert_eq!(here.inventory, there.inventory);
        assert_eq!(here.digest, there.digest);
        assert_eq!(here.form, there.form);
        let image = |program: &Compiled| {
            let image = program.image.as_ref()?;
            let pages: Vec<_> = (0..image.pages())
                .map(|it| image.page(it).expect("read"))
                .collect();
            Some((image.first(), image.digest(), pages))
        };
        assert_eq!(image(&here), image(&there));
        assert_eq!(
            image(&here).is_some(),
            form == Form::ImageApart || form == Form::ImageShown
        );
        assert_eq!((seven(&here), seven(&there)), (7, 7));
    }
}

fn a_shown_image_is_the_pages_of_its_entry_where_these_are_locked(bench: &Bench) {
    let path = bench.file(program());
    let cache = bench.cache("images");
    let pages = |image: &Image| {
        let page = |page| image.page(page).expect("read");
        (0..image.pages()).map(page).collect::<Vec<_>>()
    };
    for form in [Form::ImageApart, Form::ImageShown] {
        let purpose = Purpose {
            entry: Entry::Exports,
            form,
        };
        // The first one is compiled, and the second one is the cache's.
        let [made, kept] = [(), ()].map(|()| {
            let loaded = bench.load(purpose, &path, Some(&cache), false);
            loaded.expect("valid").image.expect("one")
        });
        assert_eq!(pages(&made), pages(&kept));
        let is_apart = kept.file().is_ok();
        let may_be_shown = leasehold_confine::locks_without_limit() && form == Form::ImageShown;
        assert_eq!(is_apart, !may_be_shown);
        let (file, start) = kept.place();
        assert_eq!(is_apart, start == 0);
        assert!(start.is_multiple_of(PAGE as u64));
        if !is_apart {
            let flags = rustix::fs::fcntl_getfl(&*file).expect("known");
            assert!(flags.contains(OFlags::NOATIME), "no read writes to a disk");
        }
    }
}

fn an_outline_is_the_same_wherever_it_is_made(bench: &Bench) {
    // The body of its function is not looked at.
    let text = program().replace("(i32.const 7))", "(i64.const 7))");
    let path = bench.file(text);
    for form in [Form::Whole, Form::ImageApart] {
        let purpose = Purpose {
            entry: Entry::Exports,
            form,
        };
        assert!(bench.load(purpose, &path, None, true).is_err());
        let [here, there] = [false, true].map(|is_elsewhere| {
            let outline = bench.tools(None, is_elsewhere).outline(purpose, &path);
            outline.expect("valid but for what it does")
        });
        assert_eq!(here.inventory, there.inventory);
        let image = |outline: &Compiled| {
            let image = outline.image.as_ref()?;
            Some((image.digest(), image.pages()))
        };
        assert_eq!(image(&here), image(&there));
        assert_eq!(image(&here).is_some(), form == Form::ImageApart);
        for outline in [here, there] {
            let Code::Module(module) = &outline.code else {
                panic!("a module");
            };
            let mut store = Store::new(module.engine(), ());
            let instance = Instance::new(&mut store, module, &[]).expect("an instance");
            let seven = instance.get_typed_func::<(), i32>(&mut store, "seven");
            let done = seven.expect("of this type").call(&mut store, ());
            done.expect_err("its functions trap");
        }
    }
}

fn what_is_kept_is_the_same_and_is_taken_by_either(bench: &Bench) {
    let path = bench.file(program());
    let purpose = Purpose {
        entry: Entry::Exports,
        form: Form::ImageShown,
    };
    let kept = [false, true].map(|is_elsewhere| {
        let name = format!("cache{is_elsewhere}");
        let cache = bench.cache(&name);
        bench
            .load(purpose, &path, Some(&cache), is_elsewhere)
            .expect("valid");
        let entries = fs::read_dir(bench.directory.path().join(&name).join("code")).expect("there");
        let mut entries: Vec<_> = entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.is_file())
            .map(|path| {
                (
                    path.file_name().map(ToOwned::to_owned),
                    fs::read(path).expect("read"),
                )
            })
            .collect();
        entries.sort();
        let again = bench
            .load(purpose, &path, Some(&cache), !is_elsewhere)
            .expect("valid");
        assert_eq!(seven(&again), 7);
        // The last bytes are a tag, by a secret of each cache.
        let body = |(name, bytes): (_, Vec<u8>)| (name, bytes[..bytes.len() - 48].to_vec());
        entries.into_iter().map(body).collect::<Vec<_>>()
    });
    assert_eq!(kept[0].len(), 1);
    assert!(kept[0] == kept[1]);
}

fn an_error_says_the_same(bench: &Bench) {
    let many: String = (0..9_000)
        .map(|at| format!("(type (func (param i32)) (; {at} ;))"))
        .collect();
    let programs = [
        "no program".to_owned(),
        "(module (func (result i32)))".to_owned(),
        "(module (import \"other\" \"world\" (func)) (func (export \"_start\")))".to_owned(),
        "(module (func (export \"_start\") (param i32)))".to_owned(),
        "(module)".to_owned(),
        format!("(module {many})"),
    ];
    for program in programs {
        let path = bench.file(program);
        let [here, there] = [false, true].map(|is_elsewhere| {
            let refused = bench
                .load(Purpose::COMMAND, &path, None, is_elsewhere)
                .err();
            refused.expect("refused").to_string()
        });
        assert_eq!(here, there);
    }
    let nowhere = bench
        .load(Purpose::COMMAND, "no/such/file".as_ref(), None, true)
        .err();
    assert!(matches!(nowhere, Some(ProgramError::Read { .. })));
    assert_eq!(
        seven(
            &bench
                .load(
                    Purpose {
                        entry: Entry::Exports,
                        form: Form::Whole
                    },
                    &bench.file(program()),
                    None,
                    true,
                )
                .expect("valid")
        ),
        7
    );
}

fn this_process_compiles_nothing(bench: &Bench) {
    let path = bench.file(program());
    let purpose = Purpose {
        entry: Entry::Exports,
        form: Form::Whole,
    };
    bench.load(purpose, &path, None, true).expect("valid");
    let threads = fs::read_dir("/proc/self/task").expect("there").count();
    assert_eq!(threads, 1, "those that compile are elsewhere");
}

type Case = (&'static str, fn(&Bench));

fn main() {
    let compiler = Compiler::start(Mode::Enforce, engine).expect("started");
    let bench = Bench {
        engine: engine(KIND).expect("an engine"),
        compiler,
        directory: tempfile::tempdir().expect("a directory"),
    };
    let cases: [Case; 6] = [
        (
            "this_process_compiles_nothing",
            this_process_compiles_nothing,
        ),
        (
            "a_program_is_the_same_wherever_it_is_compiled",
            a_program_is_the_same_wherever_it_is_compiled,
        ),
        (
            "what_is_kept_is_the_same_and_is_taken_by_either",
            what_is_kept_is_the_same_and_is_taken_by_either,
        ),
        (
            "a_shown_image_is_the_pages_of_its_entry_where_these_are_locked",
            a_shown_image_is_the_pages_of_its_entry_where_these_are_locked,
        ),
        (
            "an_outline_is_the_same_wherever_it_is_made",
            an_outline_is_the_same_wherever_it_is_made,
        ),
        ("an_error_says_the_same", an_error_says_the_same),
    ];
    for (name, case) in cases {
        case(&bench);
        println!("test {name} ... ok");
    }
}
