//! The costs of ends beside their charges, for reports.

use leasehold_cell::ClassCosts;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The classes that cost more than was charged, a line for each; nothing if there were none.
pub(crate) fn text(costs: &[ClassCosts]) -> String {
    let mut text = String::new();
    for costs in costs.iter().filter(|costs| costs.exceeded > 0) {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "{class}: {exceeded} of {samples} took longer than was charged",
            class = costs.class.name(),
            exceeded = costs.exceeded,
            samples = costs.samples,
        );
        text.push_str(&match costs.drifts {
            0 => "\n".to_owned(),
            _ => format!(
                "; new leases are charged {:.2} times what the profile says: run `leasehold calibrate`\n",
                costs.price.factor()
            ),
        });
    }
    text
}

/// All classes that had ends, for programs.
pub(crate) fn json(costs: &[ClassCosts]) -> Value {
    let classes = costs.iter().filter(|costs| costs.samples > 0);
    let classes = classes.map(|costs| {
        json!({
            "class": costs.class.name(),
            "samples": costs.samples,
            "exceeded": costs.exceeded,
            "drifts": costs.drifts,
            "price": costs.price.factor(),
            "bound": costs.bound,
        })
    });
    classes.collect()
}

#[cfg(test)]
mod tests {
    use super::text;
    use leasehold_cell::{ClassCosts, CostClass, Price};

    #[test]
    fn only_what_exceeded_its_charge_is_told_to_people() {
        let costs = ClassCosts {
            class: CostClass::End,
            samples: 9,
            exceeded: 0,
            drifts: 0,
            price: Price::BASE,
            bound: None,
        };
        assert_eq!(text(&[costs]), "");
        let exceeded = ClassCosts {
            exceeded: 2,
            ..costs
        };
        let told = text(&[exceeded]);
        assert_eq!(told, "end: 2 of 9 took longer than was charged\n");
        let told = text(&[ClassCosts {
            drifts: 1,
            ..exceeded
        }]);
        assert!(
            told.contains("1.00 times") && told.contains("calibrate"),
            "{told}"
        );
    }
}
