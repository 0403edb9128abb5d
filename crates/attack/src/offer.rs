//! The imports that a cell offers, with their types in core code.
//!
//! Preview 1 and the kernel's module are tables here; for the interfaces of components the WIT
//! packages are read, so that a function that is added to them is called without a change here.

use anyhow::{Context, Result, anyhow};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Resolve, Type, TypeDefKind, WorldId, WorldItem};

/// A type of a parameter, as core code sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flat {
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
    /// A float of 32 bits.
    F32,
    /// A float of 64 bits.
    F64,
}

impl Flat {
    /// Its name in the text format.
    pub fn name(self) -> &'static str {
        match self {
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

/// The meaning of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// A descriptor or a handle.
    Handle,
    /// A selector of the kernel.
    Selector,
    /// A number of few values: flags, a clock, a count of little.
    Small,
    /// Any number.
    Number,
    /// The address of results.
    Out,
    /// The address of bytes.
    Buffer,
    /// The address of a path.
    Path,
    /// The address of buffers.
    Vectors,
    /// The address of handles.
    Handles,
    /// The address of records.
    Zeros,
    /// The length of the object that the parameter before it points to.
    Length,
    /// The number of objects that the parameter before it points to.
    Count,
}

/// A function that a guest can import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The module or interface that it is imported from.
    pub module: String,
    /// Its name there.
    pub name: String,
    /// Its parameters.
    pub parameters: Vec<(Flat, Meaning)>,
    /// Its result.
    pub result: Option<Flat>,
    /// Whether it can return a list or a string, for which the host calls `cabi_realloc`.
    pub reallocates: bool,
}

/// Everything that a cell offers.
#[derive(Debug, Clone)]
pub struct Offers {
    /// To core modules.
    pub core: Vec<Offer>,
    /// To components.
    pub component: Vec<Offer>,
}

/// The world of an attacker that is a component, and the packages that it is made of, each after those that it
/// uses.
const PACKAGES: [(&str, &str); 12] = [
    ("io.wit", include_str!("../wit/io.wit")),
    ("clocks.wit", include_str!("../wit/clocks.wit")),
    ("random.wit", include_str!("../wit/random.wit")),
    ("filesystem.wit", include_str!("../wit/filesystem.wit")),
    ("sockets.wit", include_str!("../wit/sockets.wit")),
    ("cli.wit", include_str!("../wit/cli.wit")),
    ("http.wit", include_str!("../wit/http.wit")),
    ("config.wit", include_str!("../wit/config.wit")),
    ("logging.wit", include_str!("../wit/logging.wit")),
    ("keyvalue.wit", include_str!("../wit/keyvalue.wit")),
    ("kernel.wit", include_str!("../wit/kernel.wit")),
    (
        "attack.wit",
        "package leasehold:attack;
         world attack {
           include wasi:cli/command@0.2.12;
           include leasehold:kernel/guest@0.1.0;
           import wasi:http/types@0.2.12;
           import wasi:http/outgoing-handler@0.2.12;
           import wasi:config/store@0.2.0-rc.1;
           import wasi:logging/logging@0.1.0-draft;
           import wasi:keyvalue/store@0.2.0-draft;
           import wasi:keyvalue/atomics@0.2.0-draft;
           import wasi:keyvalue/batch@0.2.0-draft;
         }
         world served {
           import wasi:http/types@0.2.12;
           export wasi:http/incoming-handler@0.2.12;
         }",
    ),
];

/// What a component of this crate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// A program that may import everything.
    Attack,
    /// A program that answers requests.
    Served,
}

impl World {
    const fn name(self) -> &'static str {
        match self {
            Self::Attack => "attack",
            Self::Served => "served",
        }
    }
}

impl Offers {
    /// All that a cell offers.
    ///
    /// # Errors
    /// When a table or a package is malformed, which is a defect.
    pub fn all() -> Result<Self> {
        let mut core = table("wasi_snapshot_preview1", include_str!("preview1.txt"))?;
        core.extend(table("leasehold_kernel", include_str!("kernel.txt"))?);
        let (resolve, world) = packages(World::Attack)?;
        Ok(Self {
            core,
            component: imports(&resolve, world),
        })
    }
}

