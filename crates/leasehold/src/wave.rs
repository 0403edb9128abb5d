//! Calls and values as text: WAVE, as `wasmtime run --invoke` has it.

use crate::error::Error;
use leasehold_cell::{ExportedFunction, Type, Val as Value};
use std::borrow::Cow;
use std::collections::HashMap;
use wasm_wave::ast::Node;
use wasm_wave::untyped::{UntypedFuncCall, UntypedValue};
use wasm_wave::wasm::{WasmType, WasmTypeKind, WasmValue, WasmValueError};

/// A call as text: `name(1, "two", [three])`.
///
/// The name is that of any export, also of one whose name is none in WAVE, such as `add_two`, and may have its
/// interface before it: `ns:package/interface@1.0.0#name(1)`.
pub struct Call {
    function: String,
    /// Calls a function of another name.
    arguments: Option<UntypedFuncCall<'static>>,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("function", &self.function)
            .finish_non_exhaustive()
    }
}

impl Call {
    /// Parses one: with its arguments, or a name alone. Values are not looked at before the function is known.
    ///
    /// # Errors
    /// [`Error::Text`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let (name, arguments) = match text.find('(') {
            None => (text, None),
            Some(at) => (text[..at].trim_end(), Some(&text[at..])),
        };
        if name.is_empty() {
            return Err(Error::Text(format!(
                "{text:?} is no call, such as f(1, \"two\")"
            )));
        }
        let arguments = arguments
            .map(|arguments| parse(text, arguments))
            .transpose()?;
        Ok(Self {
            function: name.to_owned(),
            arguments,
        })
    }

    /// A call whose arguments are words of their own.
    ///
    /// # Errors
    /// [`Error::Text`].
    pub fn of_words(function: &str, words: &[String]) -> Result<Self, Error> {
        let list = format!("({})", words.join(", "));
        Ok(Self {
            function: function.to_owned(),
            arguments: Some(parse(&list, &list)?),
        })
    }

    /// The name of the function.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// Whether it says which arguments the function is called with, if only that there are none.
    pub fn has_arguments(&self) -> bool {
        self.arguments.is_some()
    }

    /// The arguments, which this function takes.
    ///
    /// # Errors
    /// [`Error::Text`].
    pub fn arguments(&self, function: &ExportedFunction) -> Result<Vec<Value>, Error> {
        let Some(arguments) = &self.arguments else {
            return Ok(Vec::new());
        };
        let types = function.parameters().iter();
        let types: Vec<Typed> = types.map(|(_, ty)| Typed(ty.clone())).collect();
        let wrong = |error: &dyn std::fmt::Display| {
            Error::Text(format!("the arguments of {}: {error}", function.name()))
        };
        let values = arguments.to_wasm_params::<Text>(&types);
        let values: Vec<Value> = values
            .map_err(|error| wrong(&error))?
            .into_iter()
            .map(|Text(value)| value)
            .collect();
        let nodes = arguments
            .params_node()
            .and_then(|node| node.as_tuple().ok());
        let given = nodes.into_iter().flatten().zip(&values);
        finite(given, arguments.source()).map_err(|error| wrong(&error))?;
        Ok(values)
    }
}

/// Arguments in parentheses, which are a part of `text`.
fn parse(text: &str, arguments: &str) -> Result<UntypedFuncCall<'static>, Error> {
    let call = format!("f{arguments}");
    let parsed = UntypedFuncCall::parse(&call).map(UntypedFuncCall::into_owned);
    parsed.map_err(|error| {
        Error::Text(format!(
            "{text:?} is no call, such as f(1, \"two\"): {error}"
        ))
    })
}

/// A value of this type, from text.
///
/// # Errors
/// [`Error::Text`].
pub fn value(text: &str, ty: &Type) -> Result<Value, Error> {
    let wrong = |error: &dyn std::fmt::Display| Error::Text(format!("{text:?}: {error}"));
    let parsed = UntypedValue::parse(text).map_err(|error| wrong(&error))?;
    let value = parsed.to_wasm_value::<Text>(&Typed(ty.clone()));
    let Text(value) = value.map_err(|error| wrong(&error))?;
    finite([(parsed.node(), &value)], text).map_err(|error| wrong(&error))?;
    Ok(value)
}

/// Refuses a number whose text is finite and too large for its type: the parser makes it infinite.
fn finite<'a>(
    given: impl IntoIterator<Item = (&'a Node, &'a Value)>,
    text: &str,
) -> Result<(), String> {
    let infinite = given
        .into_iter()
        .find_map(|(node, value)| made_infinite(node, value, text));
    infinite.map_or(Ok(()), |number| {
        Err(format!(
            "found {number}, which is beyond the numbers of its type; allowed: also inf and -inf"
        ))
    })
}

