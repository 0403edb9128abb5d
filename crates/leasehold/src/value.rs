//! Rust's values as values of calls, and back.

use leasehold_cell::{Type, Val as Value};

/// A type that can be an argument.
pub trait IntoValue {
    /// The value.
    fn into_value(self) -> Value;
}

/// A type that can be a result.
pub trait FromValue: Sized {
    /// Whether all values of a type can be had as this. There is no type where a `result` has nothing: that is `()`.
    fn fits(ty: Option<&Type>) -> bool;

    /// The value in Rust; `None` if it is of another type.
    fn from_value(value: Value) -> Option<Self>;

    /// What stands for nothing, in Rust; `None` unless it is `()`.
    fn from_nothing() -> Option<Self> {
        None
    }
}

/// A type for all arguments of a call: a tuple of up to eight, or [`Value`]s.
pub trait Arguments {
    /// One value for each parameter.
    fn into_values(self) -> Vec<Value>;
}

/// A type for all results of a call: a tuple of up to eight, or [`Value`]s. Functions of components
/// have one at most: `(T,)`, or `()`.
pub trait Results: Sized {
    /// Whether all results of a function with results of these types can be had as this.
    fn fits(types: &[Type]) -> bool;

    /// The values in Rust; `None` if they are as many as, or of, other types.
    fn from_values(values: Vec<Value>) -> Option<Self>;
}

impl IntoValue for Value {
    fn into_value(self) -> Value {
        self
    }
}

impl FromValue for Value {
    fn fits(ty: Option<&Type>) -> bool {
        ty.is_some()
    }

    fn from_value(value: Value) -> Option<Self> {
        Some(value)
    }
}

macro_rules! plain {
    ($($type:ty: $variant:ident),+) => {$(
        impl IntoValue for $type {
            fn into_value(self) -> Value {
                Value::$variant(self)
            }
        }

        impl FromValue for $type {
            fn fits(ty: Option<&Type>) -> bool {
                matches!(ty, Some(Type::$variant))
            }

            fn from_value(value: Value) -> Option<Self> {
                match value {
                    Value::$variant(value) => Some(value),
                    _ => None,
                }
            }
        }
    )+};
}

plain!(
    bool: Bool, i8: S8, u8: U8, i16: S16, u16: U16, i32: S32, u32: U32, i64: S64, u64: U64,
    f32: Float32, f64: Float64, char: Char, String: String
);

impl IntoValue for &str {
    fn into_value(self) -> Value {
        Value::String(self.to_owned())
    }
}

impl<T: IntoValue> IntoValue for Vec<T> {
    fn into_value(self) -> Value {
        Value::List(self.into_iter().map(T::into_value).collect())
    }
}

impl<T: FromValue> FromValue for Vec<T> {
    fn fits(ty: Option<&Type>) -> bool {
        matches!(ty, Some(Type::List(list)) if T::fits(Some(&list.ty())))
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::List(values) => values.into_iter().map(T::from_value).collect(),
            _ => None,
        }
    }
}

impl<T: IntoValue> IntoValue for Option<T> {
    fn into_value(self) -> Value {
        Value::Option(self.map(|value| Box::new(value.into_value())))
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn fits(ty: Option<&Type>) -> bool {
        matches!(ty, Some(Type::Option(option)) if T::fits(Some(&option.ty())))
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Option(None) => Some(None),
            Value::Option(Some(value)) => T::from_value(*value).map(Some),
            _ => None,
        }
    }
}

impl<T: FromValue, E: FromValue> FromValue for Result<T, E> {
    fn fits(ty: Option<&Type>) -> bool {
        let Some(Type::Result(result)) = ty else {
            return false;
        };
        T::fits(result.ok().as_ref()) && E::fits(result.err().as_ref())
    }

    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Result(Ok(Some(value))) => T::from_value(*value).map(Ok),
            Value::Result(Ok(None)) => T::from_nothing().map(Ok),
            Value::Result(Err(Some(value))) => E::from_value(*value).map(Err),
            Value::Result(Err(None)) => E::from_nothing().map(Err),
            _ => None,
        }
    }
}