/// The packages of components, and a world.
///
/// # Errors
/// When a package is malformed, which is a defect.
pub(crate) fn packages(world: World) -> Result<(Resolve, WorldId)> {
    let mut resolve = Resolve::default();
    let mut last = None;
    for (name, text) in PACKAGES {
        last = Some(
            resolve
                .push_str(name, text)
                .with_context(|| format!("the package of {name}"))?,
        );
    }
    let package = last.context("no package")?;
    let world = resolve.select_world(&[package], Some(world.name()))?;
    Ok((resolve, world))
}

fn table(module: &str, text: &str) -> Result<Vec<Offer>> {
    text.lines()
        .map(|line| offer(module, line).with_context(|| format!("{module}: {line}")))
        .collect()
}

/// Reads `name meaning… -> result`.
fn offer(module: &str, line: &str) -> Result<Offer> {
    let (left, right) = match line.split_once(" -> ") {
        Some((left, right)) => (left, Some(right)),
        None => (line, None),
    };
    let mut words = left.split_whitespace();
    let name = words.next().context("no name")?;
    let parameters = words.map(parameter).collect::<Result<_>>()?;
    let result = match right {
        None => None,
        Some("i32") => Some(Flat::I32),
        Some("i64") => Some(Flat::I64),
        Some(other) => return Err(anyhow!("no type {other}")),
    };
    Ok(Offer {
        module: module.to_owned(),
        name: name.to_owned(),
        parameters,
        result,
        reallocates: false,
    })
}

fn parameter(word: &str) -> Result<(Flat, Meaning)> {
    let meaning = match word {
        "i64" => return Ok((Flat::I64, Meaning::Number)),
        "handle" => Meaning::Handle,
        "selector" => Meaning::Selector,
        "small" => Meaning::Small,
        "out" => Meaning::Out,
        "buffer" => Meaning::Buffer,
        "path" => Meaning::Path,
        "vectors" => Meaning::Vectors,
        "zeros" => Meaning::Zeros,
        "length" => Meaning::Length,
        "count" => Meaning::Count,
        other => return Err(anyhow!("no meaning {other}")),
    };
    Ok((Flat::I32, meaning))
}

fn imports(resolve: &Resolve, world: WorldId) -> Vec<Offer> {
    let mut offers = Vec::new();
    for (key, item) in &resolve.worlds[world].imports {
        let WorldItem::Interface { id, .. } = item else {
            continue;
        };
        let module = resolve.name_world_key(key);
        let interface = &resolve.interfaces[*id];
        for function in interface.functions.values() {
            let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
            let flat: Vec<Flat> = signature.params.iter().map(flat).collect();
            let mut meanings: Vec<Meaning> = Vec::new();
            if !signature.indirect_params {
                for parameter in &function.params {
                    meanings.extend(meaning(resolve, &parameter.ty));
                }
            }
            if signature.retptr {
                meanings.resize(flat.len() - 1, Meaning::Number);
                meanings.push(Meaning::Out);
            }
            meanings.resize(flat.len(), Meaning::Number);
            offers.push(Offer {
                module: module.clone(),
                name: function.name.clone(),
                parameters: flat.into_iter().zip(meanings).collect(),
                result: signature.results.first().map(self::flat),
                reallocates: function
                    .result
                    .is_some_and(|result| has_list(resolve, &result)),
            });
        }
        for (name, id) in &interface.types {
            if matches!(resolve.types[*id].kind, TypeDefKind::Resource) {
                offers.push(Offer {
                    module: module.clone(),
                    name: format!("[resource-drop]{name}"),
                    parameters: vec![(Flat::I32, Meaning::Handle)],
                    result: None,
                    reallocates: false,
                });
            }
        }
    }
    offers
}