/// Returns the first number in the text of `node` that is finite, and infinite in `value`.
fn made_infinite<'a>(node: &Node, value: &Value, text: &'a str) -> Option<&'a str> {
    match value {
        Value::Float32(number) if number.is_infinite() => finite_text(node, text),
        Value::Float64(number) if number.is_infinite() => finite_text(node, text),
        Value::List(values) => first_infinite(node.as_list().ok()?, values, text),
        Value::Tuple(values) => first_infinite(node.as_tuple().ok()?, values, text),
        Value::Record(fields) => {
            // Of a name that is there twice, the last counts.
            let given: HashMap<&str, &Node> = node.as_record(text).ok()?.collect();
            fields
                .iter()
                .find_map(|(name, value)| made_infinite(given.get(name.as_str())?, value, text))
        }
        Value::Variant(_, Some(value)) => {
            let (_, payload) = node.as_variant(text).ok()?;
            made_infinite(payload?, value, text)
        }
        // `some` and `ok` need not be written.
        Value::Option(Some(value)) => {
            let payload = node.as_option().unwrap_or(Some(node));
            made_infinite(payload?, value, text)
        }
        Value::Result(Ok(Some(value)) | Err(Some(value))) => {
            let (Ok(payload) | Err(payload)) = node.as_result().unwrap_or(Ok(Some(node)));
            made_infinite(payload?, value, text)
        }
        _ => None,
    }
}

fn first_infinite<'a, 'n>(
    nodes: impl Iterator<Item = &'n Node>,
    values: &[Value],
    text: &'a str,
) -> Option<&'a str> {
    nodes
        .zip(values)
        .find_map(|(node, value)| made_infinite(node, value, text))
}

/// Returns the text of a number that does not say that it is infinite.
fn finite_text<'a>(node: &Node, text: &'a str) -> Option<&'a str> {
    let number = text.get(node.span())?;
    (!number.ends_with("inf")).then_some(number)
}

/// A value as text.
///
/// # Errors
/// [`Error::Text`], if it is a resource.
pub fn text(value: &Value) -> Result<String, Error> {
    wasm_wave::to_string(&Text(value.clone())).map_err(|error| Error::Text(error.to_string()))
}

/// The results of a call as text: one alone, more in parentheses, and `()` for none.
///
/// # Errors
/// [`Error::Text`], if one is a resource.
pub fn results(values: &[Value]) -> Result<String, Error> {
    match values {
        [one] => text(one),
        several => {
            let texts: Vec<String> = several.iter().map(text).collect::<Result<_, _>>()?;
            Ok(format!("({})", texts.join(", ")))
        }
    }
}

/// A type, as the parser of text sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Typed(Type);

impl WasmType for Typed {
    fn kind(&self) -> WasmTypeKind {
        match &self.0 {
            Type::Bool => WasmTypeKind::Bool,
            Type::S8 => WasmTypeKind::S8,
            Type::U8 => WasmTypeKind::U8,
            Type::S16 => WasmTypeKind::S16,
            Type::U16 => WasmTypeKind::U16,
            Type::S32 => WasmTypeKind::S32,
            Type::U32 => WasmTypeKind::U32,
            Type::S64 => WasmTypeKind::S64,
            Type::U64 => WasmTypeKind::U64,
            Type::Float32 => WasmTypeKind::F32,
            Type::Float64 => WasmTypeKind::F64,
            Type::Char => WasmTypeKind::Char,
            Type::String => WasmTypeKind::String,
            Type::List(_) => WasmTypeKind::List,
            Type::Record(_) => WasmTypeKind::Record,
            Type::Tuple(_) => WasmTypeKind::Tuple,
            Type::Variant(_) => WasmTypeKind::Variant,
            Type::Enum(_) => WasmTypeKind::Enum,
            Type::Option(_) => WasmTypeKind::Option,
            Type::Result(_) => WasmTypeKind::Result,
            Type::Flags(_) => WasmTypeKind::Flags,
            _ => WasmTypeKind::Unsupported,
        }
    }

    fn list_element_type(&self) -> Option<Self> {
        match &self.0 {
            Type::List(list) => Some(Self(list.ty())),
            _ => None,
        }
    }