/// Nothing, in a `result`: `Result<(), String>` is `result<_, string>`.
impl FromValue for () {
    fn fits(ty: Option<&Type>) -> bool {
        ty.is_none()
    }

    fn from_value(_: Value) -> Option<Self> {
        None
    }

    fn from_nothing() -> Option<Self> {
        Some(())
    }
}

impl Arguments for Vec<Value> {
    fn into_values(self) -> Vec<Value> {
        self
    }
}

impl Results for Vec<Value> {
    fn fits(_: &[Type]) -> bool {
        true
    }

    fn from_values(values: Vec<Value>) -> Option<Self> {
        Some(values)
    }
}

macro_rules! tuples {
    ($(($($name:ident),*)),+) => {$(
        impl<$($name: IntoValue),*> Arguments for ($($name,)*) {
            #[expect(non_snake_case, reason = "a field is called as its type")]
            fn into_values(self) -> Vec<Value> {
                let ($($name,)*) = self;
                vec![$($name.into_value()),*]
            }
        }

        impl<$($name: FromValue),*> Results for ($($name,)*) {
            fn fits(types: &[Type]) -> bool {
                let mut types = types.iter();
                let fit = true $(&& types.next().is_some_and(|ty| $name::fits(Some(ty))))*;
                fit && types.next().is_none()
            }

            fn from_values(values: Vec<Value>) -> Option<Self> {
                let mut values = values.into_iter();
                let all = ($($name::from_value(values.next()?)?,)*);
                values.next().is_none().then_some(all)
            }
        }
    )+};
}

impl Arguments for () {
    fn into_values(self) -> Vec<Value> {
        Vec::new()
    }
}

impl Results for () {
    fn fits(types: &[Type]) -> bool {
        types.is_empty()
    }

    fn from_values(values: Vec<Value>) -> Option<Self> {
        values.is_empty().then_some(())
    }
}

tuples!(
    (A),
    (A, B),
    (A, B, C),
    (A, B, C, D),
    (A, B, C, D, E),
    (A, B, C, D, E, F),
    (A, B, C, D, E, F, G),
    (A, B, C, D, E, F, G, H)
);

#[cfg(test)]
mod tests {
    use super::{Arguments, FromValue, IntoValue, Results};
    use leasehold_cell::Val as Value;

    #[test]
    fn what_was_made_a_value_comes_back() {
        let list = vec![Some(1_u8), None];
        assert_eq!(
            Vec::<Option<u8>>::from_value(list.clone().into_value()),
            Some(list)
        );
        let values = (1_u32, "two", 3.0_f64).into_values();
        let back = <(u32, String, f64)>::from_values(values);
        assert_eq!(back, Some((1, "two".to_owned(), 3.0)));
    }

    #[test]
    fn a_result_without_a_value_is_one_of_nothing() {
        let failed = Value::Result(Err(Some(Box::new("why".to_owned().into_value()))));
        type Answer = Result<(), String>;
        assert_eq!(Answer::from_value(failed), Some(Err("why".to_owned())));
        assert_eq!(Answer::from_value(Value::Result(Ok(None))), Some(Ok(())));
        assert_eq!(Answer::from_value(Value::Result(Err(None))), None);
    }

    #[test]
    fn what_is_of_another_type_does_not_come_back() {
        assert_eq!(u32::from_value(Value::S32(1)), None);
        assert_eq!(Vec::<u8>::from_value(vec![1_u16].into_value()), None);
        assert_eq!(<(u32,)>::from_values(vec![]), None);
        assert_eq!(<()>::from_values(vec![Value::Bool(true)]), None);
        assert_eq!(<(u32,)>::from_values((1_u32, 2_u32).into_values()), None);
    }
}