fn flat(kind: &WasmType) -> Flat {
    match kind {
        WasmType::I64 | WasmType::PointerOrI64 => Flat::I64,
        WasmType::F32 => Flat::F32,
        WasmType::F64 => Flat::F64,
        WasmType::I32 | WasmType::Pointer | WasmType::Length => Flat::I32,
    }
}

/// Whether values of a type can have a list or a string in them.
fn has_list(resolve: &Resolve, kind: &Type) -> bool {
    let has = |kind: &Type| has_list(resolve, kind);
    let id = match kind {
        Type::String => return true,
        Type::Id(id) => *id,
        _ => return false,
    };
    match &resolve.types[id].kind {
        TypeDefKind::List(_) => true,
        TypeDefKind::Type(other) | TypeDefKind::Option(other) => has(other),
        TypeDefKind::Tuple(tuple) => tuple.types.iter().any(has),
        TypeDefKind::Record(record) => record.fields.iter().any(|field| has(&field.ty)),
        TypeDefKind::Result(result) => result.ok.iter().chain(&result.err).any(has),
        TypeDefKind::Variant(variant) => {
            let cases = variant.cases.iter();
            cases.filter_map(|case| case.ty.as_ref()).any(has)
        }
        TypeDefKind::Handle(_)
        | TypeDefKind::Resource
        | TypeDefKind::Flags(_)
        | TypeDefKind::Enum(_) => false,
        // No type of such a kind is in these packages; one that is added must be looked at.
        _ => true,
    }
}

/// The meanings of the core parameters of a parameter. If there are more core parameters than
/// meanings, the rest are numbers.
fn meaning(resolve: &Resolve, kind: &Type) -> Vec<Meaning> {
    match kind {
        Type::String => vec![Meaning::Path, Meaning::Length],
        Type::Bool | Type::U8 | Type::S8 => vec![Meaning::Small],
        Type::U32 => vec![Meaning::Selector],
        Type::Id(id) => match &resolve.types[*id].kind {
            TypeDefKind::Handle(_) => vec![Meaning::Handle],
            TypeDefKind::List(Type::U8) => vec![Meaning::Buffer, Meaning::Length],
            TypeDefKind::List(_) => vec![Meaning::Handles, Meaning::Count],
            TypeDefKind::Flags(_) | TypeDefKind::Enum(_) => vec![Meaning::Small],
            TypeDefKind::Type(other) => meaning(resolve, other),
            _ => vec![Meaning::Number],
        },
        _ => vec![Meaning::Number],
    }
}

#[cfg(test)]
mod tests {
    use super::{Flat, Meaning, Offers};

    #[test]
    fn every_interface_of_both_forms_is_offered() {
        let offers = Offers::all().expect("well-formed");
        assert_eq!(
            offers
                .core
                .iter()
                .filter(|offer| offer.module == "wasi_snapshot_preview1")
                .count(),
            46
        );
        let kernel = offers
            .core
            .iter()
            .filter(|offer| offer.module == leasehold_abi::MODULE);
        assert_eq!(kernel.count(), leasehold_abi::FUNCTIONS.len());
        for interface in [
            "wasi:random/random@0.2.12",
            "wasi:filesystem/types@0.2.12",
            "wasi:sockets/tcp@0.2.12",
            "leasehold:kernel/region@0.1.0",
        ] {
            assert!(
                offers
                    .component
                    .iter()
                    .any(|offer| offer.module == interface),
                "{interface}"
            );
        }
    }

    #[test]
    fn a_list_is_an_address_and_a_length_and_a_large_result_an_address() {
        let offers = Offers::all().expect("well-formed");
        let find = |name: &str| {
            let offer = offers.component.iter().find(|offer| offer.name == name);
            offer.expect("offered").parameters.clone()
        };
        assert_eq!(
            find("get-random-bytes"),
            [(Flat::I64, Meaning::Number), (Flat::I32, Meaning::Out)]
        );
        assert_eq!(
            find("[method]output-stream.write"),
            [
                (Flat::I32, Meaning::Handle),
                (Flat::I32, Meaning::Buffer),
                (Flat::I32, Meaning::Length),
                (Flat::I32, Meaning::Out)
            ]
        );
    }
}
