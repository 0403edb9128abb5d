//! Macros that are understood by their meaning instead of their text, because the text serves
//! the compiler's checks and hides the object.

/// What an intrinsic macro means for the question which object an expression denotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The argument of that number, whose value or place it is.
    Argument(usize),
    /// What the first argument points to.
    Pointee,
    /// The copy of a variable, or of what is pointed to, that a processor has; the first
    /// argument names it.
    PerCpu,
    /// The structure, of the type in the second argument, that has what the first argument points
    /// to as the member in the third.
    Container,
    /// The member in the second argument of what the first points to.
    PrivateMember,
}

/// Every intrinsic. All are macros of `include/linux` with these names since years.
const INTRINSICS: [(&str, Meaning); 44] = [
    ("READ_ONCE", Meaning::Argument(0)),
    ("READ_ONCE_NOCHECK", Meaning::Argument(0)),
    ("data_race", Meaning::Argument(0)),
    ("likely", Meaning::Argument(0)),
    ("unlikely", Meaning::Argument(0)),
    ("rcu_dereference", Meaning::Argument(0)),
    ("rcu_dereference_bh", Meaning::Argument(0)),
    ("rcu_dereference_sched", Meaning::Argument(0)),
    ("rcu_dereference_raw", Meaning::Argument(0)),
    ("rcu_dereference_raw_check", Meaning::Argument(0)),
    ("rcu_dereference_check", Meaning::Argument(0)),
    ("rcu_dereference_bh_check", Meaning::Argument(0)),
    ("rcu_dereference_protected", Meaning::Argument(0)),
    ("rcu_dereference_rtnl", Meaning::Argument(0)),
    ("rtnl_dereference", Meaning::Argument(0)),
    ("rcu_access_pointer", Meaning::Argument(0)),
    ("rcu_replace_pointer", Meaning::Argument(0)),
    ("rcu_pointer_handoff", Meaning::Argument(0)),
    ("unrcu_pointer", Meaning::Argument(0)),
    ("srcu_dereference", Meaning::Argument(0)),
    ("srcu_dereference_check", Meaning::Argument(0)),
    ("no_free_ptr", Meaning::Argument(0)),
    ("xchg", Meaning::Pointee),
    ("cmpxchg", Meaning::Pointee),
    ("smp_load_acquire", Meaning::Pointee),
    ("smp_cond_load_acquire", Meaning::Pointee),
    ("per_cpu", Meaning::PerCpu),
    ("per_cpu_ptr", Meaning::PerCpu),
    ("raw_cpu_ptr", Meaning::PerCpu),
    ("this_cpu_ptr", Meaning::PerCpu),
    ("get_cpu_ptr", Meaning::PerCpu),
    ("get_cpu_var", Meaning::PerCpu),
    ("__get_cpu_var", Meaning::PerCpu),
    ("this_cpu_read", Meaning::PerCpu),
    ("__this_cpu_read", Meaning::PerCpu),
    ("raw_cpu_read", Meaning::PerCpu),
    ("this_cpu_read_stable", Meaning::PerCpu),
    ("this_cpu_read_const", Meaning::PerCpu),
    ("SHIFT_PERCPU_PTR", Meaning::PerCpu),
    ("RELOC_HIDE", Meaning::Argument(0)),
    ("container_of", Meaning::Container),
    ("container_of_const", Meaning::Container),
    ("ACCESS_PRIVATE", Meaning::PrivateMember),
    ("ERR_CAST", Meaning::Argument(0)),
];

/// What the macro of that name means, if it is one of these.
pub(crate) fn meaning(name: &str) -> Option<Meaning> {
    INTRINSICS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|&(_, meaning)| meaning)
}

/// Whether a name is not to be expanded.
pub(crate) fn known(name: &str) -> bool {
    meaning(name).is_some()
}