    fn record_fields(&self) -> Box<dyn Iterator<Item = (Cow<'_, str>, Self)> + '_> {
        match &self.0 {
            Type::Record(record) => Box::new(
                record
                    .fields()
                    .map(|field| (field.name.into(), Self(field.ty.clone()))),
            ),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn tuple_element_types(&self) -> Box<dyn Iterator<Item = Self> + '_> {
        match &self.0 {
            Type::Tuple(tuple) => Box::new(tuple.types().map(Self)),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn variant_cases(&self) -> Box<dyn Iterator<Item = (Cow<'_, str>, Option<Self>)> + '_> {
        match &self.0 {
            Type::Variant(variant) => Box::new(
                variant
                    .cases()
                    .map(|case| (case.name.into(), case.ty.map(Self))),
            ),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn enum_cases(&self) -> Box<dyn Iterator<Item = Cow<'_, str>> + '_> {
        match &self.0 {
            Type::Enum(cases) => Box::new(cases.names().map(Cow::from)),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn option_some_type(&self) -> Option<Self> {
        match &self.0 {
            Type::Option(option) => Some(Self(option.ty())),
            _ => None,
        }
    }

    fn result_types(&self) -> Option<(Option<Self>, Option<Self>)> {
        match &self.0 {
            Type::Result(result) => Some((result.ok().map(Self), result.err().map(Self))),
            _ => None,
        }
    }

    fn flags_names(&self) -> Box<dyn Iterator<Item = Cow<'_, str>> + '_> {
        match &self.0 {
            Type::Flags(flags) => Box::new(flags.names().map(Cow::from)),
            _ => Box::new(std::iter::empty()),
        }
    }
}

/// A value, as the parser and the printer of text see it. Its type is checked by the call.
#[derive(Debug, Clone)]
struct Text(Value);

impl Text {
    fn boxed(value: Option<Self>) -> Option<Box<Value>> {
        value.map(|Self(value)| Box::new(value))
    }

    fn lent(value: &Option<Box<Value>>) -> Option<Cow<'_, Self>> {
        value
            .as_deref()
            .map(|value| Cow::Owned(Self(value.clone())))
    }

    fn all<'a>(values: &'a [Value]) -> Box<dyn Iterator<Item = Cow<'a, Self>> + 'a> {
        Box::new(values.iter().map(|value| Cow::Owned(Self(value.clone()))))
    }
}

macro_rules! plain {
    ($($variant:ident, $type:ty, $make:ident, $unwrap:ident;)+) => {$(
        fn $make(value: $type) -> Self {
            Self(Value::$variant(value))
        }

        fn $unwrap(&self) -> $type {
            match self.0 {
                Value::$variant(value) => value,
                _ => Default::default(),
            }
        }
    )+};
}

/// The printer asks for what [`kind`](WasmValue::kind) says that there is; for anything else there is nothing.
impl WasmValue for Text {
    type Type = Typed;

    fn kind(&self) -> WasmTypeKind {
        match &self.0 {
            Value::Bool(_) => WasmTypeKind::Bool,
            Value::S8(_) => WasmTypeKind::S8,
            Value::U8(_) => WasmTypeKind::U8,
            Value::S16(_) => WasmTypeKind::S16,
            Value::U16(_) => WasmTypeKind::U16,
            Value::S32(_) => WasmTypeKind::S32,
            Value::U32(_) => WasmTypeKind::U32,
            Value::S64(_) => WasmTypeKind::S64,
            Value::U64(_) => WasmTypeKind::U64,
            Value::Float32(_) => WasmTypeKind::F32,
            Value::Float64(_) => WasmTypeKind::F64,
            Value::Char(_) => WasmTypeKind::Char,
            Value::String(_) => WasmTypeKind::String,
            Value::List(_) => WasmTypeKind::List,
            Value::Record(_) => WasmTypeKind::Record,
            Value::Tuple(_) => WasmTypeKind::Tuple,
            Value::Variant(..) => WasmTypeKind::Variant,
            Value::Enum(_) => WasmTypeKind::Enum,
            Value::Option(_) => WasmTypeKind::Option,
            Value::Result(_) => WasmTypeKind::Result,
            Value::Flags(_) => WasmTypeKind::Flags,
            _ => WasmTypeKind::Unsupported,
        }
    }

    plain! {
        Bool, bool, make_bool, unwrap_bool;
        S8, i8, make_s8, unwrap_s8;
        U8, u8, make_u8, unwrap_u8;
        S16, i16, make_s16, unwrap_s16;
        U16, u16, make_u16, unwrap_u16;
        S32, i32, make_s32, unwrap_s32;
        U32, u32, make_u32, unwrap_u32;
        S64, i64, make_s64, unwrap_s64;
        U64, u64, make_u64, unwrap_u64;
        Float32, f32, make_f32, unwrap_f32;
        Float64, f64, make_f64, unwrap_f64;
        Char, char, make_char, unwrap_char;
    }

    fn make_string(value: Cow<'_, str>) -> Self {
        Self(Value::String(value.into_owned()))
    }

    fn unwrap_string(&self) -> Cow<'_, str> {
        match &self.0 {
            Value::String(value) => value.into(),
            _ => Cow::default(),
        }
    }

    fn make_list(
        _: &Typed,
        values: impl IntoIterator<Item = Self>,
    ) -> Result<Self, WasmValueError> {
        Ok(Self(Value::List(
            values.into_iter().map(|Self(value)| value).collect(),
        )))
    }

    fn unwrap_list(&self) -> Box<dyn Iterator<Item = Cow<'_, Self>> + '_> {
        match &self.0 {
            Value::List(values) => Self::all(values),
            _ => Self::all(&[]),
        }
    }

    fn make_record<'a>(
        ty: &Typed,
        fields: impl IntoIterator<Item = (&'a str, Self)>,
    ) -> Result<Self, WasmValueError> {
        let mut given: Vec<(String, Value)> = fields
            .into_iter()
            .map(|(name, Self(value))| (name.to_owned(), value))
            .collect();
        // In the order of the type, whatever the order in the text.
        let names: Vec<String> = ty
            .record_fields()
            .map(|(name, _)| name.into_owned())
            .collect();
        given.sort_by_key(|(name, _)| names.iter().position(|known| known == name));
        Ok(Self(Value::Record(given)))
    }

    fn unwrap_record(&self) -> Box<dyn Iterator<Item = (Cow<'_, str>, Cow<'_, Self>)> + '_> {
        match &self.0 {
            Value::Record(fields) => Box::new(
                fields
                    .iter()
                    .map(|(name, value)| (name.into(), Cow::Owned(Self(value.clone())))),
            ),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn make_tuple(
        _: &Typed,
        values: impl IntoIterator<Item = Self>,
    ) -> Result<Self, WasmValueError> {
        Ok(Self(Value::Tuple(
            values.into_iter().map(|Self(value)| value).collect(),
        )))
    }

    fn unwrap_tuple(&self) -> Box<dyn Iterator<Item = Cow<'_, Self>> + '_> {
        match &self.0 {
            Value::Tuple(values) => Self::all(values),
            _ => Self::all(&[]),
        }
    }

    fn make_variant(_: &Typed, case: &str, value: Option<Self>) -> Result<Self, WasmValueError> {
        Ok(Self(Value::Variant(case.to_owned(), Self::boxed(value))))
    }

    fn unwrap_variant(&self) -> (Cow<'_, str>, Option<Cow<'_, Self>>) {
        match &self.0 {
            Value::Variant(case, value) => (case.into(), Self::lent(value)),
            _ => Default::default(),
        }
    }

    fn make_enum(_: &Typed, case: &str) -> Result<Self, WasmValueError> {
        Ok(Self(Value::Enum(case.to_owned())))
    }

    fn unwrap_enum(&self) -> Cow<'_, str> {
        match &self.0 {
            Value::Enum(case) => case.into(),
            _ => Cow::default(),
        }
    }

    fn make_option(_: &Typed, value: Option<Self>) -> Result<Self, WasmValueError> {
        Ok(Self(Value::Option(Self::boxed(value))))
    }

    fn unwrap_option(&self) -> Option<Cow<'_, Self>> {
        match &self.0 {
            Value::Option(value) => Self::lent(value),
            _ => None,
        }
    }

    fn make_result(
        _: &Typed,
        value: Result<Option<Self>, Option<Self>>,
    ) -> Result<Self, WasmValueError> {
        Ok(Self(Value::Result(match value {
            Ok(value) => Ok(Self::boxed(value)),
            Err(value) => Err(Self::boxed(value)),
        })))
    }

    fn unwrap_result(&self) -> Result<Option<Cow<'_, Self>>, Option<Cow<'_, Self>>> {
        match &self.0 {
            Value::Result(Ok(value)) => Ok(Self::lent(value)),
            Value::Result(Err(value)) => Err(Self::lent(value)),
            _ => Ok(None),
        }
    }

    fn make_flags<'a>(
        _: &Typed,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, WasmValueError> {
        Ok(Self(Value::Flags(
            names.into_iter().map(str::to_owned).collect(),
        )))
    }

    fn unwrap_flags(&self) -> Box<dyn Iterator<Item = Cow<'_, str>> + '_> {
        match &self.0 {
            Value::Flags(names) => Box::new(names.iter().map(Cow::from)),
            _ => Box::new(std::iter::empty()),
        }
    }
}
